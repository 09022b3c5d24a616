#!/bin/sh
# Builds the C++ tests for ARM against the library in a wheel, and runs them: cpp.sh WHEEL BUILD [arguments of ctest...]
#
# Linux runs them by qemu: see emulate.sh. GoogleTest is built from the sources in /usr/src/googletest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1")
mkdir -p "$2"
build=$(cd "$2" && pwd)
shift 2
cd "$here/../.."
# For the library that the test of the ABI builds, and for the program that the test of the CMake package builds.
export GOARCH=arm64 CGO_ENABLED=1 CC="$here/../../wheels/cc.sh" CROSS_CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
export CMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake"
export PYFEED_STRESS_TUPLES="${PYFEED_STRESS_TUPLES:-20000}"

rm -rf "$build/wheel"
python -m zipfile -e "$wheel" "$build/wheel"
if [ ! -e "$build/gtest/lib/libgtest.a" ]; then
	cmake -S /usr/src/googletest -B "$build/gtest-build" -G Ninja -DBUILD_GMOCK=OFF \
		-DCMAKE_INSTALL_PREFIX="$build/gtest" -DCMAKE_INSTALL_LIBDIR=lib
	cmake --build "$build/gtest-build" --parallel "$(nproc)"
	cmake --install "$build/gtest-build"
fi
cmake -S tests/cpp -B "$build/tests" -G Ninja -DCMAKE_PREFIX_PATH="$build/wheel/pyfeed;$build/gtest" \
	-DCMAKE_C_FLAGS=-g1 -DCMAKE_CXX_FLAGS=-g1
cmake --build "$build/tests" --parallel "$(nproc)"
exec ctest --test-dir "$build/tests" --output-on-failure --parallel "$(nproc)" "$@"
