#!/bin/bash
# Installs a wheel in the chroot for ARM and runs the Python tests there: pytest.sh CHROOT WHEEL LOGS [FILE...]
#
# FILE is the name of a file in tests/python; without one, all run. Each file runs in a process of its own, so that a
# crash costs one file, and as many run at a time as the machine has processors. Emulated calls take 10 to 30 times as
# long, so the time limits are raised. Tests that fail by a fault of qemu are in deselected.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
root=$(realpath "$1")
wheel=$(realpath "$2")
mkdir -p "$3"
logs=$(realpath "$3")
shift 3

# The mounts end with this process.
if [ -z "${TESTS_IN_NAMESPACE-}" ]; then
	TESTS_IN_NAMESPACE=1 exec unshare --mount "$here/pytest.sh" "$root" "$wheel" "$logs" "$@"
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm" # tests check that nothing is left in it

# in_chroot COMMAND: runs a shell command in the copy of the sources
in_chroot() {
	chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/opt/venv/bin:/usr/bin:/bin \
		CGO_CPPFLAGS=-I/opt/cuda PYFEED_TEST_SLOWNESS="${PYFEED_TEST_SLOWNESS:-10}" \
		PIP_NO_INDEX=1 PIP_FIND_LINKS=/opt/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 sh -c "cd /src && $1"
}

rm -rf "$root/src" "$root/opt/cuda" "$logs"/*.log "$logs/passed" "$logs/failed"
mkdir "$root/src" "$root/opt/cuda"
tar -C "$source" --exclude=./build --exclude=./dist --exclude=./.git --exclude=__pycache__ -c . | tar -C "$root/src" -x
cp "${CUDA_INCLUDE:?expected the folder of cuda.h}/cuda.h" "$root/opt/cuda"
rm -f "$root"/opt/pyarrayfeed-*.whl
cp "$wheel" "$root/opt"
in_chroot "pip install --quiet --force-reinstall --no-deps /opt/${wheel##*/}"

in_chroot "PIP_FIND_LINKS='/opt/wheels /opt/oldest' tests/wheel/check_installed.sh /opt/${wheel##*/}"

for script in "$here"/qemu/*.py; do
	name=$(basename "$script")
	in_chroot "timeout 60 python tests/aarch64/qemu/$name" || {
		echo "tests/aarch64: qemu does not have the fault of qemu/$name: select its tests in deselected.txt again" >&2
		exit 1
	}
done

deselected=$(sed -n 's/^tests/--deselect tests/p' "$here/deselected.txt" | tr '\n' ' ')
run_file() {
	local begin=$SECONDS status=passed
	in_chroot "python -m pytest -p no:cacheprovider --timeout=1200 -v $deselected tests/python/$1" >"$logs/$1.log" 2>&1 </dev/null || status=failed
	echo "$1: $(tail -n 1 "$logs/$1.log" | tr -d =), $((SECONDS - begin)) s" | tee -a "$logs/$status"
}
export root logs deselected
export -f run_file in_chroot

files=("$@") # the largest first, so that no processor waits for one long file at the end
[ $# -gt 0 ] || mapfile -t files < <(cd "$source/tests/python" && wc -c test_*.py | sort -rn | awk '$2 != "total" { print $2 }')
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_file {}'
count() { tail -qn 1 "$logs"/*.log | grep -oE "[0-9]+ $1" | awk '{ n += $1 } END { print n + 0 }'; }
echo "Python tests for ARM: $(count passed) passed, $(count failed) failed, $(count error) errors, $(count skipped) skipped, $(count deselected) deselected"
[ ! -e "$logs/failed" ]
