"""Corrupted files of every format: with wrong checksums, or with all checksums corrected.

If the checksums are wrong, a format with checksums must raise an error or deliver the records that were written. If the
checksums are right, a reader may deliver any tuples that its spec allows, or raise one of pyfeed's errors. In both
cases it must end, and must use little memory.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyfeed.__main__ import main as command_line

import pyfeed
from pyfeed import LoDTensor, Reader, Scope
from tests.python import recordio_reference as reference

from .failures import Failure, expect, no_leaks, process_status

MAX_MEMORY = 1 << 30  # bytes, while a file of some KiB is read
MAX_TUPLES = 1_000_000

Row = tuple[bytes, ...]


class Kind(NamedTuple):
    """A kind of file: how it is written and read, and whether checksums cover all of its records."""

    suffix: str
    write: Callable[[Path, random.Random], None]
    read: dict[str, Any]
    checked: bool
    rebuild: Callable[[bytes, random.Random], bytes] | None  # damages the file and corrects its checksums


# ---- Contents of the files -------------------------------------------------------------------


def arrays(rng: random.Random) -> list[tuple[Any, ...]]:
    width = rng.choice([1, 3, 40, 1000])
    return [
        (np.array([rng.random() for _ in range(min(width, 8))] * (width // min(width, 8)), "float32"), np.int64(i))
        for i in range(rng.randint(1, 60))
    ]


def words(rng: random.Random) -> list[tuple[bytes]]:
    return [(rng.randbytes(rng.choice([0, 1, 5, 300, 5000])),) for _ in range(rng.randint(1, 40))]


def written(rows: Callable[[random.Random], list[Any]], **options: Any) -> Callable[[Path, random.Random], None]:
    def write(path: Path, rng: random.Random) -> None:
        with pyfeed.open_writer(path, **options) as writer:
            for row in rows(rng):
                writer.write(row)

    return write


def column(rng: random.Random) -> list[tuple[Any]]:
    return [(image,) for image, _ in arrays(rng)]


def ids(rng: random.Random) -> list[tuple[Any]]:
    return [
        (LoDTensor.from_sequences([np.arange(rng.randint(0, 20), dtype="int32")]),) for _ in range(rng.randint(1, 200))
    ]


def fixed(rng: random.Random) -> list[tuple[Any, ...]]:
    return [(np.arange(5, dtype="int32") * i, np.float64(i)) for i in range(rng.randint(1, 200))]


def table(rng: random.Random) -> list[tuple[Any, ...]]:
    return [(np.float64(rng.random()), np.int64(i), f"w,{i}\n") for i in range(rng.randint(1, 100))]


# ---- Damage ----------------------------------------------------------------------------------


def edge(rng: random.Random, bits: int) -> int:
    """Return an unsigned number at which arithmetic often goes wrong: 0, 1, -1, -2, 2**k or 2**k - 1."""
    return (rng.choice([0, 1, -1, 1 << rng.randrange(bits), (1 << rng.randrange(bits)) - 1, -2])) % (1 << bits)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the data with some bytes changed, removed, inserted, or copied from elsewhere."""
    out = bytearray(data)
    if out and rng.random() < 0.3:  # flip one bit; in half of these cases one of the first 24 bytes, a header's
        out[rng.randrange(min(len(out), rng.choice([24, len(out)])))] ^= 1 << rng.randrange(8)
        return bytes(out)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 30])):
        at = rng.randrange(len(out) + 1)
        how = rng.randrange(8)
        if how == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            out[at : at + 1] = rng.randbytes(1)
        elif how == 2:
            del out[at : at + rng.choice([1, 2, 8, 100])]
        elif how == 3:
            out[at:at] = rng.randbytes(rng.choice([1, 2, 8, 100]))
        elif how == 4:
            del out[at:]
        elif how == 5:
            size = rng.choice([1, 2, 4, 8])
            out[at : at + size] = edge(rng, 8 * size).to_bytes(size, rng.choice(["little", "big"]))
        elif how == 6:
            first = rng.randrange(len(out) + 1)
            out[at:at] = out[first : first + rng.choice([4, 64, 1000])]
        else:
            out[at : at + 1] = rng.choice([b"\0", b"\xff", b"\n", b'"', b"{", b"-", b"9" * 30, b"e", b",", b"'"])
    return bytes(out)


def framed(size: int, data: bytes) -> bytes:
    head = struct.pack("<Q", size)
    return head + struct.pack("<I", reference.masked(head)) + data + struct.pack("<I", reference.masked(data))


def tfrecord(data: bytes, rng: random.Random) -> bytes:
    """Return records with wrong data and sizes, all with correct CRC-32C sums."""
    records, at = [], 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        records.append(data[at + 12 : at + 12 + size])
        at += size + 16
    for _ in range(rng.choice([1, 1, 3])):
        i = rng.randrange(len(records))
        records[i] = damaged(records[i], rng)
    wrong = rng.randrange(len(records)) if rng.random() < 0.3 else -1
    return b"".join(framed(edge(rng, 64) if i == wrong else len(r), r) for i, r in enumerate(records))


def recordio(data: bytes, rng: random.Random) -> bytes:
    """Return chunks with wrong stored bytes or counts and a correct CRC-32."""
    go = struct.unpack_from("<I", data, 12)[0] > 2  # where Fluid's layout has the compressor
    out, at = b"", 0
    while at + 20 <= len(data):
        numbers = struct.unpack_from("<4I", data, at + 4)
        count, compressor, size = (numbers[3], numbers[1], numbers[2]) if go else (numbers[0], *numbers[2:])
        body = data[at + 20 : at + 20 + size]
        if rng.random() < 0.7:
            packed = compressor == reference.GZIP
            body = gzip.compress(damaged(gzip.decompress(body), rng), 1) if packed else damaged(body, rng)
        if rng.random() < 0.2:
            count = edge(rng, 32)
        if rng.random() < 0.1:
            compressor = rng.choice([0, 1, 2, 3, 255])
        sum_, stored = zlib.crc32(body), len(body)
        head = (sum_, compressor, stored, count) if go else (count, sum_, compressor, stored)
        out += reference.MAGIC + struct.pack("<4I", *head) + body
        at += 20 + size
    return out


def npz(data: bytes, rng: random.Random) -> bytes:
    """Return a valid archive with damaged members."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            member = old.read(name)
            how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
            if rng.random() < 0.7:  # mostly damage the header
                split = rng.choice([128, len(member)])
                member = damaged(member[:split], rng) + member[split:]
            new.writestr(name, member, how)
    return out.getvalue()


def tar(data: bytes, rng: random.Random) -> bytes:
    """Return members with wrong contents and header fields, and correct header checksums."""
    out = bytearray(data)
    headers = []
    with tarfile.open(fileobj=io.BytesIO(data)) as old:
        headers = [member.offset for member in old]
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.choice(headers)
        field, size = rng.choice([(0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)])
        new = rng.choice([
            rng.randbytes(size),
            b"%0*o" % (size - 1, edge(rng, 33)),
            b"\x80" + rng.randbytes(size),
            damaged(bytes(out[at + field : at + field + size]), rng),
            rng.choice([b"L", b"K", b"x", b"g", b"S", b"5", b"0", b"\0", b"1"]),
        ])  # fmt: skip
        out[at + field : at + field + size] = new[:size].ljust(size, b"\0")
        head = bytes(out[at : at + 148]) + b" " * 8 + bytes(out[at + 156 : at + 512])
        out[at + 148 : at + 156] = b"%06o\0 " % sum(head)
    if rng.random() < 0.3:
        for at in headers:
            out[at + 512 : at + 700] = damaged(bytes(out[at + 512 : at + 700]), rng)[:188].ljust(188, b"\0")
    return bytes(out)


def packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes], inner: Any) -> Any:
    """Return a function that damages the content of a compressed file and compresses it again."""

    def rebuild(data: bytes, rng: random.Random) -> bytes:
        return pack(inner(unpack(data), rng))

    return rebuild


GZIP = (gzip.compress, gzip.decompress)
ZLIB = (zlib.compress, zlib.decompress)
FEATURES = {"x": {"kind": "variable", "dtype": "float32"}, "y": "int64"}
XY = {"names": ["x", "y"]}
TOKENS = {"dtype": "int32", "length": 4}
RAW = {"shapes": [(5,), ()], "dtypes": ["int32", "float64"]}
KINDS = [
    Kind("recordio", written(arrays, records_per_chunk=7), {}, True, recordio),
    Kind("recordio", written(arrays, compression="snappy"), {}, True, recordio),
    Kind("recordio", written(words, layout="go"), {"records": "bytes"}, True, recordio),
    Kind("recordio.gz", written(arrays), {}, True, packed(*GZIP, recordio)),
    Kind("tfrecord", written(words), {}, True, tfrecord),
    Kind("tfrecord", written(arrays, **XY), {"features": FEATURES}, True, tfrecord),
    Kind("tfrecord.gz", written(arrays, **XY), {"features": FEATURES}, True, packed(*GZIP, tfrecord)),
    Kind("recordio.zst", written(arrays), {}, True, None),
    Kind("csv.sz", written(table, names=["a", "b", "c"]), {}, True, None),
    Kind("tfrecord.zlib", written(words), {"compression": "zlib"}, True, packed(*ZLIB, tfrecord)),
    Kind("tar", written(arrays, names=["x.npy", "y.npy"]), {}, False, tar),
    Kind("tar", written(words, names=["bin"]), {}, False, tar),
    Kind("tar.gz", written(arrays, names=["x.npy", "y.npy"]), {}, False, packed(*GZIP, tar)),
    Kind("npy", written(column), {}, False, damaged),
    Kind("npy.gz", written(column), {}, True, packed(*GZIP, damaged)),
    Kind("npz", written(arrays, **XY), {}, False, npz),
    Kind("npz", written(arrays, **XY, compression="deflate"), {}, False, npz),
    Kind("arrow", written(fixed, batch_records=8), {}, False, damaged),
    Kind("arrow", written(fixed, compression="lz4"), {}, False, damaged),
    Kind("arrows", written(words, batch_records=3, compression="zstd"), {}, False, damaged),
    Kind("arrows.gz", written(fixed), {}, True, packed(*GZIP, damaged)),
    Kind("csv", written(table, names=["a", "b", "c"]), {}, False, damaged),
    Kind("jsonl", written(table, names=["a", "b", "c"]), {}, False, damaged),
    Kind("csv.gz", written(table, names=["a", "b", "c"]), {}, True, packed(*GZIP, damaged)),
    Kind("raw", written(fixed), RAW, False, damaged),
    Kind("raw.sz", written(fixed), RAW, True, None),
    Kind("idx", written(column), {}, False, damaged),
    Kind("mds", written(arrays, **XY), {}, False, damaged),
    Kind("tokens", written(ids, format="tokens", dtype="int32"), TOKENS, False, damaged),
    Kind("parquet", written(arrays, row_group_records=7), {}, False, damaged),
    Kind("parquet", written(words, compression="zstd"), {}, False, damaged),
]  # fmt: skip


# ---- Reading ---------------------------------------------------------------------------------


def row(tuple_: tuple[Any, ...]) -> Row:
    out: list[bytes] = []
    for slot in tuple_:
        if isinstance(slot, LoDTensor):
            out += [slot.data.tobytes(), *(level.tobytes() for level in slot.lod)]
        else:
            out.append(slot.tobytes())
    return tuple(out)


def drain(reader: Reader) -> list[Row]:
    out = []
    for tuple_ in reader:
        out.append(row(tuple_))
        expect(len(out) <= MAX_TUPLES, "hangs", f"a reader of a small file delivered more than {MAX_TUPLES} tuples")
    return out


def opened(paths: list[Path], kind: Kind, rng: random.Random, **more: Any) -> Reader:
    options = {**kind.read, "num_threads": rng.choice([0, 1, 2, 4]), "io": rng.choice(["auto", "map", "read"]), **more}
    if len(paths) > 1:
        options["num_threads"] = max(1, options["num_threads"])
    return pyfeed.open_files(paths, format=kind.suffix.partition(".")[0], scope=Scope(), **options)


def through(reader: Reader, rng: random.Random) -> Reader:
    for _ in range(rng.randint(0, 3)):
        how = rng.randrange(4)
        if how == 0:
            reader = reader.shuffle(rng.randint(1, 20))
        elif how == 1:
            reader = reader.double_buffer()
        elif how == 2:
            reader = reader.shard(0, 2)
        else:
            reader = reader.multi_pass(2)
    return reader.batch(rng.randint(1, 9)) if rng.random() < 0.3 else reader


def check(paths: list[Path], kind: Kind, rng: random.Random, whole: list[Row], wrong_sums: bool) -> None:
    damage: pyfeed.errors.Error | None = None
    found: list[Row] = []
    try:
        found = drain(opened(paths[:1], kind, rng))
    except pyfeed.errors.Error as error:
        damage = error
    if wrong_sums and kind.checked and damage is None:
        expect(found == whole, "losses", f"wrote {len(whole)} records, read {len(found)} others without an error")

    for more in ({"on_corrupt": "skip"}, {"on_corrupt": rng.choice(["raise", "skip"]), "interleave": 2}):
        try:
            reader = through(opened(paths if "interleave" in more else paths[:1], kind, rng, **more), rng)
            reader.stats()
            drain(reader)
            reader.reset()
            reader.read()
        except (pyfeed.errors.Error, StopIteration):
            pass

    if rng.random() < 0.2:
        arguments = ["verify", str(paths[0])]
        arguments += ["--format", kind.suffix.partition(".")[0]]
        arguments += ["--compression", kind.read["compression"]] if "compression" in kind.read else []
        if kind.suffix.startswith("raw"):
            arguments += ["--slots", '[{"dtype": "int32", "dims": [5]}, {"dtype": "float64"}]']
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = command_line(arguments)
        expect(code in (0, 1, 2), "crashes", f"verify ends with {code}: {out.getvalue()}")
        corrupt = isinstance(damage, pyfeed.errors.CorruptRecordError)
        if corrupt and not kind.read:
            expect(code, "losses", f"reading says {damage}, but verify says {out.getvalue()}")


def run_round(rng: random.Random, folder: Path) -> None:
    kind = rng.choice(KINDS)
    seed = rng.randrange(1 << 30)
    path, good = (folder / f"{name}.{kind.suffix}" for name in ("damaged", "good"))
    kind.write(good, random.Random(seed))
    data = good.read_bytes()
    with no_leaks():
        whole = drain(opened([good], kind, rng))
        again = drain(opened([good], kind, rng))
        expect(whole == again and whole, "losses", f"{kind.suffix}: two readings differ: {len(whole)}, {len(again)}")
        try:
            for _ in range(3):
                wrong_sums = kind.rebuild is None or rng.random() < 0.5
                data_now = data
                while data_now == data:
                    data_now = damaged(data, rng) if wrong_sums or not kind.rebuild else kind.rebuild(data, rng)
                path.write_bytes(data_now)
                Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of the memory
                before = process_status("VmRSS")
                # A file that was cut at the end of a record is valid: no checksum covers the number of records.
                short = data.startswith(data_now) or data_now.startswith(data)
                check([path, good], kind, rng, whole, wrong_sums and not short and simple(data, data_now))
                peak = process_status("VmHWM") - before
                expect(peak < MAX_MEMORY, "leaks", f"{kind.suffix}: {len(data_now)} bytes took {peak} bytes to read")
        except BaseException as error:
            keep = Path("build/long/failures")
            keep.mkdir(parents=True, exist_ok=True)
            kept = keep / f"{os.getpid()}-{path.name}"
            kept.write_bytes(path.read_bytes())
            kept.with_name(f"{os.getpid()}-{good.name}").write_bytes(data)
            note = f"{kind.suffix} {kind.read}: {type(error).__name__}: {error}; the file is {kept}"
            raise Failure(getattr(error, "kind", "crashes"), note) from error


def simple(data: bytes, other: bytes) -> bool:
    """Whether at most 64 bytes have changed and none has moved, so that every record begins where it did."""
    return len(data) == len(other) and sum(a != b for a, b in zip(data, other, strict=True)) <= 64
