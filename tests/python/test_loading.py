"""Processes and interpreters that the library cannot work in: an ImportError, never an abort or a hang."""

from __future__ import annotations

import io
import resource
import subprocess
import sys

import pytest

from pyfeed import _loading

from .support import STUCK

# The interfaces of CPython: 3.11 and 3.12 have the first, 3.13 and later the second.
IN_SUB = """
try:
    import _xxsubinterpreters as interpreters
    sub = interpreters.create(isolated=False)
    answer = lambda code: interpreters.run_string(sub, code)
except ImportError:
    import _interpreters as interpreters
    sub = interpreters.create("legacy")
    answer = lambda code: interpreters.run_string(sub, code)

IMPORT = '''
try:
    import {0}
except ImportError as error:
    print(error, flush=True)
else:
    print("imported", flush=True)
'''
"""


def python(code: str, **limits: int) -> subprocess.CompletedProcess[str]:
    """A process of its own, with limits by the names of `resource`."""

    def limit() -> None:
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, name), (most, most))

    return subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=STUCK, preexec_fn=limit, check=False
    )


# ---- Sub-interpreters ----


@pytest.mark.parametrize("package", ["pyfeed", "pyfeed_worker"])
@pytest.mark.parametrize("first", ["", "import {0}\n"])
def test_a_sub_interpreter_is_refused_and_the_exit_does_not_wait_for_it(package: str, first: str) -> None:
    twice = f"answer(IMPORT.format('{package}'))\n" * 2
    done = python(f"{first.format(package)}{IN_SUB}{twice}import {package}\nprint('end')\n")
    sentence = (
        f"{package}: expected the main interpreter, found sub-interpreter 1: sub-interpreters are not supported, "
        "use threads or processes"
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [sentence, sentence, "end"]), done.stderr


# Used to hang: the exit of the interpreter waited for threads that the living sub-interpreter had begun.
def test_a_feed_in_a_sub_interpreter_that_is_alive_at_the_exit() -> None:
    done = python(
        IN_SUB
        + """
answer('''
try:
    import pyfeed, numpy as np
    reader, queue = pyfeed.py_array_reader(4, [(2,)])
    queue.produce(lambda worker: ((np.zeros(2),) for _ in range(3)))
    print(len(list(reader)), flush=True)
except ImportError as error:
    print(error.args[0].partition(":")[0], flush=True)
''')
import numpy as np, pyfeed
reader, queue = pyfeed.py_array_reader(4, [(2,)])
queue.produce(lambda worker: ((np.zeros(2),) for _ in range(3)))
print(len(list(reader)))
"""
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["pyfeed", "3"]), done.stderr


# ---- Limits ----

USE = """
import sys
try:
    import pyfeed
except ImportError as error:
    print(error)
    sys.exit()
import numpy as np
reader, queue = pyfeed.py_array_reader(4, [(2,)])
queue.produce(lambda worker: ((np.zeros(2),) for _ in range(9)))
print(sum(len(x) for (x,) in reader.shuffle(4).batch(2).double_buffer()))
"""


@pytest.mark.parametrize("megabytes", [160, 400, 850, 1350, 2000])
def test_too_little_address_space_is_an_import_error(megabytes: int) -> None:
    done = python(USE, RLIMIT_AS=megabytes << 20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "pyfeed: expected room for 2048 MiB of memory, which its library and Go's runtime map, found less under this "
        f"process's RLIMIT_AS of {megabytes} MiB: raise the limit (ulimit -v)\n"
    )


@pytest.mark.parametrize("megabytes", [120, 160, 200])
def test_too_little_data_is_an_import_error(megabytes: int) -> None:
    done = python(USE, RLIMIT_DATA=megabytes << 20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "pyfeed: expected room for 256 MiB of memory, which its library and Go's runtime map, found less under this "
        f"process's RLIMIT_DATA of {megabytes} MiB: raise the limit (ulimit -d)\n"
    )


def test_enough_room_under_a_limit() -> None:
    done = python(USE, RLIMIT_AS=16 << 30, RLIMIT_DATA=8 << 30)
    assert (done.returncode, done.stdout) == (0, "9\n"), done.stderr


def test_a_limit_that_the_system_does_not_list_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loading, "_fits", lambda size, access: False)
    monkeypatch.setattr(_loading, "open", lambda path: io.StringIO("Limit  Soft Limit\n"), raising=False)
    _loading.check_room()
    monkeypatch.setattr(_loading, "open", lambda path: io.StringIO("Max data size  1048576  unlimited  bytes\n"))
    with pytest.raises(ImportError, match="RLIMIT_DATA of 1 MiB"):
        _loading.check_room()
