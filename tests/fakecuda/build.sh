#!/bin/sh
# Builds the fake driver: build.sh FOLDER makes FOLDER/libcuda.so.1. CC is the compiler. CGO_CPPFLAGS or CGO_CFLAGS
# must have the -I flag for cuda.h. CFLAGS has further flags, such as -fsanitize=thread.
set -e
here=$(dirname "$0")
: "${1:?expected the folder for libcuda.so.1}" "${CC:=cc}"
flags="${CGO_CPPFLAGS-} ${CGO_CFLAGS-} ${CFLAGS-}"
if ! echo '#include <cuda.h>' | $CC $flags -E - >/dev/null 2>&1; then
    echo "tests/fakecuda/build.sh: no cuda.h: expected CGO_CPPFLAGS=-I with its folder, found \"${CGO_CPPFLAGS-}\"" >&2
    exit 1
fi
mkdir -p "$1"
# nodelete: the library cannot be unloaded, since its threads continue. It is built under a temporary name and renamed,
# because another process may be loading it.
new=$(mktemp "$1/libcuda.XXXXXX")
trap 'rm -f "$new"' EXIT
$CC -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -shared -pthread -fvisibility=hidden $flags \
    -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,-z,defs -o "$new" "$here"/libcuda/*.c
chmod 755 "$new"
mv "$new" "$1/libcuda.so.1"
