#!/bin/sh
# Before a removal; not before an upgrade. deb: "remove"; rpm: the number of versions that stay.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now llm_canary_exporter.service || true
	fi
	;;
esac
