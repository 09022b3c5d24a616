#!/bin/sh
# Installs a built library, and the files to build programs against it: cmake/install.sh LIBRARY PREFIX
#
#   PREFIX/lib/libpyfeed.so.0           LIBRARY, under its SONAME
#   PREFIX/lib/libpyfeed.so             a symbolic link, for -lpyfeed
#   PREFIX/include/pyfeed.h             C
#   PREFIX/include/pyfeed.hpp           C++17
#   PREFIX/include/pyfeed_program.hpp   C++17, for programs and kernels
#   PREFIX/include/pyfeed/              the headers that both include
#   PREFIX/lib/cmake/pyfeed/            find_package(pyfeed)
#   PREFIX/lib/pkgconfig/pyfeed.pc      pkg-config pyfeed
#
# No file contains the path PREFIX, so the folder may be moved afterwards. The script works from any directory.
set -eu
unset CDPATH

[ $# -eq 2 ] || {
	echo "usage: cmake/install.sh LIBRARY PREFIX" >&2
	exit 1
}
library=$1
prefix=$2
soname=libpyfeed.so.0
here=$(cd "$(dirname "$0")" && pwd)
capi=$here/../capi

[ -f "$library" ] || {
	echo "cmake/install.sh: there is no library $library" >&2
	exit 1
}
version=$(sed -n 's/^#define PF_VERSION "\([0-9.]*\)"$/\1/p' "$capi/pyfeed.h")
[ -n "$version" ] || {
	echo "cmake/install.sh: $capi/pyfeed.h has no line #define PF_VERSION \"...\"" >&2
	exit 1
}

# Copies a file under a temporary name and renames it. A process that has mapped the old library keeps the old file.
put() {
	install -m "$1" "$2" "$3.new"
	mv -f "$3.new" "$3"
}
fill() {
	sed -e "s/@PF_VERSION@/$version/g" -e "s/@PF_LIBRARY@/$soname/g" "$here/$1.in" >"$2"
	chmod 644 "$2"
}

mkdir -p "$prefix/lib/cmake/pyfeed" "$prefix/lib/pkgconfig" "$prefix/include/pyfeed"
put 755 "$library" "$prefix/lib/$soname"
ln -sf "$soname" "$prefix/lib/libpyfeed.so"
put 644 "$capi/pyfeed.h" "$prefix/include/pyfeed.h"
put 644 "$capi/pyfeed.hpp" "$prefix/include/pyfeed.hpp"
put 644 "$capi/pyfeed_program.hpp" "$prefix/include/pyfeed_program.hpp"
for part in "$capi"/pyfeed/*.hpp; do
	put 644 "$part" "$prefix/include/pyfeed/${part##*/}"
done
fill pyfeedConfig.cmake "$prefix/lib/cmake/pyfeed/pyfeedConfig.cmake"
fill pyfeedConfigVersion.cmake "$prefix/lib/cmake/pyfeed/pyfeedConfigVersion.cmake"
fill pyfeed.pc "$prefix/lib/pkgconfig/pyfeed.pc"
