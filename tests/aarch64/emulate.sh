#!/bin/sh
# Lets Linux run programs for ARM by qemu, also in a chroot, and then runs a command: emulate.sh COMMAND...
#
# Needs root, unless the machine is ARM or can run such programs already. Debian's package binfmt-support makes that
# setting permanent; this script makes it for the time of the command.
set -eu
binfmt=/proc/sys/fs/binfmt_misc
name=qemu-aarch64

if [ "$(uname -m)" != aarch64 ] && ! grep -qs '^flags: .*F' "$binfmt/$name"; then
	[ "$(id -u)" = 0 ] || {
		echo "tests/aarch64: only root can register qemu with the kernel; run this as root" >&2
		exit 1
	}
	[ -e "$binfmt/register" ] || mount -t binfmt_misc binfmt_misc "$binfmt"
	[ ! -e "$binfmt/$name" ] || echo -1 >"$binfmt/$name" # without F, it does not work in a chroot
	# An ELF file of 64 bits, executable or shared, for machine 0xb7. F: the kernel opens qemu now, so that a chroot need
	# not contain it.
	printf '%s' ":$name:M::"'\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:OCF' >"$binfmt/register"
	trap 'echo -1 >"$binfmt/$name"' EXIT
fi
"$@"
