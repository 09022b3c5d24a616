#!/bin/sh
# A program that was built against the header of an earlier release runs with a library whose structs have grown:
#
#     tests/abi/appended.sh FOLDER CALLER [flags of capi/build.sh...]
#
# Builds, in FOLDER, the library as of now with fields appended to every struct of pyfeed.h that has a size, and runs CALLER
# (caller.c) with it. The header is replaced for this build only (go build -overlay).
set -eu
unset CDPATH
folder=$1
caller=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)

mkdir -p "$folder/files"
folder=$(cd "$folder" && pwd)
awk '
	/^typedef struct / { sized = 0 }
	/^    uint32_t size;/ { sized = 1 }
	/^} pf_[a-z_]*;$/ && sized { print "    uint64_t appended[5];"; grown++ }
	{ print }
	END { if (grown < 10) exit 1 }
' "$root/capi/pyfeed.h" >"$folder/pyfeed.h"
printf '{"Replace": {"%s": "%s"}}\n' "$root/capi/pyfeed.h" "$folder/pyfeed.h" >"$folder/overlay.json"
"$root/capi/build.sh" "$folder/libpyfeed.so.0" -overlay "$folder/overlay.json" "$@"
LD_LIBRARY_PATH=$folder "$caller" "$folder/files"
