"""Processes and interpreters that the library cannot work in: an ImportError, never an abort or a hang."""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyfeed
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
    _loading.check_memory_limits()
    monkeypatch.setattr(_loading, "open", lambda path: io.StringIO("Max data size  1048576  unlimited  bytes\n"))
    with pytest.raises(ImportError, match="RLIMIT_DATA of 1 MiB"):
        _loading.check_memory_limits()


# ---- The distribution pyfeed, an RSS parser with a package of the same name ----


def package_copy(folder: Path, init: str | None) -> dict[str, str]:
    """A copy of the package whose __init__.py another distribution has replaced or, with None, removed."""
    shutil.copytree(Path(str(pyfeed.__file__)).parent, folder / "pyfeed", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyfeed/__init__.py").unlink()
    if init is not None:
        (folder / "pyfeed/__init__.py").write_text(init)
    for numpy_folder in Path(str(np.__file__)).parents[1].glob("numpy*"):
        (folder / numpy_folder.name).symlink_to(numpy_folder)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize("init", ["from .feed import Feed\n", "", None], ids=["replaced", "empty", "removed"])
@pytest.mark.parametrize("command", [["-c", "import pyfeed.shared"], ["-c", "import pyfeed.program"], ["-m", "pyfeed"]])
def test_the_files_of_another_distribution_are_named(tmp_path: Path, init: str | None, command: list[str]) -> None:
    environment = package_copy(tmp_path, init)
    (tmp_path / "pyfeed/feed.py").write_text("Feed = object\n")
    done = subprocess.run(
        [sys.executable, "-S", *command],
        text=True,
        capture_output=True,
        timeout=STUCK,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: pyfeed: expected the package of the distribution pyarrayfeed, found another __init__.py or none: "
        "the distribution pyfeed, an RSS parser, has a package of the same name. Both cannot be installed together: "
        "pip uninstall pyfeed, then pip install --force-reinstall pyarrayfeed"
    )


def test_the_command_line_warns_of_another_distribution(tmp_path: Path) -> None:
    metadata = tmp_path / "pyfeed-0.1.1.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pyfeed\nVersion: 0.1.1\n")
    command = [sys.executable, "-m", "pyfeed", "verify", "no such file"]
    for path, expected in ((tmp_path, 1), (tmp_path / "empty", 0)):
        environment = {**os.environ, "PYTHONPATH": str(path)}
        done = subprocess.run(command, text=True, capture_output=True, timeout=STUCK, env=environment, check=False)
        assert done.returncode == 2
        assert (
            done.stderr.count("pyfeed: warning: the distribution pyfeed 0.1.1, an RSS parser, is installed") == expected
        )
