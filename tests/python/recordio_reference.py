"""A second implementation of RecordIO, in both layouts, and of the tensors in Fluid's records, to test the library.

It follows the specification and uses only the standard library. It is meant to be easy to read, not fast. All integers
are little-endian unless a name says otherwise.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAGIC = b"\x04\x03\x02\x01"
NONE, SNAPPY, GZIP = 0, 1, 2
COMPRESSORS = {"none": NONE, "snappy": SNAPPY, "gzip": GZIP}

# The golden files of the specification, and their records.
GOLDEN_RECORDS = [b"ABC", b"", b"DEFG"]
GOLDEN = {
    "go": bytes.fromhex("04030201 61933802 00000000 13000000 03000000 03000000 414243 00000000 04000000 44454647"),
    "fluid": bytes.fromhex("04030201 03000000 61933802 00000000 13000000 03000000 414243 00000000 04000000 44454647"),
}


class Damaged(ValueError):
    """The bytes do not follow the format."""


def expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Damaged(f"{what}: expected {expected!r}, found {found!r}")


class Cursor:
    """Reads bytes from front to back, and never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, n: int) -> bytes:
        got = self.data[self.at : self.at + n]
        expect(len(got), n, f"bytes from {self.at} on")
        self.at += n
        return got

    def number(self, form: str) -> int:
        (n,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(n)

    def varint(self) -> int:
        n = 0
        for shift in range(0, 64, 7):
            byte = self.number("B")
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                return n
        raise Damaged("a varint of more than 64 bits")


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1  # negative numbers are two's complement, as protobuf's int64 is
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


# ---- Snappy: the block, and its two framings --------------------------------------------------


def _crc32c_table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_CRC32C = _crc32c_table()


def crc32c(data: bytes) -> int:
    c = 0xFFFFFFFF
    for byte in data:
        c = _CRC32C[(c ^ byte) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def snappy_block(data: bytes) -> bytes:
    """Make a valid snappy block of literals only, which is not compressed."""
    out = [varint(len(data))]
    for at in range(0, len(data), 1 << 16):
        literal = data[at : at + (1 << 16)]
        out += [bytes([61 << 2]), struct.pack("<H", len(literal) - 1), literal]  # 61: the length follows in two bytes
    return b"".join(out)


def snappy_unblock(block: bytes) -> bytes:
    c = Cursor(block)
    size = c.varint()
    out = bytearray()
    while c:
        tag = c.number("B")
        kind, n = tag & 3, tag >> 2
        if kind == 0:  # a literal
            if n >= 60:
                n = int.from_bytes(c.take(n - 59), "little")
            out += c.take(n + 1)
            continue
        if kind == 1:
            n, offset = (n & 7) + 4, tag >> 5 << 8 | c.number("B")
        else:
            n, offset = n + 1, c.number("<H" if kind == 2 else "<I")
        if not 1 <= offset <= len(out):
            raise Damaged(f"a copy from {offset} bytes back, of {len(out)}")
        for _ in range(n):  # byte by byte, since a copy may overlap its result
            out.append(out[-offset])
    expect(len(out), size, "size of a snappy block")
    return bytes(out)


OLD_MAGIC, OLD_BLOCK = b"snappy\x00", 32768
FRAMING_MAGIC, FRAMING_BLOCK = b"\xff\x06\x00\x00sNaPpY", 65536


def old_framing(data: bytes, *, stored: bool = False) -> bytes:
    """Frame data as Fluid does. Fluid's writer stores blocks that do not shrink by an eighth, such as literals."""
    out = [OLD_MAGIC]
    for at in range(0, len(data), OLD_BLOCK):
        block = data[at : at + OLD_BLOCK]
        body = snappy_block(block)
        if stored or len(body) > OLD_BLOCK:
            out += [struct.pack(">BHI", 0, len(block), masked(block)), block]
        else:
            out += [struct.pack(">BHI", 1, len(body), masked(block)), body]
    return b"".join(out)


def old_unframing(data: bytes) -> bytes:
    c = Cursor(data)
    expect(c.take(7), OLD_MAGIC, "magic of a snappy stream")
    out = []
    while c:
        if data.startswith(OLD_MAGIC, c.at):
            c.take(7)
            continue
        flag, size, checksum = struct.unpack(">BHI", c.take(7))
        if flag > 1 or size > OLD_BLOCK:
            raise Damaged(f"a block with the flag {flag} and {size} bytes")
        block = snappy_unblock(c.take(size)) if flag else c.take(size)
        if len(block) > OLD_BLOCK:
            raise Damaged(f"a block of {len(block)} bytes")
        expect(masked(block), checksum, "checksum of a snappy block")
        out.append(block)
    return b"".join(out)


def standard_framing(data: bytes, *, stored: bool = False) -> bytes:
    out = [FRAMING_MAGIC]
    for at in range(0, len(data), FRAMING_BLOCK):
        block = data[at : at + FRAMING_BLOCK]
        body = struct.pack("<I", masked(block)) + (block if stored else snappy_block(block))
        out += [bytes([int(stored)]), len(body).to_bytes(3, "little"), body]
    return b"".join(out)


def standard_unframing(data: bytes) -> bytes:
    expect(data[:10], FRAMING_MAGIC, "magic of a snappy stream")
    c = Cursor(data)
    out = []
    while c:
        kind = c.number("B")
        body = c.take(int.from_bytes(c.take(3), "little"))
        if kind <= 1:
            (checksum,) = struct.unpack_from("<I", body)
            block = body[4:] if kind else snappy_unblock(body[4:])
            if len(block) > FRAMING_BLOCK:
                raise Damaged(f"a block of {len(block)} bytes")
            expect(masked(block), checksum, "checksum of a snappy block")
            out.append(block)
        elif kind < 0x80:
            raise Damaged(f"a frame of kind {kind:#04x}, which may not be skipped")
    return b"".join(out)


# ---- Chunks -----------------------------------------------------------------------------------


def encode_chunk(
    records: Sequence[bytes], layout: str = "fluid", compression: str = "none", *, stored: bool = False
) -> bytes:
    payload = b"".join(struct.pack("<I", len(r)) + r for r in records)
    if compression == "snappy":
        payload = (old_framing if layout == "fluid" else standard_framing)(payload, stored=stored)
    elif compression == "gzip":
        if layout == "fluid":
            raise ValueError("only Go's layout has gzip")
        payload = gzip.compress(payload, mtime=0)
    checksum, compressor = zlib.crc32(payload), COMPRESSORS[compression]
    if layout == "fluid":
        return MAGIC + struct.pack("<4I", len(records), checksum, compressor, len(payload)) + payload
    return MAGIC + struct.pack("<4I", checksum, compressor, len(payload), len(records)) + payload


def encode(
    records: Sequence[bytes],
    layout: str = "fluid",
    compression: str = "none",
    *,
    records_per_chunk: int = 1000,
    stored: bool = False,
) -> bytes:
    """Make a file. A file without records has no bytes."""
    chunks = (records[at : at + records_per_chunk] for at in range(0, len(records), records_per_chunk))
    return b"".join(encode_chunk(c, layout, compression, stored=stored) for c in chunks)


class Chunk(NamedTuple):
    layout: str
    compression: str
    offset: int
    records: list[bytes]


def chunks(data: bytes) -> Iterator[Chunk]:
    c = Cursor(data)
    while c:
        offset = c.at
        expect(c.take(4), MAGIC, "magic of a chunk")
        fields = struct.unpack("<4I", c.take(16))
        if fields[2] <= 1:
            layout = "fluid"
            count, checksum, compressor, size = fields
        else:
            layout = "go"
            checksum, compressor, size, count = fields
        payload = c.take(size)
        expect(zlib.crc32(payload), checksum, "checksum of a chunk")
        if compressor not in COMPRESSORS.values() or (layout == "go" and size < 4) or not count:
            raise Damaged(f"a header of {fields}")
        if compressor == SNAPPY:
            payload = (old_unframing if layout == "fluid" else standard_unframing)(payload)
        elif compressor == GZIP:
            payload = gzip.decompress(payload)
        inside = Cursor(payload)
        records = [inside.take(inside.number("<I")) for _ in range(count)]
        expect(bool(inside), False, "bytes after the last record of a chunk")
        yield Chunk(layout, list(COMPRESSORS)[compressor], offset, records)


def decode(data: bytes) -> list[bytes]:
    """Return the records of a file, or raise Damaged."""
    return [record for chunk in chunks(data) for record in chunk.records]


# ---- Fluid's tensors --------------------------------------------------------------------------

TYPES = {
    "bool": (0, 1),
    "int16": (1, 2),
    "int32": (2, 4),
    "int64": (3, 8),
    "float16": (4, 2),
    "float32": (5, 4),
    "float64": (6, 8),
    "uint64": (19, 8),  # SIZE_T
    "uint8": (20, 1),
    "int8": (21, 1),
}
_NAMES = {number: name for name, (number, _) in TYPES.items()}


class Tensor(NamedTuple):
    dtype: str
    dims: tuple[int, ...]
    data: bytes
    lod: tuple[tuple[int, ...], ...] = ()  # offsets, the outermost level first


def encode_tensor(t: Tensor, *, packed: bool = False) -> bytes:
    lod = b"".join(struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level) for level in t.lod)
    dims = b"".join(varint(d) if packed else b"\x10" + varint(d) for d in t.dims)
    if packed:
        dims = b"\x12" + varint(len(dims)) + dims
    description = b"\x08" + varint(TYPES[t.dtype][0]) + dims
    return struct.pack("<IQ", 0, len(t.lod)) + lod + struct.pack("<Ii", 0, len(description)) + description + t.data


def encode_tensors(tensors: Sequence[Tensor], *, packed: bool = False) -> bytes:
    """Make the record of a tuple."""
    return struct.pack("<I", len(tensors)) + b"".join(encode_tensor(t, packed=packed) for t in tensors)


def _signed(n: int) -> int:
    return n - (1 << 64) if n >> 63 else n


def _description(data: bytes) -> tuple[str, tuple[int, ...]]:
    c = Cursor(data)
    number = None
    dims: list[int] = []
    while c:
        field = c.varint()
        if field == 1 << 3:
            number = c.varint()
        elif field == 2 << 3:
            dims.append(_signed(c.varint()))
        elif field == 2 << 3 | 2:
            inside = Cursor(c.take(c.varint()))
            while inside:
                dims.append(_signed(inside.varint()))
        else:
            raise Damaged(f"a field {field >> 3} of wire type {field & 7} in a TensorDesc")
    if number not in _NAMES or min(dims, default=0) < 0:
        raise Damaged(f"a type {number} with dims {dims}")
    return _NAMES[number], tuple(dims)


def decode_tensor(c: Cursor) -> Tensor:
    expect(c.number("<I"), 0, "version of a LoDTensor")
    lod = []
    for _ in range(c.number("<Q")):
        size = c.number("<Q")
        expect(size % 8, 0, "size of a LoD level, modulo 8")
        lod.append(struct.unpack(f"<{size // 8}Q", c.take(size)))
    expect(c.number("<I"), 0, "version of a Tensor")
    size = c.number("<i")
    if size < 0:
        raise Damaged(f"a description of {size} bytes")
    dtype, dims = _description(c.take(size))
    n = TYPES[dtype][1]
    for d in dims:
        n *= d
    return Tensor(dtype, dims, c.take(n), tuple(lod))


def decode_tensors(record: bytes) -> list[Tensor]:
    """Return the tensors of a record of Fluid, or raise Damaged."""
    c = Cursor(record)
    tensors = [decode_tensor(c) for _ in range(c.number("<I"))]
    expect(bool(c), False, "bytes after the last tensor of a record")
    return tensors
