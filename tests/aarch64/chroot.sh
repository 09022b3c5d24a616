#!/bin/sh
# Makes a Debian for ARM with Python, a compiler and the packages of the tests: chroot.sh FOLDER
#
# Needs root and debootstrap. Takes about 10 minutes under qemu, once. The Python packages come from PyPI.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/../../requirements-dev.txt
mkdir -p "$1"
root=$(cd "$1" && pwd)
[ "$(id -u)" = 0 ] || {
	echo "tests/aarch64/chroot.sh: only root can make a chroot" >&2
	exit 1
}
rm -rf "$root"
debootstrap --arch=arm64 --foreign --variant=minbase --include=ca-certificates,g++,procps,python3,python3-dev,python3-venv \
	bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
chroot "$root" /debootstrap/debootstrap --second-stage

# pip on this machine downloads the packages, because it has the settings for the network.
wheels=$root/opt/wheels
mkdir -p "$wheels"
packages=$(sed -n '/^numpy==/p; /^tqdm==/p; /^# tests$/,/^$/p' "$requirements" | grep -v '^#')
pure=$(echo "$packages" | grep '^tfrecord==') # has no wheel on PyPI
# shellcheck disable=SC2086
python -m pip wheel --quiet --no-deps --wheel-dir "$wheels" $pure
tags="--platform=manylinux2014_aarch64 --platform=manylinux_2_17_aarch64"
tags="$tags --platform=manylinux_2_27_aarch64 --platform=manylinux_2_28_aarch64"
# shellcheck disable=SC2046,SC2086
python -m pip download --quiet --dest "$wheels" --only-binary=:all: --implementation cp --python-version 311 $tags \
	crc32c $(echo "$packages" | grep -v '^tfrecord==')
# Of the oldest NumPy, for check_installed.sh. Its name differs, so that the tests get the other.
# shellcheck disable=SC2086
python -m pip download --quiet --dest "$root/opt/oldest" --only-binary=:all: --no-deps --implementation cp \
	--python-version 311 $tags 'numpy==1.23.*'
chroot "$root" python3 -m venv /opt/venv
# shellcheck disable=SC2086
chroot "$root" /opt/venv/bin/python -m pip install --quiet --no-index --find-links /opt/wheels crc32c $packages
touch "$root/.done"
