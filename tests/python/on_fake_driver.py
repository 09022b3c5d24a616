"""The effect of streams, captures and driver errors on tuples, tested with the fake driver.

test_device_arrays.py runs this file. The fake driver finds every missing wait: see tests/fakecuda/fakecuda.h.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pyfeed.cuda import DeviceArray

import pyfeed
from pyfeed import CUDAPlace, Scope, cuda

from .fakecuda import GLOBAL, RELAXED, THREAD_LOCAL, Fake
from .support import STUCK, Background, feed, raises, wait_until

assert cuda.available()
fake = Fake()
CAPTURED = "CUDAPlace(0): the stream is being captured"


@pytest.fixture(autouse=True)
def no_wait_is_missing() -> Iterator[None]:
    fake.reset()
    yield
    assert (fake.count("hazards"), fake.count("misuses")) == (0, 0), fake.complaint()
    fake.reset()


@pytest.fixture
def stream() -> Iterator[int]:
    with fake.stream() as s:
        yield s


class Feed:
    """A queue at a device. Tuple n has two slots whose contents follow from n."""

    def __init__(self, size: int = 64, capacity: int = 2) -> None:
        _, self.queue = feed(capacity, [(size,), (size,)], place=CUDAPlace(0))
        self.size = size

    def arrays(self, n: int) -> tuple[Any, Any]:
        return np.arange(self.size) + 1000.0 * n, np.full(self.size, n)

    def next(self, n: int) -> tuple[DeviceArray, DeviceArray]:
        self.queue.push(self.arrays(n))
        x, y = self.queue.pop()
        return x, y

    def hash(self, n: int, slot: int = 0) -> int:
        return fake.hash(self.arrays(n)[slot].tobytes())

    def others(self, stream: int, first: int = 100) -> None:
        """Push and pop more tuples than the queue has buffers, so that the memory of all earlier tuples is reused."""
        for n in range(first, first + 12):
            x, _ = self.next(n)
            x.use(stream)
            x.release(stream)


def sum_of(x: DeviceArray, stream: int) -> Any:
    return fake.sum(stream, x.pointer, x.nbytes)


# ---- A stream waits for the copy, the host does not ----


@pytest.mark.parametrize(
    "use",
    [
        lambda x, s: x.use(s),
        lambda x, s: x.__dlpack__(stream=s),
        lambda x, s: x.__dlpack__(stream=s, max_version=(1, 0)),
    ],
)
def test_a_stream_waits_for_the_copy(use: Callable[[DeviceArray, int], Any], stream: int) -> None:
    feed = Feed()
    with fake.paused_copies():
        x, y = feed.next(1)
        kept = use(x, stream)
        sums = sum_of(x, stream), sum_of(y, stream)
        assert fake.count("copies_done") == 0
    assert [s.value() for s in sums] == [feed.hash(1, 0), feed.hash(1, 1)]
    del kept


@pytest.mark.parametrize(("given", "waits"), [(None, 1), (1, 1), (2, 1), (-1, 0)])
def test_the_streams_of_dlpack(given: int | None, waits: int) -> None:
    feed = Feed()
    with fake.paused_copies():
        x, _ = feed.next(1)
        before = fake.count("cuStreamWaitEvent")
        x.__dlpack__(stream=given)
        assert fake.count("cuStreamWaitEvent") - before == waits
        if waits:
            s = sum_of(x, given or 1)
    if waits:
        assert s.value() == feed.hash(1)
    x.synchronize()


def test_the_stream_of_each_thread() -> None:
    feed = Feed()
    with fake.paused_copies():
        x, _ = feed.next(1)

        def in_a_thread() -> int:
            x.use(2)
            s = sum_of(x, 2)
            fake.let_copies(-1)
            value: int = s.value()
            return value

        assert Background(in_a_thread).result() == feed.hash(1)


# ---- Memory is reused when the streams that used it are done ----


@pytest.mark.parametrize("explicit", [True, False])
def test_memory_is_not_written_to_before_its_reader_is_done(explicit: bool, stream: int) -> None:
    feed = Feed()
    with fake.stream() as other:
        x, y = feed.next(1)
        x.use(stream)
        fake.pause(stream)
        sums = sum_of(x, stream), sum_of(y, stream)
        if explicit:
            x.release(stream)
            y.release(stream)
        del x, y
        producer = Background(lambda: feed.others(other))
        wait_until(lambda: fake.count("copies") >= 2)
        fake.resume(stream)
        assert [s.value() for s in sums] == [feed.hash(1, 0), feed.hash(1, 1)]
        producer.result()


@pytest.mark.parametrize("first", [True, False])
def test_release_says_up_to_where(first: bool, stream: int) -> None:
    feed = Feed()
    with fake.stream() as other:
        x, y = feed.next(1)
        x.synchronize()
        s = sum_of(x, stream)  # on a stream that pyfeed does not know
        if first:
            x.release(stream)
            y.release()
        else:
            y.release()
            x.release(stream)
        feed.others(other)
        assert s.value() == feed.hash(1)


def test_an_array_that_is_released_leaves_the_others_their_stream(stream: int) -> None:
    feed = Feed()
    with fake.stream() as other:
        x, y = feed.next(1)
        x.use(stream)
        x.release(stream)
        fake.pause(stream)
        s = sum_of(y, stream)  # after the release of the tuple's other array
        y.release()
        producer = Background(lambda: feed.others(other))
        wait_until(lambda: fake.count("copies") >= 2)
        fake.resume(stream)
        assert s.value() == feed.hash(1, 1)
        producer.result()


def test_an_export_that_outlives_its_array(stream: int) -> None:
    feed = Feed()
    with fake.stream() as other:
        x, y = feed.next(1)
        pointer, nbytes = x.pointer, x.nbytes
        capsule = x.__dlpack__(stream=stream)
        x.release(other)
        y.release(other)
        feed.others(other)
        s = fake.sum(stream, pointer, nbytes)
        del capsule
        feed.others(other)
        assert s.value() == feed.hash(1)


def test_cuda_array_interface_waits_on_the_host(stream: int) -> None:
    feed = Feed()
    with fake.paused_copies():
        x, _ = feed.next(1)
        asked = Background(lambda: x.__cuda_array_interface__)
        wait_until(lambda: pyfeed._native._waiting_threads())
        assert not asked.done()
    interface = asked.result()
    assert (interface["data"], interface["stream"]) == ((x.pointer, False), None)
    with fake.stream() as other:
        s = sum_of(x, stream)
        x.release(stream)
        del _
        feed.others(other)
        assert s.value() == feed.hash(1)


def test_cuda_array_interface_counts_for_the_default_stream() -> None:
    feed = Feed()
    sums = []
    for n in range(20):
        x, y = feed.next(n)
        assert x.__cuda_array_interface__["stream"] is None
        sums.append((n, sum_of(x, 1)))
        del x, y
    for n, s in sums:
        assert s.value() == feed.hash(n)


def test_a_loop_needs_few_calls_a_tuple(stream: int) -> None:
    feed = Feed(size=1 << 14)
    sums = []
    for n in range(40):
        if n == 20:
            before = fake.count("calls")
        x, y = feed.next(n)
        x.use(stream)
        sums.append((n, sum_of(x, stream)))
        x.release()
        y.release(stream)
    x.release()
    # At most nine calls a tuple: for each of two streams a capture query, a wait and an event; and the copy, its event
    # and the wait for its end.
    assert fake.count("calls") - before <= 9 * 20
    for n, s in sums:
        assert s.value() == feed.hash(n)
    assert fake.count("pageable_copies") == 0


# ---- Captures ----


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("there", [False, True])
def test_a_stream_that_is_captured_is_left_alone(mode: int, there: bool, stream: int) -> None:
    feed = Feed()
    with fake.paused_copies():
        x, y = feed.next(1)
        if there:
            fake.let_copies(-1)
            x.synchronize()
        with fake.capture(stream, mode) as ended:
            for call in (
                lambda: x.use(stream),
                lambda: x.__dlpack__(stream=stream),
                lambda: x.release(stream),
            ):
                with raises(pyfeed.errors.StateError, None, also=RuntimeError):
                    call()
        assert ended == [0]
    y.release()
    x.use(stream)  # works after the capture, and the refused release has not released x
    s = sum_of(x, stream)
    x.release(stream)
    feed.others(stream)
    assert s.value() == feed.hash(1)


def test_the_last_array_is_not_released_on_a_stream_that_is_captured(stream: int) -> None:
    feed = Feed()
    x, y = feed.next(1)
    y.release()
    with fake.capture(stream) as ended:
        with raises(pyfeed.errors.StateError, None):
            x.release(stream)
        assert x.numpy().tolist() == feed.arrays(1)[0].tolist()
    assert ended == [0]
    x.release(stream)
    assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == 0


# ---- Waits of the host ----


def test_a_wait_for_the_copy_ends() -> None:
    feed = Feed()
    with fake.paused_copies():
        x, _ = feed.next(1)
        for timeout in (0, 0.01):
            with raises(pyfeed.errors.Timeout, "the time to wait went by", also=TimeoutError):
                x.synchronize(timeout)
        waits = Background(x.synchronize)
        wait_until(lambda: pyfeed._native._waiting_threads())
        released = Background(x.release)  # while another thread waits for the copy
        released.result()
        assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == 1
    waits.result()
    assert str(x).endswith("released)")


@pytest.mark.parametrize("wait", [lambda x: x.synchronize(), lambda x: x.numpy()])
def test_ctrl_c_while_the_copy_is_waited_for(wait: Callable[[DeviceArray], Any]) -> None:
    feed = Feed()
    with fake.paused_copies():
        x, _ = feed.next(1)

        def interrupt() -> None:
            wait_until(lambda: pyfeed._native._waiting_threads())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            wait(x)
        thread.join(STUCK)
    assert x.numpy().tolist() == feed.arrays(1)[0].tolist()


# ---- Errors of the driver ----


def test_a_device_without_memory() -> None:
    fake.fail("cuMemAlloc_v2", 1, 2, from_then_on=True)
    feed = Feed()
    with pytest.raises(pyfeed.errors.CudaMemoryError) as caught:
        feed.next(1)
    error = caught.value
    assert (error.code, error.name) == (2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert isinstance(error, pyfeed.errors.CudaError)
    assert isinstance(error, MemoryError)
    assert isinstance(error, RuntimeError)
    assert "CUDAPlace(0)" in str(error)
    fake.reset()
    x, _ = feed.next(2)
    assert x.numpy().tolist() == feed.arrays(2)[0].tolist()


def test_an_error_of_the_driver_has_its_name() -> None:
    x, y = Feed().next(1)
    x.synchronize()
    y.release()
    fake.fail("cuEventRecord", 1, 400)
    with pytest.raises(pyfeed.errors.CudaError) as caught:
        x.release(1)
    assert not repr(x).endswith("released)")
    x.release(1)
    assert type(caught.value) is pyfeed.errors.CudaError
    assert (caught.value.code, caught.value.name) == (400, "CUDA_ERROR_INVALID_HANDLE")
    assert "CUDA_ERROR_INVALID_HANDLE" in str(caught.value)


def test_a_device_that_is_lost_says_so_from_then_on() -> None:
    feed = Feed()
    x, _ = feed.next(1)
    x.synchronize()
    fake.break_context(719)
    for call in (x.numpy, lambda: feed.next(2), lambda: feed.next(3)):
        with pytest.raises(pyfeed.errors.CudaError) as caught:
            call()
        assert (caught.value.code, caught.value.name) == (719, "CUDA_ERROR_LAUNCH_FAILED")


def test_levels_of_the_readers_too() -> None:
    reader = pyfeed.from_generator(
        lambda: ((np.full(4, float(i)),) for i in range(30)), [(4,)], scope=Scope()
    ).double_buffer(CUDAPlace(0))
    fake.fail("cuMemcpyHtoDAsync_v2", 5, 700)
    seen: list[float] = []
    with pytest.raises(pyfeed.errors.CudaError) as caught:
        seen.extend(x.numpy()[0] for (x,) in reader)
    assert caught.value.code == 700
    assert seen == list(range(len(seen)))
