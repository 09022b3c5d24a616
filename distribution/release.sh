#!/bin/bash
# Builds and checks all files of a release, in dist/release. Uploads nothing. `make release` calls it.
#
# dist/release/pypi has the files for the package index. Beside it are the source distribution with all Go modules, the
# notes, the recipe of conda, and SHA256SUMS, which covers all of them.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=build/release/bin
out=dist/release

say() { printf 'release: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }

# What can be wrong before anything is built.
git rev-parse --git-dir >/dev/null 2>&1 || die "expected a checkout of git, found none in $PWD"
[ -z "$(git status --porcelain)" ] || die "expected a checkout without changes, found:"$'\n'"$(git status --porcelain)"
version=$(sed -n 's/^#define PF_VERSION "\(.*\)"$/\1/p' capi/pyfeed.h)
[ -n "$version" ] || die "capi/pyfeed.h: expected a line '#define PF_VERSION \"0.1.0\"', found none"
for tag in $(git tag --points-at HEAD 'v*'); do
	[ "$tag" = "v$version" ] || die "expected the tag v$version, because capi/pyfeed.h states $version, found $tag"
done
notes=$(python3 -m distribution.notes "$version") || die "no notes, see the error above"
header=tests/abi/pyfeed-${version%.*}.h
cmp capi/pyfeed.h "$header" || die "$header: expected a copy of capi/pyfeed.h, found another file or none"
say "$version, commit $(git rev-parse HEAD)"

make --no-print-directory wheels sdist-full lint-ci
rm -rf "$out"
mkdir -p "$out/pypi"
sdist=pyarrayfeed-$version.tar.gz
cp dist/wheels/*.whl "dist/wheels/$sdist" "$out/pypi"
cp "dist/full/$sdist" "$out/pyarrayfeed-$version-full.tar.gz"
printf '%s\n' "$notes" >"$out/notes.md"
sha256=$(sha256sum <"dist/wheels/$sdist" | cut -d' ' -f1)
url=https://github.com/pyfeed/pyfeed/releases/download/v$version/$sdist
sed -e "s,^  version: .*,  version: $version," -e "s,^  path: \.\./\.\.$,  url: $url," \
	-e "s,^  use_gitignore: true$,  sha256: $sha256," -e '/^#/d' recipes/conda/recipe.yaml >"$out/recipe.yaml"

"$tools/twine" check --strict "$out"/pypi/*
"$tools/python" tests/wheel/sbom.py "$out"/pypi/*.whl
"$tools/python" tests/wheel/recipe.py "$out/recipe.yaml" "$version"
grep -q "sha256: $sha256" "$out/recipe.yaml" || die "recipe.yaml: expected the hash of $sdist, found none"
tests/wheel/same_bytes.sh dist/wheels/* "dist/full/$sdist"
files=$(cd "$out" && find . -type f -printf '%P\n' | LC_ALL=C sort)
# shellcheck disable=SC2086
(cd "$out" && sha256sum $files | tee SHA256SUMS)
say "all checks passed; the files are in $out"
