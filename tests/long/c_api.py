"""Random calls of the C API with handles that are valid, stale, of the wrong kind, or random numbers.

Every function of pyfeed.h, except those in NOT_CALLED, is called with arguments of the types in its declaration. Each
call must return a valid pf_status, even for a handle that was released before.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np

import pyfeed

from .failures import expect

HEADER = (Path(pyfeed.get_include()) / "pyfeed.h").read_text()
LIBRARY = ctypes.CDLL(str(Path(pyfeed.get_library_dir()) / "libpyfeed.so.0"))

STATUSES = 21
# Functions that need a callback, that write to or release the memory their arguments point to, that do not return a
# pf_status, or that end pyfeed for the whole process.
NOT_CALLED = {
    "pf_map_workers_start", "pf_kernel_register", "pf_format_register", "pf_kernel_load", "pf_staging_shutdown",
    "pf_queue_push_lent", "pf_kernel_output", "pf_kernel_set", "pf_kernel_share", "pf_kernel_fail", "pf_string_release",
    "pf_tuple_release", "pf_tuple_release_on", "pf_error_release", "pf_dtype_name", "pf_dtype_size", "pf_status_name",
    "pf_version", "pf_abi_version",
}  # fmt: skip
NUMBERS = {
    "uint8_t": (ctypes.c_uint8, 8),
    "uint64_t": (ctypes.c_uint64, 64), "int64_t": (ctypes.c_int64, 64), "uint32_t": (ctypes.c_uint32, 32),
    "int32_t": (ctypes.c_int32, 32), "size_t": (ctypes.c_size_t, 64),
}  # fmt: skip
NAMES = [b"a", b"b", b"q", b"r", b"", b"no such", b"\xff\xfe", b"x" * 5000, b"a.npy", b"recordio", b"protobuf", b"json"]
ATTRIBUTES = [
    b"{}", b"[]", b"{", b"null", b'{"batch_size": 2}', b'{"buffer_size": 4}', b'{"pass_num": 2}', b'{"depth": 2}',
    b'{"feeder_name": "q"}', b'{"filenames": ["a.npy"]}', b'{"filenames": ["missing.npy"]}', b'{"rank": 0, "world": 2}',
    b'{"slots": [{"dtype": "int64", "dims": [2]}]}', b'{"slots": [{"dtype": "int64", "dims": [2]}], "count": 5}',
    b'{"slots": [{"dtype": "int64", "dims": [9223372036854775807]}]}', b'{"batch_size": -1}', b'{"name": "v"}',
    b'{"type": "read", "inputs": ["r"], "outputs": ["a"]}', b"\xff",
]  # fmt: skip
OPERATORS = [
    b"create_py_array_reader", b"open_files", b"create_file_reader", b"create_batch_reader", b"create_shuffle_reader",
    b"create_multi_pass_reader", b"create_double_buffer_reader", b"create_map_reader", b"create_zip_reader",
    b"create_shard_reader", b"create_random_data_generator", b"no_such_reader",
]  # fmt: skip


class Place(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("device", ctypes.c_int32))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("place", Place), ("rank", ctypes.c_int32),
        ("lod_levels", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        ("data", ctypes.c_void_p), ("nbytes", ctypes.c_uint64), ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p), ("lod", ctypes.c_void_p),
    )  # fmt: skip


class TupleOut(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("num_slots", ctypes.c_uint32), ("slots", ctypes.c_void_p),
        ("loan", ctypes.c_uint64),
    )  # fmt: skip


class Wait(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("poll_interval_ms", ctypes.c_uint32), ("timeout_ns", ctypes.c_int64),
        ("cancel", ctypes.c_uint64), ("poll", ctypes.c_void_p), ("poll_context", ctypes.c_void_p),
    )  # fmt: skip


class SlotSpec(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("lod_levels", ctypes.c_uint32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip


class QueueOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("num_slots", ctypes.c_uint32), ("slots", ctypes.POINTER(SlotSpec)),
        ("capacity", ctypes.c_uint64), ("bytes_limit", ctypes.c_uint64), ("place", Place),
        ("restartable", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 7),
    )  # fmt: skip


class Function:
    """A function of the header: its name and the types and names of its parameters."""

    def __init__(self, name: str, parameters: str) -> None:
        self.name = name
        self.call: Any = getattr(LIBRARY, name)
        self.call.restype = ctypes.c_uint8
        self.parameters = []
        for parameter in parameters.split(","):
            kind, name = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*", parameter, re.DOTALL).groups()  # type: ignore[union-attr]
            self.parameters.append((" ".join(kind.replace("struct ", "").split()), name))


def functions() -> list[Function]:
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    found = re.findall(r"PF_API pf_status (pf_\w+)\(([^;]*)\);", text)
    return [Function(name, parameters) for name, parameters in found if name not in NOT_CALLED]


def size_of_error() -> int:
    """Compute sizeof(pf_error) from the fields in the header."""
    body = re.search(r"typedef struct pf_error \{(.*?)\} pf_error;", re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S), re.S)
    assert body
    fields: list[tuple[str, Any]] = []
    kinds = {"uint32_t": ctypes.c_uint32, "pf_status": ctypes.c_uint8, "uint8_t": ctypes.c_uint8, **{
        name: kind for name, (kind, _) in NUMBERS.items()}}  # fmt: skip
    for kind, star, name, count in re.findall(r"(\w+)\s+(\*?)(\w+)(?:\[(\d+)\])?;", body[1]):
        one: Any = ctypes.c_void_p if star else kinds[kind]
        fields.append((name, one * int(count) if count else one))
    return ctypes.sizeof(type("Error", (ctypes.Structure,), {"_fields_": fields}))


FUNCTIONS = functions()
expect(len(FUNCTIONS) > 60, "crashes", f"the header has {len(FUNCTIONS)} functions")


class Round:
    """The handles and the memory of one round."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.handles: list[int] = []  # probably valid
        self.stale: list[int] = []
        self.keep: list[Any] = []
        self.tuples: list[TupleOut] = []
        self.error = ctypes.create_string_buffer(512)
        self.size_of_error = size_of_error()

    def handle(self) -> int:
        rng = self.rng
        how = rng.random()
        if how < 0.75 and self.handles:
            return rng.choice(self.handles[-30:])
        if how < 0.9 and self.stale:
            return rng.choice(self.stale)
        return rng.choice([0, 1, 2, (1 << 64) - 1, 1 << 63, rng.getrandbits(64), rng.randrange(1000)])

    def number(self, name: str, bits: int, signed: bool) -> int:
        rng = self.rng
        if name in ("capacity", "max_events"):
            return rng.choice([0, 1, 2, 100])
        if name.startswith("num_"):
            return rng.choice([0, 1])
        some = [0, 1, 2, 3, 7, (1 << (bits - 1)) - 1, 1 << (bits - 1)] + ([] if signed else [(1 << bits) - 1])
        value = rng.choice(some[:4] if rng.random() < 0.6 else some)
        return value - (1 << bits) if signed and value >= 1 << (bits - 1) else value

    def tensor(self) -> Tensor:
        rank = self.rng.choice([0, 1, 1, 2])
        data = ctypes.create_string_buffer(64)
        dims = (ctypes.c_int64 * 2)(*(self.rng.choice([0, 1, 2, 2]) for _ in range(2)))
        if self.rng.random() < 0.1:
            dims[0] = self.rng.choice([-1, 1 << 62, -(1 << 63)])
            data = None  # type: ignore[assignment]
        self.keep += [data, dims]
        dtype = self.rng.choice([5, 5, 5, 12, 0, 99, -1])
        address = ctypes.addressof(data) if data is not None else None
        return Tensor(ctypes.sizeof(Tensor), dtype, Place(0, 0), rank, 0, 0, 0, address, 0, dims, None, None)

    def argument(self, kind: str, name: str) -> Any:
        rng = self.rng
        if kind == "pf_error *":
            ctypes.memset(self.error, 0, len(self.error))
            ctypes.memmove(self.error, self.size_of_error.to_bytes(4, "little"), 4)
            return ctypes.byref(self.error) if rng.random() < 0.95 else None
        if kind == "pf_handle":
            return ctypes.c_uint64(self.handle())
        if kind in NUMBERS:
            made, bits = NUMBERS[kind]
            return made(self.number(name, bits, kind.startswith("int")))
        if kind == "pf_place":
            return Place(rng.choice([0, 0, 1, 2, -7]), rng.choice([0, 0, 1, -1]))
        if kind == "pf_dtype":
            return ctypes.c_int32(rng.choice([0, 5, 99]))
        if kind == "const pf_wait *":
            timeout = rng.choice([0, 1000, 1_000_000, 5_000_000])
            wait = Wait(ctypes.sizeof(Wait), 0, timeout, rng.choice([0, 0, 0, self.handle()]), None, None)
            self.keep.append(wait)
            return ctypes.byref(wait)
        if kind == "const pf_tensor *":
            tensor = self.tensor()
            self.keep.append(tensor)
            return ctypes.byref(tensor) if rng.random() < 0.95 else None
        if kind in ("pf_tuple *", "const pf_tuple *"):
            if not self.tuples or rng.random() < 0.5:
                self.tuples.append(TupleOut(ctypes.sizeof(TupleOut), 0, None, 0))
            return ctypes.byref(rng.choice(self.tuples))
        if kind == "const pf_queue_options *":
            dims = (ctypes.c_int64 * 1)(rng.choice([-1, 2, 2, 0, 1 << 62]))
            spec = SlotSpec(ctypes.sizeof(SlotSpec), rng.choice([0, 5, 5, 77]), 1, 0, dims)
            slots = rng.choice([0, 1, 1, 1])
            options = QueueOptions(ctypes.sizeof(QueueOptions), slots, ctypes.pointer(spec), rng.choice([0, 1, 4]))
            options.restartable = rng.randrange(2)
            self.keep += [dims, spec, options]
            return ctypes.byref(options)
        if kind == "const char *":
            if name == "op":
                return rng.choice([*OPERATORS, *ATTRIBUTES[-3:]])
            if name in ("attributes", "variable"):
                return rng.choice([None, *ATTRIBUTES])
            if name in ("path", "filename"):
                return rng.choice([b"out.npy", b"out.pb", b"a.npy", b"missing/x.npy", b"", b"x" * 300])
            return rng.choice([None, *NAMES])
        if kind in ("const char *const *", "const char * const *"):
            names = (ctypes.c_char_p * 2)(rng.choice(NAMES), rng.choice(NAMES))
            self.keep.append(names)
            return names
        if kind.endswith("*"):  # an output, or a struct in which only the size is set
            out = ctypes.create_string_buffer(1024)
            if not kind.endswith("**") and rng.random() < 0.7:
                ctypes.memmove(
                    out, rng.choice([8, 64, 256, 1000]).to_bytes(4, "little"), 4
                )  # a struct begins with its size
            if rng.random() < 0.05 and kind.startswith("const"):
                return None
            self.keep.append(out)
            return ctypes.byref(out)
        raise KeyError(f"{kind} {name}")

    def step(self) -> None:
        function = self.rng.choice(FUNCTIONS)
        arguments = [self.argument(kind, name) for kind, name in function.parameters]
        if function.name == "pf_program_parse":
            arguments[1] = ctypes.c_uint64(min(arguments[1].value, len(arguments[0] or b"")))
        status = function.call(*arguments)
        expect(status < STATUSES, "crashes", f"{function.name} returned {status}, which is not a pf_status")
        for (kind, _), argument in zip(function.parameters, arguments, strict=True):
            if status == 0 and kind == "pf_handle *":
                self.handles.append(int.from_bytes(bytes(argument._obj[:8]), "little"))
            if status == 0 and kind in ("char **",):
                LIBRARY.pf_string_release(ctypes.c_void_p(int.from_bytes(bytes(argument._obj[:8]), "little")))
        if function.name == "pf_retain" and status == 0:
            self.handles.append(arguments[0].value)
        if function.name == "pf_release" and status == 0:
            released = arguments[0].value
            if released in self.handles:
                self.handles.remove(released)
            if released not in self.handles:
                self.stale.append(released)
        LIBRARY.pf_error_release(self.error)

    def finish(self) -> None:
        for tuple_ in self.tuples:
            LIBRARY.pf_tuple_release(ctypes.byref(tuple_))
        for handle in self.handles:
            LIBRARY.pf_release(ctypes.c_uint64(handle), None)


def run_round(rng: random.Random, folder: Path) -> None:
    home = os.getcwd()
    os.chdir(folder)
    try:
        with pyfeed.open_writer("a.npy") as writer:
            for i in range(5):
                writer.write((np.full(2, i),))
        one = Round(rng)
        for _ in range(2000):
            one.step()
        one.finish()
    finally:
        os.chdir(home)
