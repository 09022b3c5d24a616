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
# Debian's pyconfig.h includes one for the machine, in another folder below /usr/include, which cc.sh leaves out. The
# one of this computer serves for all, as it does if Python is not Debian's: both machines have the same types.
config=$("${4:-python}" -c 'import os, sysconfig
root, name = os.path.split(os.path.dirname(sysconfig.get_config_h_filename()))
print(os.path.join(root, sysconfig.get_config_var("MULTIARCH") or "", name))')
if [ -d "$config" ]; then
	export PYCONFIG="$here/../build/pyconfig/$2-$(basename "$config")"
	mkdir -p "$PYCONFIG/$2-linux-gnu"
	ln -sfn "$config" "$PYCONFIG/$2-linux-gnu/$(basename "$config")"
fi
exec "${4:-python}" -m build --quiet --no-isolation --outdir "$1" "$here/.."
