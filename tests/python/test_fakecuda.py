"""How Python tests find and control the fake CUDA driver. The driver itself is tested in tests/fakecuda."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from . import fakecuda

pytestmark = pytest.mark.compiler

CHILD = """
    import ctypes
    import sys
    sys.path.insert(0, {folder!r})
    import fakecuda

    cuda = ctypes.CDLL("libcuda.so.1")
    fake = fakecuda.Fake()


    def ok(code):
        assert code == 0, code
"""


def run(program: str, **variables: object) -> str:
    """Run a program in a child that finds the fake; return its standard error."""
    source = textwrap.dedent(CHILD).format(folder=str(Path(fakecuda.__file__).parent)) + textwrap.dedent(program)
    environment = {**os.environ, **fakecuda.environment(**variables)}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_child_has_the_driver_and_the_control_of_it() -> None:
    report = run(
        """
        n, address, context = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        ok(cuda.cuInit(0))
        ok(cuda.cuDeviceGetCount(ctypes.byref(n)))
        assert n.value == 2
        ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1))
        ok(cuda.cuCtxSetCurrent(context))
        fake.set_memory(1 << 16)
        fake.fail("cuMemAlloc_v2", 2, 2)
        ok(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 2
        assert fake.count("cuMemAlloc_v2") == 2
        assert fake.peek(address.value, 4096) == b"\\xa5" * 4096
        with fake.stream(1) as stream, fake.stream(1, non_blocking=False) as other:
            assert fake.streams() == [stream, other]
            fake.pause(stream)
            fake.kernel(stream, writes=(address.value, 4096))
            found = fake.sum(stream, address.value, 4096)
            fake.let(stream, 1)
            assert fake.wait("kernels", 1)
            assert fake.count("pending") == 1
            fake.resume(stream)
            assert found.value() == fake.hash(b"\\xc3" * 4096) != fake.hash(b"\\xc3" * 4095)
            fake.kernel(other, reads=(address.value, 4096))  # ordered, since the host has waited for the sum
            assert fake.count("hazards") == 0
            fake.kernel(stream, writes=(address.value, 1))  # not ordered after the other stream's kernel
            assert fake.count("hazards") == 1
            assert "a kernel in stream" in fake.complaint()
            with fake.capture(other, fakecuda.RELAXED) as code:
                fake.kernel(other)
            assert code == [0]
            with fake.paused_copies(1):
                pass
            fake.break_context(700, device=1)
            assert fake.synchronize(stream) == 700
            fake.reset()
            assert fake.synchronize(stream) == 0
        fake.deinitialize()
        assert cuda.cuInit(0) == 4
        fake.deinitialize(False)
        ok(cuda.cuMemFree_v2(address))
        ok(cuda.cuDevicePrimaryCtxRelease_v2(1))
        for name in "contexts", "streams", "device", "leaks":
            assert fake.count(name) == 0, name
        fake.set_pinned(0)
        fake.set_pace(1.0, 1.0)
        fake.set_devices(1)
        for mistake in (
            lambda: fake.count("copys"),
            lambda: fake.wait("copys", 1),
            lambda: fake.fail("cuMemAlloc", 1, 2),
        ):
            try:
                mistake()
            except ValueError as e:
                assert "expected" in str(e)
            else:
                raise AssertionError("a misspelt name")
        """,
        FAKECUDA_DEVICES=2,
        FAKECUDA_REPORT=1,
    )
    assert "fakecuda: HAZARD: a kernel in stream" in report
    assert report.splitlines()[-1].startswith("fakecuda: calls=")


def test_a_process_that_loads_it_has_it_as_the_driver() -> None:
    program = f"""
        import ctypes, sys
        sys.path.insert(0, {str(Path(fakecuda.__file__).parent)!r})
        import fakecuda
        fake = fakecuda.Fake.load()
        cuda = ctypes.CDLL("libcuda.so.1")
        assert cuda.cuInit(0) == 0
        assert fake.count("cuInit") == 1
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
