"""Tuples at a device: a GPU, the fake driver, or the host emulation.

The environment of a process decides which of them it uses. test_device_arrays.py runs this file with the emulation and
with the fake driver. To run it by hand:

    PYFEED_CUDA=host python -m pytest tests/python/on_device.py
"""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from pyfeed.cuda import DeviceArray
from pyfeed.program import Executor, Program, layers, program_guard

import pyfeed
from pyfeed import CUDAPinnedPlace, CUDAPlace, LoDTensor, Scope, cuda

from .argument_table import faults, rows
from .support import DTYPES, STUCK, Background, _DLManagedTensor, _DLTensor, feed, raises, same, together, wait_until

HERE = CUDAPlace(0)
HOSTED = cuda.device_name() == "host emulation"
REFUSED = (
    "slot 0: place: expected memory of the host, found a DeviceArray at CUDAPlace(0): pass what its numpy() returns"
)


def at_device(*arrays: Any, place: pyfeed.typing.Place = HERE, **options: Any) -> Any:
    """Push a tuple into a queue at a place and pop it again."""
    data = [a.data if isinstance(a, LoDTensor) else a for a in arrays]
    _, queue = feed(1, [(-1, *a.shape[1:]) if a.ndim else () for a in data], place=place, **options)
    queue.push(arrays)
    return queue.pop()


def one(value: float = 7, size: int = 3) -> DeviceArray:
    (x,) = at_device(np.full(size, float(value)))
    assert isinstance(x, DeviceArray)
    return x


def loans() -> int:
    return pyfeed.diagnostics.memory_stats()["tuples_on_loan"]


@pytest.mark.parametrize("name", [name for name in rows() if name.startswith("cuda.DeviceArray.")])
def test_wrong_arguments(name: str) -> None:
    x = one()
    assert [fault for fault in faults(name, getattr(x, name.rpartition(".")[2]), {"stream": 0}) if fault] == []
    assert x.numpy().tolist() == [7] * 3


# ---- The devices ----


def test_what_there_is() -> None:
    assert cuda.available()
    assert cuda.reason() is None
    devices = cuda.device_count()
    assert devices >= 1
    memory = cuda.memory_info(devices - 1)
    assert 0 < memory.free <= memory.total
    assert cuda.device_name(devices - 1)
    message = f"CUDAPlace({devices}): expected a device from 0 to {devices - 1}"
    for call in (
        lambda: cuda.memory_info(devices),
        lambda: cuda.device_name(devices),
        lambda: feed(place=CUDAPlace(devices)),
    ):
        with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):
            call()
    for bad in (-1, 2**31):
        with raises(pyfeed.errors.InvalidArgument, f"device: expected 0 to 2^31 - 1, found {bad}"):
            cuda.memory_info(bad)


def test_pinned_memory_is_the_hosts() -> None:
    (x,) = at_device(np.arange(4.0), place=CUDAPinnedPlace())
    same(x, np.arange(4.0))
    assert x.flags.writeable
    stats = pyfeed.diagnostics.memory_stats()
    assert stats["pinned_bytes"] > 0
    assert stats["device_bytes"] == 0


def test_it_counts_what_is_pinned_and_what_is_at_devices() -> None:
    x = one()
    stats = pyfeed.diagnostics.memory_stats()
    assert stats["device_bytes"] >= x.nbytes
    assert stats["tuples_on_loan"] == 1
    x.release()
    assert loans() == 0
    wait_until(
        lambda: pyfeed.diagnostics.memory_stats()["device_bytes"] == 0
    )  # the queue is gone, so its memory is freed with the tuple


# ---- Attributes of an array ----


def test_what_it_is() -> None:
    x, y = at_device(np.zeros((4, 2, 3), np.float32), np.arange(4, dtype="int8"))
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, len(x)) == ((4, 2, 3), 3, 24, 4, 96, 4)
    assert (y.shape, y.ndim, y.size, y.itemsize, y.nbytes, len(y)) == ((4,), 1, 4, 1, 4, 4)
    assert (x.dtype, y.dtype) == (np.dtype("float32"), np.dtype("int8"))
    assert x.place == CUDAPlace(0)
    assert isinstance(x.place, pyfeed.typing.Place)
    assert (x.lod, y.lod) == ((), ())
    assert x.pointer != 0
    assert x.pointer % 256 == y.pointer % 256 == 0
    assert abs(y.pointer - x.pointer) >= 96
    assert x.__dlpack_device__() == ((1, 0) if HOSTED else (2, 0))
    assert repr(x) == "DeviceArray(shape=(4, 2, 3), dtype=float32, place=CUDAPlace(0))"
    x.release()
    assert repr(x) == "DeviceArray(shape=(4, 2, 3), dtype=float32, place=CUDAPlace(0), released)"


def test_a_scalar_and_an_empty_one() -> None:
    (x,) = at_device(np.array(5.0))
    assert (x.shape, x.size, x.ndim) == ((), 1, 0)
    with pytest.raises(TypeError, match=r"len\(\) of a DeviceArray without dimensions"):
        len(x)
    same(x.numpy(), np.array(5.0))
    (y,) = at_device(np.zeros((0, 3), "int64"))
    assert (y.shape, y.size, y.nbytes, len(y)) == ((0, 3), 0, 0, 0)
    y.use(1)
    same(y.numpy(), np.zeros((0, 3), "int64"))
    y.release(1)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_every_dtype(dtype: str) -> None:
    raw = np.arange(256, dtype="uint8")
    if dtype == "bfloat16":
        import ml_dtypes

        a = raw.view(ml_dtypes.bfloat16)
    else:
        a = raw.view(dtype) if dtype != "bool" else raw % 2 == 0
    (x,) = at_device(a, dtypes=[dtype])
    assert x.dtype == a.dtype
    same(x.numpy(), a)
    tensor = _Export(x).tensor
    kinds = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}
    assert (tensor.code, tensor.bits, tensor.lanes) == (kinds[a.dtype.kind], 8 * a.dtype.itemsize, 1)


def test_levels_of_detail_stay_on_the_host() -> None:
    values = np.arange(5.0)
    (x,) = at_device(LoDTensor.from_lengths(values, [[1, 2], [1, 2, 2]]), lod_levels=[2])
    assert isinstance(x, DeviceArray)
    assert [level.tolist() for level in x.lod] == [[0, 1, 3], [0, 1, 3, 5]]
    assert repr(x).endswith("place=CUDAPlace(0), lod=(array([0, 1, 3]), array([0, 1, 3, 5])))")
    assert LoDTensor(x.numpy(), x.lod).recursive_sequence_lengths() == [[1, 2], [1, 2, 2]]
    lod = x.lod
    x.release()
    assert loans() == 0
    assert lod[1].tolist() == [0, 1, 3, 5] == x.lod[1].tolist()
    with pytest.raises(ValueError, match="read-only"):
        lod[0][0] = 1


def test_it_is_not_made_otherwise() -> None:
    with pytest.raises(TypeError):
        DeviceArray()
    x = one()
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            call(x)
    with pytest.raises(AttributeError):
        x.shape = (3,)  # type: ignore[misc]


# ---- Copies to the host ----


def test_numpy_is_a_copy_of_its_own() -> None:
    x = one(7)
    a, b = x.numpy(), x.numpy()
    a[:] = 1
    assert b.tolist() == [7] * 3 == x.numpy().tolist()
    x.release()
    assert b.tolist() == [7] * 3


def test_it_is_not_copied_unasked() -> None:
    x = one()
    message = r"a DeviceArray at CUDAPlace\(0\) is not copied to the host unasked: call its numpy\(\)"
    calls: list[Callable[[], Any]] = [
        lambda: np.asarray(x),
        lambda: np.array(x, dtype="float32"),
        lambda: np.add(x, 1),
        lambda: np.stack([x, x]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(TypeError, match=r"is not true or false: call its numpy\(\)"):
        bool(x)
    with pytest.raises(TypeError):
        memoryview(x)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        iter(x)  # type: ignore[call-overload]


def test_it_is_refused_where_arrays_come_in() -> None:
    x, host = one(size=2), Scope()
    reader, queue = feed()
    slots = pyfeed.random_data([(2,)], count=1, scope=host).map(lambda _: x)
    for call in (
        lambda: queue.push((x,)),
        lambda: queue.push([x], copy=False),
        lambda: queue.push((LoDTensor(x),)),
        lambda: host.set_tensor("x", x),
        lambda: pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 2).put((x,)),
        lambda: list(slots),
    ):
        with raises(pyfeed.errors.UnsupportedError, REFUSED, slot=0, also=NotImplementedError):
            call()
    assert queue.stats()["pushed"] == 0
    queue.push((x.numpy(),))
    queue.close()
    assert [a.tolist() for (a,) in reader] == [[7, 7]]


# ---- Release ----


def test_a_released_array_is_of_no_use_any_more() -> None:
    x = one()
    for _ in range(2):
        x.release()
        x.release(1)
    calls: list[Callable[[], Any]] = [
        lambda: x.use(1),
        lambda: x.synchronize(),
        lambda: x.numpy(),
        lambda: x.pointer,
        lambda: x.__dlpack__(),
        lambda: x.__dlpack__(stream=-1),
    ]
    if not HOSTED:
        calls.append(lambda: x.__cuda_array_interface__)
    for call in calls:
        with raises(pyfeed.errors.StateError, "the array was released", also=RuntimeError):
            call()
    assert (x.shape, x.nbytes, x.place, x.dtype, x.lod) == ((3,), 24, CUDAPlace(0), np.dtype(float), ())


@pytest.mark.parametrize("stream", [None, 0, 1, 2])
def test_a_tuple_goes_with_the_last_of_its_arrays(stream: int | None) -> None:
    x, y, z = at_device(np.arange(3.0), np.arange(3), np.ones(3, "int8"))
    x.release(stream)
    assert loans() == 1
    assert y.numpy().tolist() == [0, 1, 2]
    capsule = y.__dlpack__()
    y.release(stream)
    del z
    assert loans() == 1
    del capsule
    assert loans() == 0


def test_arrays_that_nobody_releases() -> None:
    _, queue = feed(2, place=CUDAPlace(0))
    for n in range(50):
        queue.push((np.full(2, float(n)),))
        (x,) = queue.pop()
        assert x.numpy().tolist() == [n, n]
    assert loans() == 1
    del x
    assert loans() == 0


# ---- Streams ----


class Stream:
    """An object with the protocol by which CUDA's Python packages pass streams."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> tuple[Any, ...]:
        return self.answer


def test_streams() -> None:
    x = one()
    for stream in (0, 1, 2, np.int64(1), Stream(0, 1)):
        x.use(stream)
    x.__dlpack__(stream=Stream(0, 2))
    for bad in (-1, -(2**63)):
        for call in (x.use, x.release):
            with raises(
                pyfeed.errors.InvalidArgument, f"stream: expected a CUDA stream's number, at least 0, found {bad}"
            ):
                call(bad)
    for wrong in ("1", 1.0, Stream(1), Stream("0", 1)):
        for call in (x.use, x.release):
            with pytest.raises(pyfeed.errors.ArgumentTypeError, match=r"^stream: expected .*, found"):
                call(wrong)  # type: ignore[arg-type]
    with raises(pyfeed.errors.InvalidArgument, f"stream: expected -2^63 to 2^63 - 1, found {2**63}"):
        x.use(2**63)
    assert x.numpy().tolist() == [7] * 3


def test_a_stream_that_releases_the_array_when_it_is_asked() -> None:
    x = one()

    class Releases(Stream):
        def __cuda_stream__(self) -> tuple[Any, ...]:
            x.release()
            return super().__cuda_stream__()

    with raises(pyfeed.errors.StateError, "the array was released"):
        x.use(Releases(0, 1))
    x.release(Releases(0, 1))
    assert loans() == 0


def test_synchronize() -> None:
    x = one()
    x.synchronize()
    x.synchronize(timeout=STUCK)
    with raises(pyfeed.errors.InvalidArgument, "timeout: expected None or seconds, at least 0, found -1"):
        x.synchronize(-1)


# ---- DLPack ----


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    )


_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


USED = ctypes.c_char_p(b"used")


class _Export:
    """An exported array, as another library uses it. Its deleter is called without the GIL."""

    def __init__(self, x: DeviceArray, **options: Any) -> None:
        capsule = x.__dlpack__(**options)
        name = _api.PyCapsule_GetName(capsule)
        self.at = _api.PyCapsule_GetPointer(capsule, name)
        _api.PyCapsule_SetName(capsule, USED)
        self.versioned = name == b"dltensor_versioned"
        kind: Any = _Versioned if self.versioned else _DLManagedTensor
        self.managed = kind.from_address(self.at)
        self.tensor = self.managed.dl_tensor

    def delete(self) -> None:
        if self.at:
            at, self.at = self.at, None
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(at)

    def __del__(self) -> None:
        self.delete()


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 1), (2, 0), [1, 0]])
def test_what_is_exported(max_version: Sequence[int] | None) -> None:
    x, y = at_device(np.arange(24.0).reshape(4, 2, 3), np.arange(4))
    before = x.shape, x.pointer
    e, f = _Export(x, max_version=max_version), _Export(y, max_version=max_version)
    assert e.versioned is (max_version is not None and max_version[0] >= 1)
    if e.versioned:
        assert (e.managed.major, e.managed.minor, e.managed.flags) == (1, 0, 0)
    t = e.tensor
    assert (t.data, t.byte_offset, t.ndim) == (x.pointer, 0, 3)
    assert (t.device_type, t.device_id) == x.__dlpack_device__()
    assert (t.shape[:3], t.strides[:3]) == ([4, 2, 3], [6, 3, 1])  # in elements
    assert (f.tensor.data, f.tensor.shape[:1], f.tensor.strides[:1]) == (y.pointer, [4], [1])
    del x, y
    gc.collect()
    assert loans() == 1
    assert (tuple(t.shape[:3]), t.data) == before
    e.delete()
    assert loans() == 1
    f.delete()
    assert loans() == 0


def test_a_capsule_that_nobody_takes() -> None:
    x = one()
    capsules = [x.__dlpack__(), x.__dlpack__(max_version=(1, 0))]
    x.release()
    assert loans() == 1
    capsules.pop()
    assert loans() == 1
    capsules.pop()
    assert loans() == 0


def test_what_it_is_asked_for_by_dlpack() -> None:
    x = one()
    own = x.__dlpack_device__()
    for stream in (None, -1, 1, 2, Stream(0, 1)):
        x.__dlpack__(stream=stream, dl_device=own, copy=False)
    zero = "stream: expected 1 for the legacy default stream or 2 for the thread's own, found 0, which may mean either"
    with raises(pyfeed.errors.InvalidArgument, zero, also=ValueError):
        x.__dlpack__(stream=0)
    with raises(pyfeed.errors.InvalidArgument, "stream: expected a CUDA stream's number, at least -1, found -2"):
        x.__dlpack__(stream=-2)
    with pytest.raises(BufferError, match="copy: expected None or False: a DeviceArray is lent"):
        x.__dlpack__(copy=True)
    for elsewhere in ((1, 1), (2, 1), (3, 0), (13, 0)):
        with pytest.raises(BufferError, match=r"dl_device: expected .* where the array is, found .*: its numpy\(\)"):
            x.__dlpack__(dl_device=elsewhere)
    for wrong in (
        {"stream": "1"},
        {"stream": 1.0},
        {"max_version": 1},
        {"max_version": (1,)},
        {"max_version": "10"},
        {"dl_device": 2},
        {"dl_device": (2.0, 0)},
        {"streams": 1},
    ):
        with pytest.raises(TypeError):
            x.__dlpack__(**wrong)
    with pytest.raises(TypeError):
        x.__dlpack__(None)  # type: ignore[call-arg]
    assert x.numpy().tolist() == [7] * 3


def test_numpy_takes_what_is_the_hosts_and_nothing_else() -> None:
    x = one()
    if HOSTED:
        a = np.from_dlpack(x)
        x.release()
        assert a.tolist() == [7] * 3
        assert loans() == 1
        del a
    else:
        with pytest.raises((BufferError, RuntimeError)):
            np.from_dlpack(x)
        x.release()
    assert loans() == 0


def test_exports_are_deleted_by_threads_that_know_nothing_of_python() -> None:
    def go(n: int) -> None:
        for _ in range(50):
            x, y = at_device(np.full(3, float(n)), np.full(3, n))
            exports = [_Export(a, max_version=v) for a in (x, y) for v in (None, (1, 0))]
            assert y.numpy().tolist() == [n] * 3
            del x, y
            together(*[e.delete for e in exports])

    together(*[lambda n=n: go(n) for n in range(4)])
    assert loans() == 0


# ---- __cuda_array_interface__ ----


def test_cuda_array_interface() -> None:
    import ml_dtypes

    (x,) = at_device(np.arange(6, dtype="int16").reshape(3, 2))
    (b,) = at_device(np.ones(2, ml_dtypes.bfloat16), dtypes=["bfloat16"])
    (e,) = at_device(np.zeros((0, 2), "?"))
    if HOSTED:
        with pytest.raises(AttributeError, match="expected a device's memory, found that of its host emulation"):
            _ = x.__cuda_array_interface__
        return
    expected = {"shape": (3, 2), "typestr": "<i2", "data": (x.pointer, False), "strides": None, "stream": None}
    assert x.__cuda_array_interface__ == {**expected, "version": 3}
    assert e.__cuda_array_interface__["typestr"] == "|b1"
    assert e.__cuda_array_interface__["data"] == (0, False)
    with pytest.raises(AttributeError, match="cannot describe bfloat16: use __dlpack__"):
        _ = b.__cuda_array_interface__
    assert not hasattr(b, "__cuda_array_interface__")


# ---- Readers, variables, programs ----


def test_a_reader_of_a_device() -> None:
    reader = pyfeed.from_generator(
        lambda: ((np.full((2, 3), i, "float32"), np.array([i, i])) for i in range(40)),
        [(-1, 3), (-1,)],
        scope=Scope(),
    ).double_buffer(CUDAPlace(0), depth=3)
    for _ in range(2):
        seen = []
        for x, n in reader:
            assert isinstance(x, DeviceArray)
            seen.append(int(n.numpy()[0]))
            assert x.numpy().tolist() == [[seen[-1]] * 3] * 2
        assert seen == list(range(40))
        reader.reset()


def test_several_devices_get_tuples_in_turn() -> None:
    places = [CUDAPlace(i) for i in range(min(2, cuda.device_count()))]
    reader = pyfeed.from_generator(
        lambda: ((np.array([i]),) for i in range(21)), [(-1,)], capacity=4, scope=Scope()
    ).double_buffer(places)
    got = [(x.place, int(x.numpy()[0])) for (x,) in reader]
    assert got == [(places[i % len(places)], i) for i in range(21)]
    with pytest.raises(TypeError, match="place: expected a Place, or a sequence of them, found"):
        reader.double_buffer((1, 0))  # type: ignore[arg-type]


def test_a_variable_at_a_device() -> None:
    scope = Scope()
    reader, queue = pyfeed.py_array_reader(2, [(-1,)], place=CUDAPlace(0), scope=scope, name="q")
    queue.push((np.arange(3),))
    queue.push((np.arange(3) + 10,))
    scope.read(reader.name, ["x"])
    x = scope["x"]
    assert isinstance(x, DeviceArray)
    assert x.numpy().tolist() == [0, 1, 2]
    assert _Export(x, max_version=(1, 0)).managed.flags == 1  # read-only, since the scope refers to the tuple too
    assert not _Export(x).versioned
    scope.read(reader.name, ["x"])
    assert x.numpy().tolist() == [0, 1, 2]
    assert scope["x"].numpy().tolist() == [10, 11, 12]


def test_what_a_program_fetches_may_be_here_and_there() -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup):
        numbers = layers.random_data([(2,)], count=5, low=3, high=4)
        x = layers.read_file(layers.double_buffer(layers.batch(numbers, 2), CUDAPlace(0)))
        n = layers.fill_constant([], "int64", 5)
    executor = Executor(CUDAPlace(0))
    executor.run(startup, scope=scope)
    a, b = executor.run(main, scope=scope, fetch=[x, n])
    assert isinstance(a, DeviceArray)
    same(b, np.array(5))
    assert loans() == 2  # the ndarray, which has no release(), has a loan of its own
    assert ((a.numpy() >= 3) & (a.numpy() < 4)).all()
    a.release()
    assert loans() == 1
    del b
    assert loans() == 0
    assert executor.run(main, scope=scope, fetch=[x])[0].shape == (2, 2)


def test_what_many_threads_hold_is_not_written_to() -> None:
    _, queue = feed(3, place=CUDAPlace(0))

    def produce() -> None:
        for n in range(600):
            queue.push((np.full(2, float(n)),))
        queue.close()

    def consume() -> int:
        held, count = [], 0
        while True:
            try:
                (x,) = queue.pop(STUCK)
            except pyfeed.errors.EndOfData:
                break
            x.use(1)
            held.append((x, x.numpy().tolist()))
            count += 1
            if len(held) > 3:
                oldest, was = held.pop(0)
                assert oldest.numpy().tolist() == was
                if count % 2:
                    oldest.release(1)
        return count

    producer = Background(produce)
    assert sum(together(consume, consume, consume)) == 600
    producer.result()


def test_an_array_is_released_while_others_look_at_it() -> None:
    for _ in range(100):
        x = one(7)
        start = threading.Barrier(3)

        def look(x: DeviceArray = x, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                for _ in range(5):
                    assert x.numpy().tolist() == [7] * 3
                    x.use(1)
            except pyfeed.errors.StateError as error:
                assert str(error) == "the array was released"  # noqa: PT017

        def release(x: DeviceArray = x, start: threading.Barrier = start) -> None:
            start.wait()
            x.release(1)

        together(look, look, release)
        assert loans() == 0


# ---- Exact resume ----


def test_a_double_buffer_goes_on_at_every_step() -> None:
    """What was copied to the device ahead does not count as delivered."""

    def chain(depth: int) -> pyfeed.Reader:
        reader = pyfeed.random_data([(3,)], count=40, seed=5).shuffle(9, seed=2).batch(3)
        return reader.double_buffer(HERE, depth).multi_pass(2)

    def read(reader: pyfeed.Reader) -> list[Any]:
        return [x.numpy().tolist() for (x,) in reader]

    expected = read(chain(2))
    assert len(expected) == 28
    reader = chain(3)
    for step in range(len(expected)):
        resumed = chain(1 + step % 4)
        resumed.load_state_dict(reader.state_dict())
        assert read(resumed) == expected[step:]
        next(reader)
