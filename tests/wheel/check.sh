#!/bin/bash
# Checks a built wheel: tests/wheel/check.sh WHEEL
#
# It checks the platform tag of the wheel, which libraries its binaries need and which symbols they export. If the wheel
# is for this machine, check_installed.sh then checks that it works. Needs auditwheel, abi3audit and go on PATH,
# and binutils.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/wheel/report.sh
source "$here/report.sh"
dynamic() { readelf -dW "$1" | sed -nE "s/.*\(($2)\).*\[(.*)\]/\2/p" | sort | xargs; }
# The libraries that a binary needs. libpthread and libdl are parts of glibc, which became parts of libc in 2.34.
needed() { dynamic "$1" NEEDED | sed -E 's/(libpthread\.so\.0|libdl\.so\.2) ?//g; s/ *$//'; }

say "$(basename "$wheel"), $(stat -c %s "$wheel") bytes"
"$python" -m zipfile -e "$wheel" "$work/wheel"
package=$work/wheel/pyfeed
library=$package/lib/libpyfeed.so.0
IFS=- read -r _ _ version abi platform <<<"$(basename "$wheel" .whl)"
case $abi in # a wheel for free-threaded Python is for one version, and its extensions have the name of that
abi3) native=_native.abi3.so ;;
cp3*t) native=_native.cpython-${version#cp}t-${platform#manylinux_*_*_}-linux-gnu.so ;;
*) die "ABI tag: expected abi3 or one such as cp314t, found $abi" ;;
esac
extension=$package/$native
worker=$work/wheel/pyfeed_worker/$native

# One library with one SONAME: a second copy in the wheel could become a second Go runtime in the process.
expect "ELF files" "pyfeed/$native pyfeed/lib/libpyfeed.so.0 pyfeed_worker/$native" \
	"$(cd "$work/wheel" && LC_ALL=C grep -rla $'^\x7fELF' . | sed 's,^\./,,' | sort | xargs)"
expect "SONAME of the library" libpyfeed.so.0 "$(dynamic "$library" SONAME)"
expect "the library needs" libc.so.6 "$(needed "$library")"
expect "the extension needs, apart from libc" libpyfeed.so.0 \
	"$(needed "$extension" | sed 's/libc\.so\.6 *//')"
# The library opens the CUDA driver on first use. A library that links the driver could not be loaded without one.
expect "symbols of the CUDA driver that the library needs" "" "$(nm -D --undefined-only "$library" | grep -o ' cu[A-Z].*' || true)"
# shellcheck disable=SC2016
expect "search path of the extension" '$ORIGIN/lib' "$(dynamic "$extension" 'RPATH|RUNPATH')"
expect "the extension exports" PyInit__native "$(nm -D --defined-only "$extension" | cut -d' ' -f3)"
# Workers may be forked and killed, so their extension must not contain Go.
expect "the workers' extension needs" libc.so.6 "$(needed "$worker")"
expect "search path of the workers' extension" "" "$(dynamic "$worker" 'RPATH|RUNPATH')"
expect "the workers' extension exports" PyInit__native "$(nm -D --defined-only "$worker" | cut -d' ' -f3)"
expect "exports of the library that are not pf_*" "" \
	"$(nm -D --defined-only "$library" | cut -d' ' -f3 | grep -v '^pf_' || true)"
expect "functions of pyfeed.h" \
	"$(sed 's,/\*.*\*/,,' "$package/include/pyfeed.h" | grep -o '^PF_API .*' | grep -o 'pf_[a-z0-9_]*(' | tr -d '(' | sort | xargs)" \
	"$(nm -D --defined-only "$library" | cut -d' ' -f3 | sort | xargs)"
size=$(stat -c %s "$library") # the bound is near the size, so that growth is noticed; the library may have 16 MB
[ "$size" -lt $((11 << 20)) ] || die "size of the library: expected less than 11 MiB, found $size bytes"
! readelf -SW "$library" | grep -q '\.symtab' || die "the library is not stripped"
say "size of the library: $size bytes, stripped"
# Linux loads a segment only if it is aligned to the page size. On ARM, a page may have 64 KiB.
case $platform in *_aarch64) pages=0x10000 ;; *) pages=0x1000 ;; esac
expect "alignment of the segments" "$pages" \
	"$(readelf -lW "$library" "$extension" "$worker" | awk '$1 == "LOAD" { print $NF }' | sort -u | xargs)"

# The SBOM lists the Go modules that the go command finds in the library.
expect "Go modules in the SBOM" "$(go version -m "$library" | awk '$1 == "dep" {print $2 "@" $3}' | sort | xargs)" \
	"$("$python" -c '
import json, pathlib, sys
(path,) = pathlib.Path(sys.argv[1]).glob("*.dist-info/sboms/*.cdx.json")
components = json.loads(path.read_text())["components"]
print(*sorted(c["name"] + "@" + c["version"] for c in components if "hashes" in c))' "$work/wheel")"

[ "$abi" != abi3 ] || abi3audit --strict --verbose "$wheel"
# The platform tag that auditwheel derives from the binaries must be the tag in the wheel's name.
auditwheel show "$wheel" | tee "$work/auditwheel"
tr '\n' ' ' <"$work/auditwheel" | grep -q "platform tag: \"$platform\"" ||
	die "platform tag: expected $platform, found another, see the report of auditwheel above"

if [[ $platform == *_$(uname -m) ]]; then
	"$here/check_installed.sh" "$wheel"
else
	say "not installed, because this machine is $(uname -m): make test-aarch64 runs check_installed.sh for ARM"
fi
say "all checks passed"
