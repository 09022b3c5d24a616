"""The features of a TFRecord file: what inspect finds in a tf.train.Example, and messages about wrong features."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import tfrecord
from hypothesis import strategies as st
from pyfeed._example_features import array_sizes, describe_example
from tfrecord import example_pb2

import pyfeed
from pyfeed import open_files, open_tfrecord, open_writer

from .support import raises


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def field(number: int, *values: bytes) -> bytes:
    """Return a field with a length."""
    value = b"".join(values)
    return varint(number << 3 | 2) + varint(len(value)) + value


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def float32(field: int, x: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", x)


def entry(name: str, *feature: bytes) -> bytes:
    return field(1, field(1, name.encode()), field(2, *feature))


def example(*entries: bytes) -> bytes:
    return field(1, *entries)


def ints(*values: int) -> bytes:
    return field(3, field(1, *map(varint, values)))


def floats(*values: float) -> bytes:
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def words(*values: bytes) -> bytes:
    return field(1, *(field(1, v) for v in values))


def read_first(path: Path, record: bytes, features: dict[str, Any]) -> list[Any]:
    """Write the record into a file, and read it with these features. The lists are those of the features."""
    with open_writer(path) as writer:
        writer.write((record,))
    ((*slots,),) = open_tfrecord(path, features=features, num_threads=0)
    return [
        slot.bytes_list() if "bytes" in str(f) else values_of(slot)
        for slot, f in zip(slots, features.values(), strict=True)
    ]


def values_of(slot: Any) -> list[Any]:
    values: list[Any] = np.ravel(slot.data if isinstance(slot, pyfeed.LoDTensor) else slot).tolist()
    return values


# ---- describe_example ----


def test_every_kind_of_feature(tmp_path: Path) -> None:
    record = example(
        entry("weights", floats(*range(8))),
        entry("height", ints(480)),
        entry("image_raw", words(b"jpeg")),
        entry("tags", words(b"a", b"", b"c")),
        entry("boxes", floats()),
        entry("objects", field(3)),
        entry("names", field(1)),
        entry("scale", floats(0.5)),
        entry("ids", ints(-1 % 2**64, 2**63 - 1)),
        entry("größe", ints(1)),
    )
    features = describe_example(record)
    assert features is not None
    assert list(features.items()) == [
        ("boxes", {"dtype": "float32", "kind": "variable"}),
        ("größe", "int64"),
        ("height", "int64"),
        ("ids", {"dtype": "int64", "shape": [2]}),
        ("image_raw", "bytes"),
        ("names", {"dtype": "bytes", "kind": "variable"}),
        ("objects", {"dtype": "int64", "kind": "variable"}),
        ("scale", "float32"),
        ("tags", {"dtype": "bytes", "shape": [3]}),
        ("weights", {"dtype": "float32", "shape": [8]}),
    ]
    assert read_first(tmp_path / "a.tfrecord", record, features) == [
        [], [1], [480], [-1, 2**63 - 1], [b"jpeg"], [], [], [0.5], [b"a", b"", b"c"], list(range(8)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "features"),
    [
        (b"", {}),
        (example(), {}),
        (example(entry("no list"), entry("", ints(1)), entry("unknown", number(5, 1))), {}),
        # Numbers that are not packed, and several packed fields.
        (example(entry("x", field(3, number(1, 5), field(1, varint(300)), field(1), number(1, 7)))), [3]),
        (example(entry("x", field(2, float32(1, 5), field(1, bytes(8))))), [3]),
        # Unknown fields, and fields of these numbers with another wire type.
        (number(9, 300) + float32(10, 1) + b"\x59" + bytes(8) + example(entry("x", ints(1, 2)), number(1, 5)), [2]),
        (example(entry("x", field(3, float32(1, 1), field(2, b"?"), field(1, b"\1\2")))), [2]),
        # The last of two features with one name, the last of two lists, and lists in parts.
        (example(entry("x", words(b"")), entry("x", ints(1, 2))), [2]),
        (example(entry("x", words(b"")), entry("x")), {}),
        (example(entry("x", words(b""), ints(1, 2))), [2]),
        (example(entry("x", ints(1), ints(2))), [2]),
        (example() + example(entry("x", ints(1), number(9, 1), ints(2))), [2]),
        (example(field(1, field(2, ints(1)), field(1, b"y"), field(2, ints(2)), field(1, b"x"))), [2]),
        # Varints of up to 64 bits.
        (example(entry("x", ints(2**64 - 1, 0, 2**64 - 1))), [3]),
    ],
)
def test_encodings_of_an_example(record: bytes, features: Any) -> None:
    if isinstance(features, list):
        dtype = "float32" if struct.pack("<f", 5) in record else "int64"
        features = {"x": {"dtype": dtype, "shape": features}}
    assert describe_example(record) == features


@pytest.mark.parametrize(
    "record",
    [
        b"\0\0",  # a field with the number 0
        b"\x0f",  # an unknown wire type
        b"\x0b\x08\x01\x0c",  # a group
        b"\x8a",  # a tag without an end
        b"\x0a\x80",
        b"\x0a\x02\x00",  # more than the record has
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x08" + b"\xff" * 10 + b"\x01",
        b"\x08" + b"\xff" * 9 + b"\x02",
        b"\x0d\x00\x00",
        b"a text of any length",
        b"\x89PNG\r\n\x1a\n",
        example(b"\xff"),
        example(field(1, field(1, b"\xff"), field(2, ints(1)))),  # a name that is not UTF-8
        example(entry("x", b"\x1a\x05")),
        example(entry("x", field(3, b"\x0a\x05"))),
        example(entry("x", field(3, field(1, b"\x01\x80")))),
        example(entry("x", field(3, field(1, b"\xff" * 10 + b"\x01")))),
        example(entry("x", field(3, field(1, b"\xff" * 9 + b"\x02")))),
        example(entry("x", field(2, field(1, b"seven..")))),
        example(entry("x", field(1, field(1, b"good"), b"\x0a\x09b"))),
        example(entry("x", ints(1))) + field(2, b"\xff"),  # a SequenceExample with lists that are none
    ],
)
def test_records_that_are_not_examples(record: bytes) -> None:
    assert describe_example(record) is None


def test_sequence_examples() -> None:
    def steps(name: str, *features: bytes) -> bytes:
        return field(1, field(1, name.encode()), field(2, *(field(1, one) for one in features)))

    context = example(entry("x", ints(1)), entry("y", ints(1, 2)))
    assert describe_example(context + field(2)) == {
        "x": {"dtype": "int64", "part": "context"},
        "y": {"dtype": "int64", "shape": [2], "part": "context"},
    }
    lists = field(
        2,
        steps("one", ints(1), ints(2)),
        steps("some", words(b"a"), words(b"a", b"b")),
        steps("gap", floats(1), b""),
        steps("mixed", floats(1), ints(1)),
        steps("none"),
        steps("x", ints(1)),
        steps("", ints(1)),
    )
    assert describe_example(lists + context) == {
        "x": "int64",
        "y": {"dtype": "int64", "shape": [2]},
        "gap": {"dtype": "float32", "kind": "variable", "part": "feature_lists"},
        "one": {"dtype": "int64", "part": "feature_lists"},
        "some": {"dtype": "bytes", "kind": "variable", "part": "feature_lists"},
    }


def test_large_lists() -> None:
    record = example(
        entry("packed", ints(*[300] * 100_000)),
        entry("single", field(3, number(1, 1) * 50_000)),
        entry("words", words(*[b"word"] * 50_000)),
        entry("image", words(bytes(10_000_000))),
    )
    assert describe_example(memoryview(record)) == {
        "image": "bytes",
        "packed": {"dtype": "int64", "shape": [100_000]},
        "single": {"dtype": "int64", "shape": [50_000]},
        "words": {"dtype": "bytes", "shape": [50_000]},
    }


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(lambda name: "\0" not in name)
LISTS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(
        lambda v: example_pb2.Feature(int64_list=example_pb2.Int64List(value=v))
    ),
    st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(
        lambda v: example_pb2.Feature(float_list=example_pb2.FloatList(value=v))
    ),
    st.lists(st.binary(max_size=4), max_size=4).map(
        lambda v: example_pb2.Feature(bytes_list=example_pb2.BytesList(value=v))
    ),
)


def values_in(feature: Any) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind")).value)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(lists=st.dictionaries(NAMES, LISTS, min_size=1, max_size=4))
def test_examples_by_protobuf(tmp_path_factory: pytest.TempPathFactory, lists: dict[str, Any]) -> None:
    message = example_pb2.Example(features=example_pb2.Features(feature=lists))
    record = message.SerializeToString()
    features = describe_example(record)
    assert features is not None
    assert list(features) == sorted(lists)
    path = tmp_path_factory.getbasetemp() / "examples.tfrecord"
    assert read_first(path, record, features) == [values_in(lists[name]) for name in sorted(lists)]


def damaged(record: bytes, random: np.random.Generator) -> bytes:
    """Change some bytes of a record, and sometimes its length."""
    data = bytearray(record)
    for _ in range(random.integers(1, 4)):
        data[random.integers(len(data))] = random.integers(256)
    return bytes(data[: random.integers(len(data))] if random.random() < 0.2 else data)


def records() -> Iterator[bytes]:
    """Yield random bytes, and Examples with wrong bytes."""
    random = np.random.default_rng(1)
    whole = example(
        entry("a", ints(1, 300)),
        entry("b", floats(1, 2)),
        entry("c", words(b"x", b"yz")),
        entry("d", field(3, number(1, 5), number(1, 2**63))),
        entry("e", field(2, float32(1, 5), float32(1, 6))),
    )
    for _ in range(1000):
        yield random.bytes(int(random.integers(30)))
        yield damaged(whole, random)


def test_any_features_that_are_found_can_be_read(tmp_path: Path) -> None:
    found = 0
    for record in records():
        features = describe_example(record)
        if features:
            found += 1
            if not any("\0" in name for name in features):
                assert len(read_first(tmp_path / "a.tfrecord", record, features)) == len(features)
    assert found > 100


# ---- array_sizes ----


def test_features_that_may_be_arrays() -> None:
    record = example(
        entry("array", words(bytes(784))),
        entry("jpeg", words(b"\xff\xd8\xff\xe0")),
        entry("text", words("größe 1\n".encode())),
        entry("ascii", words(b"abc")),
        entry("empty", words(b"")),
        entry("none", field(1)),
        entry("two", words(bytes(3), bytes(3))),
        entry("floats", floats(1, 2)),
        entry("ints", ints(1, 2)),
        entry("", words(bytes(5))),
        entry("again", words(bytes(5))),
        entry("again", words(b"text")),
        entry("twice", words(bytes(5))),
        entry("twice", words(bytes(6))),
    )
    assert array_sizes(record) == {"array": 784, "jpeg": 4, "twice": 6}


def test_records_without_arrays() -> None:
    for record in (b"", b"text", example(), field(1, b"\xff")):
        assert array_sizes(record) == {}


def test_arrays_in_the_context_of_a_sequence_example() -> None:
    assert array_sizes(example(entry("x", words(bytes(9)))) + field(2)) == {"x": 9}


# ---- Messages ----

LISTED = '"bytes", bool, an integer dtype, float32 or float64'
RAW = 'use "raw": true for the memory of an array'


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("integer", f"dtype: expected {LISTED}, found 'integer'"),
        ("string", f"dtype: expected {LISTED}, found 'string': did you mean \"bytes\"?"),
        ({"dtype": "Str", "shape": [2]}, f"dtype: expected {LISTED}, found 'Str': did you mean \"bytes\"?"),
        ("float16", f"dtype: expected {LISTED}, found 'float16': {RAW}"),
        ({"dtype": np.complex64, "shape": [2]}, f"dtype: expected {LISTED}, found {np.complex64!r}: {RAW}"),
        (object, f"dtype: expected {LISTED}, found {object!r}"),
        (np.dtype("M8[s]"), f"dtype: expected {LISTED}, found {np.dtype('M8[s]')!r}"),
        (
            {"dtype": "string", "raw": True},
            "dtype: expected bool, an integer, float, bfloat16 or complex in native byte order, found 'string'",
        ),
    ],
)
def test_a_dtype_that_no_feature_has(about: Any, message: str) -> None:
    described = about if isinstance(about, dict) else {"dtype": about}
    listed = [{"name": "label", "dtype": "int64"}, {"name": "image", **described}]
    features: Any
    for features in ({"label": "int64", "image": about}, listed):
        for call in (open_tfrecord, open_files, open_writer)[features is listed :]:
            with raises(pyfeed.errors.DTypeError, f"features: feature 'image': {message}", also=TypeError):
                call("a.tfrecord", features=features)


@pytest.mark.parametrize("features", [["label", "x"], ("label",), [{"label": "int64"}], [None], "label", 7, {"label"}])
def test_features_that_are_neither_a_dict_nor_a_list_of_dicts(tmp_path: Path, features: Any) -> None:
    """Other functions than open_tfrecord also take the form of JSON. No message has the words of JSON."""
    (tmp_path / "a").touch()
    wanted = 'features: expected a dict from names to dtypes, such as {"label": "int64"}'
    found = f"found {features!r}: python -m pyfeed inspect FILE prints it"
    with raises(pyfeed.errors.ArgumentTypeError, f"{wanted}, {found}", also=TypeError):
        open_tfrecord("a.tfrecord", features=features)
    several: Any = {"tfrecord": {"features": features}, "csv": {}}
    for call in (
        lambda: open_files("a.tfrecord.gz", features=features),
        lambda: open_files("data/*.tfrec-00000-of-00005", features=features),
        lambda: open_files("tfrecord:a", features=features),
        lambda: open_files("a", format="tfrecord", features=features),
        lambda: open_files(["a.tfrecord", "a.csv"], **several),
        lambda: open_writer("a.tfrecord", features=features),
    ):
        with raises(
            pyfeed.errors.ArgumentTypeError, f'{wanted}, or a list of dicts with "name", {found}', also=TypeError
        ):
            call()

    # The names of the files do not tell their format.
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "a.tfrecord").touch()
    with pytest.raises(pyfeed.errors.InvalidArgument, match=r"features: (expected a|unknown field)") as caught:
        open_files(examples, features=[*features] if isinstance(features, set) else features)
    assert not re.search("object|array|string", str(caught.value))


def test_features_of_one_of_several_formats(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.tfrecord", names=["label"]) as writer:
        writer.write((np.int64(3),))
    with open_writer(tmp_path / "b.csv", names=["label"]) as writer:
        writer.write((np.int64(4),))
    options: Any = {"tfrecord": {"features": {"label": np.int64}}, "csv": {"dtypes": {"label": "int64"}}}
    assert [int(x) for (x,) in open_files([tmp_path / "a.tfrecord", tmp_path / "b.csv"], **options)] == [3, 4]


def test_another_format_may_have_other_features(tmp_path: Path) -> None:
    @pyfeed.formats.register_format("featured", [".featured"], shapes=[()], dtypes=["int64"])
    def read(path: str, features: Any) -> Any:
        yield (np.int64(len(features)),)

    (tmp_path / "a.featured").touch()
    for format in (None, "featured"):
        (x,) = open_files(tmp_path / "a.featured", format=format, features=["label", "x"]).read()
        assert x == 2


@pytest.mark.parametrize("about", [([8], "float32"), ["float32", [8]], 8, {8}])
def test_a_feature_that_is_no_dtype(about: Any) -> None:
    message = f"features: feature 'weights': expected a dtype, or a dict with dtype and shape, found {about!r}"
    with raises(pyfeed.errors.ArgumentTypeError, message, also=TypeError):
        open_tfrecord("a.tfrecord", features={"weights": about})


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (
            {"dtype": "uint8", "shape": [-1]},
            'features: feature 0 "x": shape: dimension 0: expected a size, found -1: use "kind": "variable" for a list '
            'of any length, or the dtype "bytes"',
        ),
        (
            {"dtype": "bytes", "shape": (-1,)},
            'features: feature 0 "x": shape: dimension 0: expected a size, found -1: use "kind": "variable" for any '
            "number of byte strings, or no shape for one of any length",
        ),
        (
            {"dtype": "uint8", "shap": [784]},
            'tfrecord: attributes: features: feature "x": unknown field "shap"; there are name, part, allow_missing, '
            'kind, dtype, raw, shape, default, row_lengths, row_splits: did you mean "shape"?',
        ),
        (
            {"dtype": "uint8", "shape": "784"},
            'tfrecord: attributes: features: feature "x": shape: expected integer, found string',
        ),
        (
            {"shape": [3]},
            f'features: feature 0 "x": dtype: expected {LISTED}, found none',
        ),
    ],
)
def test_properties_that_are_wrong(tmp_path: Path, about: Any, message: str) -> None:
    (tmp_path / "a.tfrecord").touch()
    with raises(pyfeed.errors.InvalidArgument, message, also=ValueError):  # which names no file
        open_tfrecord(tmp_path / "a.tfrecord", features={"x": about})


@pytest.mark.parametrize("shape", [6, (6,), [6], np.int64(6)])
def test_a_shape_of_one_dimension_is_a_number_too(tmp_path: Path, shape: Any) -> None:
    feature: Any = {"dtype": "uint8", "shape": shape, "raw": True}
    with open_writer(tmp_path / "a.tfrecord", features={"x": feature}) as writer:
        writer.write((np.arange(6, dtype="uint8"),))
    ((x,),) = open_tfrecord(tmp_path / "a.tfrecord", features={"x": feature})
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_file_of_another_format(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(pyfeed.errors.CorruptRecordError, match=r"CRC of the length.*: is it a TFRecord file\?$"):
        open_tfrecord(tmp_path / "a.npz").read()


def test_features_that_a_record_does_not_have(tmp_path: Path) -> None:
    writer = tfrecord.TFRecordWriter(str(tmp_path / "a.tfrecord"))
    writer.write({"label": (3, "int"), "image_raw": (b"jpeg", "byte")})
    writer.close()
    where = f"{tmp_path / 'a.tfrecord'}, byte 0, record 0: slot 0: "
    features: Any
    for features, kind, message in [
        (
            {"lable": "int64"},
            pyfeed.errors.ShapeError,
            'feature "lable": not in the example, whose features are "image_raw", "label": did you mean "label"?',
        ),
        (
            {"weight": "float32"},
            pyfeed.errors.ShapeError,
            'feature "weight": not in the example, whose features are "image_raw", "label": give "default" if it is '
            "optional",
        ),
        (
            {"label": {"dtype": "bool"}},
            pyfeed.errors.DTypeError,
            'feature "label": value 0: expected a value that fits into bool, found 3',
        ),
        (
            {"image_raw": "uint8"},
            pyfeed.errors.DTypeError,
            'feature "image_raw": expected int64s (for dtype uint8), found bytes: use the dtype "bytes", or "raw": '
            "true for the memory of an array",
        ),
        (
            {"image_raw": "int64"},
            pyfeed.errors.DTypeError,
            'feature "image_raw": expected int64s, found bytes: use the dtype "bytes", or "raw": true for the memory '
            "of an array",
        ),
        (
            {"label": "float32"},
            pyfeed.errors.DTypeError,
            'feature "label": expected floats, found int64s: use the dtype "int64"',
        ),
        (
            {"image_raw": {"dtype": "bytes", "shape": (4,)}},
            pyfeed.errors.ShapeError,
            'feature "image_raw": expected 4 byte strings, shape [4], found 1, of 4 bytes: for the memory of an array, '
            'use its dtype, such as "uint8", and "raw": true',
        ),
        (
            {"image_raw": {"dtype": "uint16", "raw": True}},
            pyfeed.errors.ShapeError,
            'feature "image_raw": expected 2 bytes, uint16, shape [], found 4: use "shape": [2]',
        ),
    ]:
        with raises(kind, where + message, slot=0):
            open_tfrecord(tmp_path / "a.tfrecord", features=features).read()
