#!/bin/sh
# Builds the fake driver: build.sh FOLDER makes FOLDER/libcuda.so.1. CC is the compiler; CGO_CPPFLAGS or CGO_CFLAGS
# say where cuda.h is; CFLAGS is for whatever else (-fsanitize=thread).
set -e
here=$(dirname "$0")
: "${1:?expected the folder for libcuda.so.1}" "${CC:=cc}"
flags="${CGO_CPPFLAGS-} ${CGO_CFLAGS-} ${CFLAGS-}"
if ! echo '#include <cuda.h>' | $CC $flags -E - >/dev/null 2>&1; then
    echo "tests/fakecuda/build.sh: no cuda.h: expected CGO_CPPFLAGS=-I with its folder, found \"${CGO_CPPFLAGS-}\"" >&2
    exit 1
fi
mkdir -p "$1"
# It cannot be unloaded, as the driver cannot: its threads go on. Under another name first: somebody may be loading it.
new=$(mktemp "$1/libcuda.XXXXXX")
trap 'rm -f "$new"' EXIT
$CC -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -shared -pthread -fvisibility=hidden $flags \
    -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,-z,defs -o "$new" "$here"/libcuda/*.c
chmod 755 "$new"
mv "$new" "$1/libcuda.so.1"
