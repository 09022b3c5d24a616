#!/bin/sh
# Lists the entry points of the CUDA driver that are called, in entries.h: go generate ./cuda/driver
#
# Those of gorgonia.org/cu, which are the many, and our own. Another release of cu, or a call more of ours, needs it. With
# an argument it writes there. CGO_CPPFLAGS says where cuda.h is; GOFLAGS choose the build that is looked at.
set -eu
cd "$(dirname "$0")"
out=$(mktemp)
trap 'rm -f "$out"' EXIT

go list -export -f '{{.ImportPath}} {{.Export}}' gorgonia.org/cu . >"$out"
while read -r path archive; do
	# The half of an archive that is Go's is none of nm's business.
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
	echo '/* The entry points of the driver that are called, and whether we call them: without those there is nothing to do.'
	echo ' * Made by entries.sh. */'
	cat "$out.entries"
} >"${1:-entries.h}"
rm "$out.entries"
