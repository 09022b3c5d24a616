#!/bin/bash
# Builds a commit again, and compares the files: tests/wheel/same_bytes.sh FILE...
#
# The second build is that of a clone of HEAD in another folder, with another umask, other times and empty caches of the
# compilers. FILE... are outputs of `make wheels sdist-full`, by their paths relative to the checkout.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ -z "$(git status --porcelain)" ] || { echo "same bytes: expected a checkout without changes, found: $(git status --porcelain)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone=$work/a-folder-with-another-name

umask 077
git clone --quiet --no-hardlinks . "$clone"
find "$clone" -path "$clone/.git" -prune -o -exec touch -h -d 2001-02-03T04:05:06 {} +
mkdir "$clone/build"
ln -s "$PWD/build/venv" "$PWD/build/cuda" "$clone/build" # the tools are the same
export GOCACHE=$work/go ZIG_GLOBAL_CACHE_DIR=$work/zig
unset CUDA_INCLUDE CGO_CPPFLAGS # those of make in the first folder
make --no-print-directory -C "$clone" wheels sdist-full >"$work/log" 2>&1 || { tail -n 50 "$work/log" >&2; exit 1; }
for file; do
	cmp "$file" "$clone/$file" || { echo "same bytes: FAILED: the second build of $file differs" >&2; exit 1; }
	echo "same bytes: $file: $(sha256sum <"$file" | cut -d' ' -f1)"
done
