#!/bin/sh
# Prints the Debian packages that this machine lacks for building, in one line: build-requirements.sh [test]
# With "test" it also prints those that the tests need. PYTHON names another python3.
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
echo "${missing# }"
