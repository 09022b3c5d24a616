# shellcheck shell=bash
# Sourced by the checks of a wheel: prints what they found, and ends the script that found something else.

say() { printf 'wheel: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
# expect WHAT EXPECTED FOUND
expect() {
	[ "$2" = "$3" ] || die "$1: expected '$2', found '$3'"
	say "$1: $3"
}
