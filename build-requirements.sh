#!/bin/sh
# Prints the Debian packages that this machine lacks for building, in one line: build-requirements.sh [test|aarch64]
# With "test" it also prints those that the tests need, and with "aarch64" those of make test-aarch64. PYTHON names
# another python3.
set -eu
python=${PYTHON:-python3}

missing=
need() { # PACKAGE COMMAND...
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}
python_header() {
	"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
}

need make command -v make
need g++ command -v g++
need python3 "$python" -c 'import sys; assert sys.version_info >= (3, 11)'
need python3-venv "$python" -c 'import ensurepip, venv'
need python3-dev python_header
if [ "${1:-}" = test ]; then
	need binutils command -v readelf
	need cmake command -v cmake
	need libgtest-dev test -e /usr/include/gtest/gtest.h
	need ninja-build command -v ninja
	need pkg-config command -v pkg-config
fi
if [ "${1:-}" = aarch64 ]; then
	need binutils-aarch64-linux-gnu command -v aarch64-linux-gnu-objdump
	need debootstrap command -v debootstrap
	need g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++
	need googletest test -e /usr/src/googletest/CMakeLists.txt
	need ninja-build command -v ninja
	need pkg-config command -v pkg-config
	[ "$(uname -m)" = aarch64 ] || need qemu-user-static command -v qemu-aarch64-static
fi
echo "${missing# }"
