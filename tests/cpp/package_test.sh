#!/bin/sh
# Tests that an installed pyfeed works after it was moved: with pkg-config and with CMake, for a program in C.
#
#   tests/cpp/package_test.sh PREFIX [compiler flags...]
set -eu
unset CDPATH
prefix=$1
shift
flags=$*

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/moved to"
cp -a "$prefix/lib" "$prefix/include" "$work/moved to/"
export LD_LIBRARY_PATH="$work/moved to/lib"

cat >"$work/main.c" <<'END'
#include <pyfeed.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    pf_handle scope = 0;
    pf_error err = PF_ERROR_INIT;
    if (pf_abi_version() != PF_ABI_VERSION || strcmp(pf_version(), PF_VERSION) != 0) return 1;
    if (pf_scope_create(0, &scope, &err) != PF_OK || pf_release(scope, &err) != PF_OK) return 2;
    puts(pf_version());
    return 0;
}
END

# The linker finds the library by the name libpyfeed.so, the loader by its SONAME. pkg-config escapes the blank in the
# directory's name; eval removes the escapes.
export PKG_CONFIG_PATH="$work/moved to/lib/pkgconfig"
version=$(pkg-config --modversion pyfeed)
eval "${CC:-cc} -std=c11 -Wall -Werror $flags -o '$work/main' '$work/main.c' $(pkg-config --cflags --libs pyfeed)"
[ "$("$work/main")" = "$version" ]
readelf -d "$work/main" | grep -q 'NEEDED.*\[libpyfeed\.so\.0\]'

cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.19)
project(moved LANGUAGES C)
find_package(pyfeed ${WANTED} CONFIG REQUIRED NO_DEFAULT_PATH PATHS ${PREFIX})
message(STATUS "found ${pyfeed_VERSION}")
add_executable(moved main.c)
target_link_libraries(moved PRIVATE pyfeed::pyfeed)
END
configure() {
	rm -rf "$work/build"
	cmake -S "$work" -B "$work/build" "-DPREFIX=$work/moved to" "-DCMAKE_C_FLAGS=$flags" "-DWANTED=$1" >"$work/log" 2>&1
}
for wanted in "" "$version" "$version;EXACT" "0.1" "0.1...<1" "0.1...$version" "0"; do
	configure "$wanted" || {
		cat "$work/log"
		echo "find_package(pyfeed $wanted) failed"
		exit 1
	}
	grep -q "found $version" "$work/log"
done
cmake --build "$work/build" >"$work/log" 2>&1 || {
	cat "$work/log"
	exit 1
}
[ "$("$work/build/moved")" = "$version" ]
for wanted in "0.999" "1.0" "0.0.1;EXACT" "0.0.1...<0.0.9" "1...<2"; do
	if configure "$wanted"; then
		echo "find_package(pyfeed $wanted) took $version"
		exit 1
	fi
done

# find_package fails with a clear message if the library of the package is missing.
rm "$work/moved to/lib/libpyfeed.so.0"
if configure ""; then
	echo "find_package took a package without a library"
	exit 1
fi
grep -q "it lacks" "$work/log"
