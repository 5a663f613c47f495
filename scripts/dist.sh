#!/usr/bin/env bash
# Builds what a release consists of into dist/: archives for each system, .deb and .rpm, checksums.
#   scripts/dist.sh [SYSTEM…]   SYSTEM is os/arch, or os/arch/nocgo; without: all of them
# linux/amd64 and linux/arm64 are built with cgo, for NVML. For the other one of the two, a C compiler that makes
# its code is needed (Debian: gcc-aarch64-linux-gnu, gcc-x86-64-linux-gnu); without, that build has no NVML, which
# its name says (…-nocgo) and the script tells at the end. All other systems have no NVML in any case.
# The same commit gives the same bytes, with the same Go and the same C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

name=llm_canary_exporter
version=$(<VERSION)
out=$PWD/dist
host_arch=$(go env GOHOSTARCH)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
notes=()

systems=("$@")
if ((${#systems[@]} == 0)); then
	systems=(linux/amd64 linux/arm64 linux/amd64/nocgo linux/arm64/nocgo darwin/amd64 darwin/arm64 windows/amd64 freebsd/amd64)
fi

# compiler ARCH: the C compiler that makes code for Linux on it, if there is one.
compiler() {
	local cc
	if [[ $1 == "$host_arch" ]]; then
		cc=${CC:-gcc}
	elif [[ $1 == arm64 ]]; then
		cc=aarch64-linux-gnu-gcc
	else
		cc=x86_64-linux-gnu-gcc
	fi
	command -v "$cc" >/dev/null 2>&1 && echo "$cc"
}

# glibc BINARY: the newest version of the C library that it asks for.
glibc() {
	local v=
	if command -v readelf >/dev/null 2>&1; then
		v=$(readelf -V "$1" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sed s/GLIBC_// | sort -Vu | tail -n 1) || true
	fi
	echo "${v:-2.34}"
}

tarball() { # FOLDER: as FOLDER.tar.gz, the same bytes each time
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$(dirname "$1")" -cf - "$(basename "$1")" | gzip -9n >"$1.tar.gz"
}

rm -rf "$out"
mkdir -p "$out/stage/common"
common=$out/stage/common

echo "--- man page, completions"
make --no-print-directory build BIN="$out/stage/host" >"$out/stage/host.log" 2>&1 || { cat "$out/stage/host.log" >&2; exit 1; }
mkdir -p "$common/completions"
# kingpin puts the whole of --version into the header, which has to be one line.
{
	printf '.TH LLM_CANARY_EXPORTER 1 "%s" "%s %s" "User Commands"\n' "$(date -u -d "@$epoch" +%Y-%m-%d)" "$name" "$version"
	"$out/stage/host" --help-man | sed -n '/^\.SH "NAME"/,$p' | sed "s/^$name\$/$name \\\\- watches LLM inference servers from the client's side, for Prometheus/"
} >"$common/$name.1"
"$out/stage/host" --completion-script-bash >"$common/completions/$name.bash"
"$out/stage/host" --completion-script-zsh >"$common/completions/_$name"
cp -R LICENSE README*.md CHANGELOG.md examples "$common/"
mkdir -p "$common/docs" "$common/dashboards" "$common/alerts" "$common/systemd"
cp docs/*.md "$common/docs/"
cp dashboards/*.json "$common/dashboards/"
if [[ -d alerts ]]; then cp alerts/*.yml "$common/alerts/"; fi
cp -R deploy/systemd/. "$common/systemd/"

for system in "${systems[@]}"; do
	IFS=/ read -r goos goarch kind <<<"$system"
	cgo=0 cc=
	if [[ $goos == linux && $kind != nocgo ]]; then
		if cc=$(compiler "$goarch"); then
			cgo=1
		else
			notes+=("no C compiler for linux/$goarch: no build with NVML for it, use the -nocgo one")
			[[ " ${systems[*]} " == *" $system/nocgo "* ]] && continue
			kind=nocgo
		fi
	fi
	full=$name-$version.$goos-$goarch${kind:+-$kind}
	begin=$SECONDS
	dir=$out/stage/$full
	cp -R "$common" "$dir"
	[[ $goos == linux ]] || rm -rf "$dir/systemd"
	exe=$dir/$name
	[[ $goos == windows ]] && exe+=.exe
	env GOOS="$goos" GOARCH="$goarch" CGO_ENABLED=$cgo ${cc:+CC="$cc"} \
		make --no-print-directory build BIN="$exe" LDFLAGS='-s -w' >"$out/stage/build.log" 2>&1 || { cat "$out/stage/build.log" >&2; exit 1; }
	tarball "$dir"
	mv "$dir.tar.gz" "$out/"
	echo "--- $full.tar.gz ($((SECONDS - begin)) s)"
	if ((cgo)); then
		cp "$exe" "$out/stage/binary-$goarch"
	fi
done

packages() {
	local arch
	for arch in amd64 arm64; do
		[[ -e $out/stage/binary-$arch ]] || continue
		rm -rf "$out/stage/package"
		mkdir -p "$out/stage/package"
		cp "$out/stage/binary-$arch" "$out/stage/package/$name"
		gzip -9nc "$common/$name.1" >"$out/stage/package/$name.1.gz"
		gzip -9nc CHANGELOG.md >"$out/stage/package/changelog.gz"
		(
			export PACKAGE_ARCH=$arch PACKAGE_VERSION=$version PACKAGE_GLIBC
			PACKAGE_GLIBC=$(glibc "$out/stage/binary-$arch")
			.tools/bin/nfpm package --config deploy/packages/nfpm.yaml --packager deb --target "$out/llm-canary-exporter_${version}_$arch.deb"
			.tools/bin/nfpm package --config deploy/packages/nfpm.yaml --packager rpm --target "$out/llm-canary-exporter-$version-1.$([[ $arch == amd64 ]] && echo x86_64 || echo aarch64).rpm"
		) >"$out/stage/nfpm.log" 2>&1 || { cat "$out/stage/nfpm.log" >&2; return 1; }
		echo "--- .deb and .rpm, $arch"
	done
}
packages

rm -rf "$out/stage"
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
for n in ${notes[@]+"${notes[@]}"}; do
	echo "NOTE: $n"
done
