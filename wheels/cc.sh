#!/bin/sh
# The C compiler of `make wheels`: the clang of zig, for the target ZIG_TARGET, such as x86_64-linux-gnu.2.17. zig brings
# the headers of that glibc, and stubs that contain its symbols only. The tests on ARM name Debian's cross compiler in
# CROSS_CC instead.
set -eu
for argument; do
	shift
	case $argument in
	# gorgonia.org/cu and Python add folders of this machine, whose files do not belong to the target.
	-I/usr/include | -I/usr/local/cuda* | -I/opt/cuda* | -L/usr/lib/* | -L/usr/local/* | -L/opt/cuda*) ;;
	*) set -- "$@" "$argument" ;;
	esac
done
[ -z "${CROSS_CC:-}" ] || exec "$CROSS_CC" "$@"
# Unlike gcc, zig keeps frame pointers if it is not told to omit them.
exec python -m ziglang cc -target "$ZIG_TARGET" -fomit-frame-pointer "$@" ${PYCONFIG:+"-I$PYCONFIG"}
