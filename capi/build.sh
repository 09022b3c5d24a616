#!/bin/sh
# Builds the shared library: capi/build.sh OUT [go build flags...]
#
# The one recipe: Makefile, setup.py and tests all come here. From any directory, from a checkout or
# an unpacked sdist. GO names another go command, CGO_CFLAGS replaces -O2, CUDA_INCLUDE is the folder of cuda.h.
set -eu
unset CDPATH

die() {
	echo "capi/build.sh: $*" >&2
	exit 1
}

[ $# -ge 1 ] || die "usage: capi/build.sh OUT [go build flags...]"
out=$1
shift
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
cd "$(dirname "$0")/.."
root=$(pwd)

# Go 1.20 and older take a go.mod from the future and fail later, over some missing package.
go=${GO:-go}
need=$(sed -n 's/^go //p' go.mod)
command -v "$go" >/dev/null ||
	die "building libpyfeed needs Go $need or newer, but there is no '$go' on PATH (see https://go.dev/doc/install)"
have=$("$go" env GOVERSION) || die "building libpyfeed needs Go $need or newer, see the error above"
have=${have##*go}
have=${have%%[!0-9.]*}
[ "$(printf '%s\n' "$need" "$have" | sort -V | head -n 1)" = "$need" ] ||
	die "building libpyfeed needs Go $need or newer, but '$go' is Go $have"

# gorgonia.org/cu compiles with the header of any CUDA 12, and of no other. Only the header is needed: see cuda/driver.
cuda_version() { sed -n 's/^#define CUDA_VERSION \([0-9]*\)[0-9]\{3\}$/\1/p' "$1/cuda.h" 2>/dev/null; }
hint="(pip install nvidia-cuda-runtime-cu12 brings one: CUDA_INCLUDE=.../site-packages/nvidia/cuda_runtime/include)"
if [ -z "${CUDA_INCLUDE:-}" ]; then
	for CUDA_INCLUDE in /usr/local/cuda/include /usr/include /opt/cuda/include ""; do
		[ "$(cuda_version "$CUDA_INCLUDE")" != 12 ] || break
	done
	[ "$CUDA_INCLUDE" ] || die "building libpyfeed needs cuda.h of CUDA 12, found none $hint"
fi
[ -f "$CUDA_INCLUDE/cuda.h" ] || die "CUDA_INCLUDE: there is no cuda.h in $CUDA_INCLUDE $hint"
have=$(cuda_version "$CUDA_INCLUDE")
[ "$have" = 12 ] || die "building libpyfeed needs cuda.h of CUDA 12, found CUDA $have in $CUDA_INCLUDE $hint"

strip="-s -w"
cflags=-O2
case " $* " in *" -asan "*) # whose reports are only worth reading with functions and lines
	strip=
	cflags="-O1 -g -fno-omit-frame-pointer"
	;;
esac

# Built under a name of its own and moved into place: processes that have the old library mapped
# keep it whole, Go cannot take an old file for up to date, and the header that Go derives from the
# name can never land on pyfeed.h.
new=$out.$$
header=$out.h
trap 'rm -f "$new" "$header"' EXIT

# The path is quoted twice because go and its linker each split what they are given.
export CGO_ENABLED=1 CGO_CFLAGS="${CGO_CFLAGS:-$cflags} -fvisibility=hidden" CGO_CPPFLAGS="'-I$CUDA_INCLUDE' ${CGO_CPPFLAGS:-}"
"$go" build -trimpath -buildvcs=false -buildmode=c-shared "$@" -o "$new" -ldflags "$strip \
	-extldflags '-Wl,-soname,libpyfeed.so.0 -Wl,-z,defs -Wl,-z,now -Wl,--as-needed \
	\"-Wl,--version-script=$root/capi/exports.map\"'" ./capi
chmod 755 "$new"
mv -f "$new" "$out"
