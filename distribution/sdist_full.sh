#!/bin/sh
# Adds the Go modules to a source distribution, in vendor/: distribution/sdist_full.sh SDIST
#
# The result builds without a network, if setuptools, NumPy, Go, a C compiler and a cuda.h are there. It has the same
# bytes in any folder. python3 and go come from PATH.
set -eu

sdist=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tar -xzf "$sdist" -C "$work"
folder=$(ls "$work")
(cd "$work/$folder" && go mod vendor)
tar -czf "$work/out.tar.gz" -C "$work" "$folder"
PYTHONPATH=$root python3 -c '
import sys
from pathlib import Path
from distribution import archives
archives.normalize(Path(sys.argv[1]))' "$work/out.tar.gz"
mv "$work/out.tar.gz" "$sdist"
