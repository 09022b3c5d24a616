#!/bin/bash
# Checks that a wheel works on a machine without Go and without a compiler: tests/wheel/check_installed.sh WHEEL
#
# check.sh runs this for a wheel of this machine, and make test-aarch64 in a system for ARM. CC is the compiler of the
# last check.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
wheel=$(realpath "$1")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/wheel/report.sh
source "$here/report.sh"

# An empty environment. From here on, PATH contains only its own programs.
"$python" -m venv "$work/venv"
clean=(env -i HOME="$work" PATH="$work/venv/bin" LANG=C.UTF-8)
"$work/venv/bin/python" -m pip install --quiet --only-binary=:all: "$wheel"
cd "$work"
for tool in go cc gcc clang; do
	! "${clean[@]}" "$work/venv/bin/python" -c "import shutil, sys; sys.exit(shutil.which('$tool') is None)" ||
		die "$tool is still on PATH"
done
"${clean[@]}" "$work/venv/bin/python" "$here/push_pop.py"

# A file that is not a library stands in for the CUDA driver, whether or not the machine has one. The reason is then the
# message of the loader.
mkdir "$work/driver"
echo "no driver" >"$work/driver/libcuda.so.1"
expect "reason why there is no device" "$work/driver/libcuda.so.1: file too short" \
	"$("${clean[@]}" LD_LIBRARY_PATH="$work/driver" "$work/venv/bin/python" -c 'import pyfeed; print(pyfeed.cuda.reason())')"

# The package requires NumPy 1.23 or newer, but the extension is built with a newer NumPy.
if "$work/venv/bin/python" -m pip install --quiet --only-binary=:all: 'numpy==1.23.*' 2>/dev/null; then
	"${clean[@]}" "$work/venv/bin/python" "$here/push_pop.py"
	say "works with NumPy 1.23 too"
else
	say "not tested with NumPy 1.23, which has no wheel for $("$python" --version)"
fi

# A C program can be built against the wheel alone.
include=$("$work/venv/bin/python" -c 'import pyfeed; print(pyfeed.get_include())')
lib=$("$work/venv/bin/python" -c 'import pyfeed; print(pyfeed.get_library_dir())')
"${CC:-cc}" -Wall -Wextra -Werror -I "$include" "$here/version.c" -L "$lib" -lpyfeed -Wl,-rpath,"$lib" -o "$work/version"
expect "a C program built against the wheel" "$("$work/venv/bin/python" -c 'import pyfeed; print(pyfeed.__version__)')" "$("$work/version")"
