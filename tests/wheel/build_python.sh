#!/bin/sh
# Builds CPython for systems.py: build_python.sh TARBALL PREFIX [OPTION of configure ...]
#
# This runs in a chroot of the oldest system. PREFIX then serves in newer systems too, because it contains copies of the
# libraries that their releases have in other versions: OpenSSL, libffi, zlib, bzip2 and lzma. So it needs only glibc.
set -eu

tarball=$1 prefix=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xf "$tarball" -C "$work" --strip-components=1
cd "$work"
# The kernel's headers of the oldest system do not have this number of a system call: os.pidfd_open would be missing.
export CFLAGS_NODIST=-D__NR_pidfd_open=434
./configure -q --prefix="$prefix" "$@" LDFLAGS_NODIST="-Wl,-rpath,$prefix/lib"
make -s -j"$(nproc)"
make -s install TESTSUBDIRS= # the tests of CPython are 200 MB
rm -f "$prefix"/lib/*.a

# ldd prints "libffi.so.6 => /usr/lib/x86_64-linux-gnu/libffi.so.6 (0x…)".
ldd "$prefix"/lib/python3*/lib-dynload/*.so | sed -nE 's/.* => (.*\/lib(ssl|crypto|ffi|z|bz2|lzma)\.so[^ ]*) .*/\1/p' |
	sort -u | xargs -I{} cp -L {} "$prefix/lib"
"$prefix/bin/python3" -c 'import bz2, ctypes, lzma, os, ssl, zlib; os.pidfd_open'
