#!/bin/sh
# Builds a wheel with zig's compiler: wheels/build.sh FOLDER MACHINE GLIBC [PYTHON]
#
# MACHINE is x86_64 or aarch64, which need not be that of this computer, and GLIBC the oldest glibc on which the wheel
# works, such as 2.28. Builds in other folders have the same bytes, also because the files of the wheel have the time of
# SOURCE_DATE_EPOCH: 1980. PYTHON is the interpreter of this computer that builds, if not the first on PATH; a
# free-threaded one builds a wheel for its version.
set -eu
[ $# -eq 3 ] || [ $# -eq 4 ] || {
	echo "usage: wheels/build.sh FOLDER MACHINE GLIBC [PYTHON]" >&2
	exit 1
}
here=$(cd "$(dirname "$0")" && pwd)
case $2 in
x86_64) GOARCH=amd64 ;;
aarch64) GOARCH=arm64 ;;
*)
	echo "wheels/build.sh: MACHINE: expected x86_64 or aarch64, found $2" >&2
	exit 1
	;;
esac
# setuptools takes the platform of the wheel from _PYTHON_HOST_PLATFORM.
export GOARCH ZIG_TARGET="$2-linux-gnu.$3" _PYTHON_HOST_PLATFORM="linux-$2"
export CC="$here/cc.sh" LDSHARED="$here/cc.sh -shared" SOURCE_DATE_EPOCH=315532800
exec "${4:-python}" -m build --quiet --no-isolation --outdir "$1" "$here/.."
