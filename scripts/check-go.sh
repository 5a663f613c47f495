#!/bin/sh
# Says clearly when Go is missing or older than go.mod asks for.
# Usage: check-go.sh [GO]
set -eu
cd "$(dirname "$0")/.."
go=${1:-go}

want=$(awk '$1 == "go" {print $2; exit}' go.mod)
if ! command -v "$go" >/dev/null 2>&1; then
	echo "error: '$go' not found: install Go $want or newer (https://go.dev/doc/install)" >&2
	exit 1
fi
# An older Go that may switch toolchains by itself answers with the version that it switched to.
if ! have=$("$go" env GOVERSION 2>&1); then
	echo "error: '$go env GOVERSION' failed: $have" >&2
	echo "       Go $want or newer is needed (go.mod)" >&2
	exit 1
fi
have=${have#go}
have=${have%% *}
if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
	echo "error: Go $have ($(command -v "$go")) is too old: go.mod asks for Go $want or newer (https://go.dev/doc/install)" >&2
	exit 1
fi
