#!/bin/sh
# Checks that the Go code for ARM uses the instructions that ARM has for a purpose: instructions.sh BUILD
#
# The library has no symbols, so the checks read a test binary, which contains the same packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
binary=$(cd "$1" && pwd)/recordio.test
cd "$here/../.."
export GOARCH=arm64 CGO_ENABLED=1 CC="$here/../../wheels/cc.sh" CROSS_CC=aarch64-linux-gnu-gcc
go test -c -o "$binary" ./readers/recordio

# expect WHAT FUNCTION PATTERN: the disassembly of the function has the pattern
expect() {
	lines=$(go tool objdump -s "^$2(\.abi0)?\$" "$binary" | grep -cE "$3" || true)
	[ "$lines" -gt 0 ] || {
		echo "instructions: $1: expected $3 in $2, found none" >&2
		exit 1
	}
	echo "instructions: $1: $2 has $lines lines with $3"
}
expect "CRC-32C" hash/crc32.castagnoliUpdate 'CRC32CX'
expect "CRC-32" hash/crc32.ieeeUpdate 'CRC32X'
expect "snappy" github.com/klauspost/compress/s2.s2Decode 'decode_arm64\.s'
expect "hashes of zstd" github.com/klauspost/compress/zstd/internal/xxhash.writeBlocks 'xxhash_arm64\.s'
expect "order of loads" github.com/pyfeed/pyfeed/internal/fence.Loads 'DMB'
