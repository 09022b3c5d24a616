#!/bin/sh
# The C compiler of the Go tests for ARM: Debian's cross compiler, without the folders of this machine that
# gorgonia.org/cu adds.
set -eu
for argument; do
	shift
	case $argument in
	-I/usr/include | -I/usr/local/cuda* | -I/opt/cuda* | -L/usr/lib/* | -L/usr/local/* | -L/opt/cuda*) ;;
	*) set -- "$@" "$argument" ;;
	esac
done
exec aarch64-linux-gnu-gcc "$@"
