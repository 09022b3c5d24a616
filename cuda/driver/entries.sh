#!/bin/sh
# Writes entries.h, the list of the CUDA driver's entry points that are called: go generate ./cuda/driver
#
# gorgonia.org/cu calls most of them, this package the others. Run it after the release of cu or the calls of this package
# have changed. An argument names another output file. CGO_CPPFLAGS gives the folder of cuda.h; GOFLAGS select the build
# that is examined.
set -eu
cd "$(dirname "$0")"
out=$(mktemp)
trap 'rm -f "$out"' EXIT

go list -export -f '{{.ImportPath}} {{.Export}}' gorgonia.org/cu . >"$out"
while read -r path archive; do
	# nm cannot read the Go part of an archive: its errors are ignored.
	nm "$archive" 2>/dev/null | awk -v "path=$path" '{print path, $0}' || true
done <"$out" >"$out.symbols"
mv "$out.symbols" "$out"

awk '
	# package [address] type name
	$(NF - 1) ~ /[UTt]/ && $NF ~ /^cu[A-Z]/ {
		if ($(NF - 1) != "U") { if ($1 ~ /^gorgonia/) defined[$NF] = 1 }
		else { used[$NF] = 1; if ($1 !~ /^gorgonia/) ours[$NF] = 1 }
	}
	END {
		for (name in used)
			if (!(name in defined) && name != "cuInit") printf "PFD_ENTRY(%s, %d)\n", name, name in ours
	}' "$out" | LC_ALL=C sort >"$out.entries"
{
	echo '/* The entry points of the CUDA driver that are called. The second argument is 1 for those that this package calls'
	echo ' * itself: a driver without one of them is refused. Made by entries.sh. */'
	cat "$out.entries"
} >"${1:-entries.h}"
rm "$out.entries"
