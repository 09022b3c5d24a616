"""Places other than the CPU: without a driver, on the host emulation and on the fake driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import fakecuda
from .support import Process

HERE = Path(__file__).parent
FAKE = pytest.param("fake", marks=pytest.mark.compiler)


def run(program: str, environment: dict[str, str]) -> list[str]:
    """Run a program; return its lines of output. It must write nothing to standard error."""
    out, err = Process(program, **environment).end()
    assert err == ""
    return out


def passes(file: str, environment: dict[str, str]) -> None:
    """Run all tests of a file in a new process, since a process has one driver."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / file)],
        env={**os.environ, **environment},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert re.search(r" \d\d passed in ", last), last


def test_on_the_host_emulation() -> None:
    passes("on_device.py", {"PYFEED_CUDA": "host"})


@pytest.mark.compiler
def test_on_the_fake_driver() -> None:
    passes("on_device.py", fakecuda.environment(FAKECUDA_DEVICES=2))
    passes("on_fake_driver.py", fakecuda.environment(FAKECUDA_DEVICES=2))


# ---- Without a driver ----


@pytest.fixture
def no_driver(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which libcuda.so.1 is found but is not a library."""
    (tmp_path / "libcuda.so.1").touch()
    return {"LD_LIBRARY_PATH": str(tmp_path)}


REFUSE = """
    from pyfeed import CUDAPinnedPlace, CUDAPlace, cuda
    reason = cuda.reason()
    say(cuda.available(), reason)

    def refused(call, place=""):
        for _ in range(2):
            try:
                call()
            except pyfeed.errors.UnsupportedError as error:
                assert type(error) is pyfeed.errors.UnsupportedError and isinstance(error, NotImplementedError)
                assert str(error) == (f"{place}: {reason}" if place else reason), error
            else:
                say("nothing was raised")

    reader = pyfeed.random_data([(2,)], count=3, scope=pyfeed.Scope())
    refused(cuda.device_count)
    refused(cuda.memory_info, CUDAPlace(0))
    refused(lambda: cuda.device_name(3), CUDAPlace(3))
    for place in (CUDAPlace(0), CUDAPlace(3), CUDAPinnedPlace()):
        refused(lambda: feed(place=place), place)
        refused(lambda: pyfeed.staging.get_buffer(place, 2), place)
        refused(lambda: pyfeed.Executor(place), place)
        refused(lambda: reader.double_buffer(place), place)
    refused(lambda: reader.double_buffer([CUDAPlace(1), CUDAPlace(0)]), CUDAPlace(1))
    say(len(list(reader.double_buffer())))
"""


def test_without_a_driver_there_is_its_reason(no_driver: dict[str, str]) -> None:
    library = Path(no_driver["LD_LIBRARY_PATH"], "libcuda.so.1")
    assert run(REFUSE, no_driver) == [f"False {library}: file too short", "3"]


@pytest.mark.compiler
def test_a_driver_without_a_device_says_so() -> None:
    said = run(REFUSE, fakecuda.environment(FAKECUDA_DEVICES=0))
    assert re.fullmatch(r"False .*CUDA_ERROR_NO_DEVICE.*", said[0])
    assert said[1:] == ["3"]


@pytest.mark.compiler
def test_nothing_looks_for_a_driver_unasked() -> None:
    program = """
        reader, queue = feed()
        queue.push(tuple_of(1))
        queue.close()
        say(len(list(reader)), "libcuda" in open("/proc/self/maps").read())
        say(pyfeed.cuda.available(), "libcuda" in open("/proc/self/maps").read())
    """
    assert run(program, fakecuda.environment()) == ["1 False", "True True"]


# ---- Staging ----


@pytest.mark.parametrize("where", ["twin", FAKE])
def test_the_staging_buffer_of_a_device(where: str) -> None:
    environment = {"PYFEED_CUDA": "host"} if where == "twin" else fakecuda.environment()
    program = """
        buffer = pyfeed.staging.get_buffer(pyfeed.CUDAPlace(0), 2)
        assert buffer is not None and buffer.place == pyfeed.CUDAPlace(0)
        waiting = start(lambda: [buffer.put((np.full(3, i), np.arange(i))) for i in range(20)])
        got = [buffer.get() for _ in range(20)]  # more than are ever staged: a consumer may keep them
        say(all(isinstance(x, pyfeed.cuda.DeviceArray) for arrays in got for x in arrays))
        say([int(x.numpy()[0]) for x, _ in got] == list(range(20)), sum(y.size for _, y in got))
        for x, y in got:
            x.release(1)
            y.release(1)
        say(pyfeed.diagnostics.memory_stats()["tuples_on_loan"])
    """
    assert run(program, environment) == ["True", "True 190", "0"]


# ---- Processes that end ----


@pytest.mark.parametrize("hold", ["x", "x.__dlpack__()", "[reader, queue, x, sys]"])
@pytest.mark.parametrize("where", ["twin", FAKE])
def test_the_end_of_a_process_that_holds_arrays(where: str, hold: str) -> None:
    environment = {"PYFEED_CUDA": "host"} if where == "twin" else fakecuda.environment()
    program = f"""
        reader, queue = feed(place=pyfeed.CUDAPlace(0))
        queue.push(tuple_of(1))
        x, = queue.pop()
        kept = {hold}
        kept_in_a_circle = [kept]
        kept_in_a_circle.append(kept_in_a_circle)
        sys.modules["for ever"] = kept_in_a_circle
        say("end")
    """
    assert run(program, environment) == ["end"]


@pytest.mark.parametrize("where", ["twin", FAKE])
def test_a_forked_child_is_told_and_ends(where: str) -> None:
    environment = {"PYFEED_CUDA": "host"} if where == "twin" else fakecuda.environment()
    program = """
        reader, queue = feed(place=pyfeed.CUDAPlace(0))
        queue.push(tuple_of(1))
        x, = queue.pop()
        capsule = x.__dlpack__()
        if os.fork() == 0:
            for call in (lambda: x.use(1), x.synchronize, x.numpy, x.__dlpack__, lambda: x.release(1),
                         lambda: pyfeed.cuda.available(), lambda: pyfeed.cuda.memory_info()):
                try:
                    call()
                except pyfeed.errors.ForkError:
                    pass
                else:
                    say("not refused")
            x.release()
            del capsule
            say("child")
            os._exit(0)
        os.wait()
        say(x.numpy().tolist(), np.from_dlpack(x).tolist() if os.environ.get("PYFEED_CUDA") else "")
        x.release(1)
    """
    said = run(program, environment)
    assert said[0] == "child"
    assert said[1].startswith("[1.0, 1.0]")
