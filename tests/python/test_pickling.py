"""Worker processes that run functions of a notebook or of a prompt."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .support import STUCK, Process, run_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by memfd")

# Each statement with a body ends with an empty line, as at a prompt.
PREAMBLE = """
import multiprocessing, os, sys
import numpy as np
import pyfeed
from pyfeed.shared import SharedFeedQueue

def queue():
    return SharedFeedQueue([()], dtypes=["float64"])

def refused(*args, **options):
    try:
        shared = queue()
        shared.start(*args, **options)
    except pyfeed.errors.ArgumentTypeError as error:
        return error, shared.stats()["failed"]

"""
WITHOUT_CLOUDPICKLE = 'sys.modules["cloudpickle"] = None\n'


def prompt(program: str, *options: str) -> list[str]:
    """Run a program at the prompt of an interpreter; return the lines that it prints, all of which begin with "> "."""
    done = subprocess.run(
        [sys.executable, "-i", "-q", *options],
        input=PREAMBLE + textwrap.dedent(program),
        capture_output=True,
        text=True,
        timeout=STUCK,
        env={**os.environ, "PYTHONSTARTUP": "", "PYTHON_BASIC_REPL": "1"},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return [line.removeprefix("> ") for line in done.stdout.splitlines() if line.startswith("> ")]


CALLS = {  # targets, and their arguments
    "a function": ("work", "(10,)"),
    "a lambda": ("lambda producer, worker: producer.push((np.float64(30),))", "()"),
    "a closure": ("scaled(3)", "()"),
    "a generator function": ("yields", "(10,)"),
    "a method": ("Worker(10).work", "()"),
    "a callable object": ("Worker(10)", "()"),
    "a partial": ("functools.partial(work, by=10)", "()"),
    "an object as an argument": ("takes", "(Worker(10),)"),
    "persistent workers": ("work", "(10,), persistent=True"),
}


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_functions_of_a_prompt(method: str) -> None:
    out = prompt(
        textwrap.dedent("""
        import functools
        factor = 3.0
        def work(producer, worker, by):
            producer.push((np.float64(factor * by),))

        def yields(worker, by):
            yield (np.float64(factor * by),)

        def scaled(factor):
            def work(producer, worker):
                producer.push((np.float64(factor * 10),))
            return work

        class Worker:
            def __init__(self, by):
                self.by = by
            def work(self, producer, worker):
                work(producer, worker, self.by)
            __call__ = work

        def takes(producer, worker, other):
            assert isinstance(other, Worker)
            other.work(producer, worker)

        """)
        + "".join(
            f"shared = queue(); _ = shared.start({target}, args={args}, method={method!r})\n"
            f"print('> {name}', [float(x) for x, in shared])\n"
            for name, (target, args) in CALLS.items()
        )
    )
    assert out == [f"{name} [30.0]" for name in CALLS]


def test_locks_and_pipes_of_multiprocessing_are_arguments_at_a_prompt() -> None:
    out = prompt(
        """
        def work(producer, worker, lock, pipe):
            with lock:
                pipe.send(("from the worker", worker))
            producer.push((np.float64(1),))

        context = multiprocessing.get_context("spawn")
        lock, (receives, sends) = context.Lock(), context.Pipe(duplex=False)
        shared = queue(); _ = shared.start(work, (lock, sends))
        print(">", len(list(shared)), receives.recv())
        """
    )
    assert out == ["1 ('from the worker', 0)"]


def test_a_worker_of_a_prompt_has_no_go_in_it() -> None:
    out = prompt(
        """
        def work(producer, worker):
            import sys
            producer.push((np.float64("pyfeed" in sys.modules or "libpyfeed" in open("/proc/self/maps").read()),))

        shared = queue(); _ = shared.start(work)
        print(">", [float(x) for x, in shared])
        """
    )
    assert out == ["[0.0]"]


def test_a_replaced_worker_of_a_prompt() -> None:
    out = prompt(
        """
        import signal, warnings
        warnings.simplefilter("ignore")
        def work(producer, worker):
            import os
            producer.push((np.float64(os.getpid()),))

        shared = queue()
        (process,) = shared.start(work, persistent=True)
        first = [int(x) for x, in shared]
        os.kill(process.pid, signal.SIGKILL); process.join()
        _ = shared.reopen()
        second = [int(x) for x, in shared]
        print(">", first == [process.pid], len(second), first != second)
        """
    )
    assert out == ["True 1 True"]


MISSING = (
    "target, args: expected what a worker process can import, found {}, which was defined in a notebook or at a "
    "prompt: install cloudpickle (pip install pyarrayfeed[notebook]), move the code to a module, or use "
    'method="fork"'
)


def test_without_cloudpickle_the_error_names_the_cures() -> None:
    """The queue stays usable: no pass has failed."""
    out = prompt(
        WITHOUT_CLOUDPICKLE
        + """
import functools, operator
def work(producer, worker):
    producer.push((np.float64(1),))

class Config:
    pass

def yields(worker):
    yield (np.float64(1),)

print("> %s %s" % refused(work))
print("> %s %s" % refused(yields))
print("> %s %s" % refused(functools.partial(work)))
print("> %s %s" % refused(operator.add, (Config(),)))
print("> %s %s" % refused(operator.add, ([Config],), method="forkserver"))
shared = queue()
_ = shared.start(work, method="fork")
print(">", len(list(shared)))
"""
    )
    found = ["work", "yields", "work", "Config", "Config"]
    assert out == [*(f"{MISSING.format(name)} False" for name in found), "1"]


def test_functions_of_modules_need_no_cloudpickle_at_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "my_workers.py").write_text(
        "import numpy as np\n\n\ndef work(producer, worker):\n    producer.push((np.float64(worker),))\n"
    )
    out = prompt(
        WITHOUT_CLOUDPICKLE
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
import my_workers
shared = queue()
_ = shared.start(my_workers.work)
print(">", [float(x) for x, in shared])
"""
    )
    assert out == ["[0.0]"]


def test_a_program_without_a_file() -> None:
    """`python -c` and a program from standard input have no file either."""
    out, err = Process(
        PREAMBLE
        + """
shared = queue()
def work(producer, worker):
    producer.push((np.float64(2),))
shared.start(work)
print([float(x) for x, in shared])
""",
        preamble="",
    ).end()
    assert (out, err) == (["[2.0]"], "")


def test_a_program_in_a_file_does_without_cloudpickle(tmp_path: Path) -> None:
    """Its functions are sent by name, as ever."""
    (tmp_path / "train.py").write_text(
        PREAMBLE
        + """
def work(producer, worker):
    producer.push((np.float64("cloudpickle" in sys.modules),))

if __name__ == "__main__":
    shared = queue()
    shared.start(work)
    print([float(x) for x, in shared], "cloudpickle" in sys.modules)
"""
    )
    assert run_file(tmp_path / "train.py") == ["[0.0] False"]
