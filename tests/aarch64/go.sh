#!/bin/sh
# Runs the Go tests for ARM: go.sh [arguments of go test...]
#
# Linux runs them by qemu: see emulate.sh. The race detector of Go does not work there: "ThreadSanitizer: unsupported VMA
# range, Found 39 - Supported 48".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export GOARCH=arm64 CGO_ENABLED=1 CC="$here/../../wheels/cc.sh" CROSS_CC=aarch64-linux-gnu-gcc QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
[ $# -gt 0 ] || set -- ./...

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# fault PROGRAM SANITIZER WORDS: checks that qemu still has a fault, of which the program ends with a message
fault() {
	"$CC" "-fsanitize=$2" -o "$work/program" "$here/qemu/$1"
	! "$work/program" 2>"$work/log" || {
		echo "tests/aarch64: qemu does not have the fault of qemu/$1: run all tests in go.sh again" >&2
		exit 1
	}
	grep -q "$3" "$work/log" || {
		cat "$work/log" >&2
		echo "tests/aarch64: qemu/$1: expected '$3', found the message above" >&2
		exit 1
	}
	echo "fault: $1: $(grep "$3" "$work/log" | head -n 1)"
}
if [ "$(uname -m)" != aarch64 ]; then
	# The tests of the fake CUDA driver are also built with sanitizers.
	fault leak_checker.c address LeakSanitizer
	export LSAN_OPTIONS=detect_leaks=0
	fault address_space.c thread 'mmap at bad address'
	set -- -skip '^TestFakeOnly$/^thread$/^threads$' "$@"
fi
go test -p 1 -short -timeout 60m "$@"
