"""Readers and previews in notebooks."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pyfeed.typing import Preview, Slot

import pyfeed
from pyfeed import LoDTensor, Scope, open_csv, open_files, random_data

from .support import feed, run, tuple_of

ELEMENTS = {"div", "b", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "span", "br", "img"}
ATTRIBUTES = {"style", "src", "title"}


class Page(HTMLParser):
    """The texts, elements and pictures of HTML. Only harmless elements are allowed, all of which must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.pictures: list[dict[str, str]] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        html.encode()  # no lone surrogates
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        values = {name: value or "" for name, value in attrs}
        assert "url" not in values.get("style", "")
        if tag == "img":
            self.pictures.append(values)
        elif tag != "br":
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data


def decode(source: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of a data: URI."""
    media_type, _, data = source.removeprefix("data:").partition(";base64,")
    return media_type, base64.b64decode(data, validate=True)


def decode_png(data: bytes) -> npt.NDArray[np.uint8]:
    """Return the pixels of a PNG file as encode_png writes it: (H, W, C). All checksums must be right."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + content),)
        chunks[kind] = content
        at += length + 12
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()  # no filters
    return rows[:, 1:].reshape(height, width, {0: 1, 2: 3, 6: 4}[colour])


def page_of(value: Any, shape: Sequence[int] | None = None) -> Page:
    """Show a single value."""
    levels = len(value.lod) if isinstance(value, LoDTensor) else 0
    slot = Slot("", None, tuple(value.shape if shape is None else shape), levels)
    return Page(Preview([slot], [(value,)])._repr_html_())


def images_of(value: Any, shape: Sequence[int] | None = None) -> list[npt.NDArray[np.uint8]]:
    """Show an array, and decode its pictures."""
    found = [decode(picture["src"]) for picture in page_of(value, shape).pictures]
    assert {media_type for media_type, _ in found} <= {"image/png"}
    return [decode_png(data) for _, data in found]


def pixels(*shape: int) -> npt.NDArray[np.uint8]:
    return np.arange(np.prod(shape, dtype=int), dtype=np.uint64).astype(np.uint8).reshape(shape)


# ---- Readers ----


def test_a_reader() -> None:
    reader = random_data([(28, 28), ()], ["uint8", "int64"], high=9, count=7, names=["image", ""]).shuffle(3).batch(2)
    page = Page(reader._repr_html_())
    assert page.rows == [
        ["slot", "name", "dtype", "shape", "LoD levels"],
        ["0", "image", "uint8", "(-1, 28, 28)", ""],
        ["1", "", "int64", "(-1,)", ""],
    ]
    text = "".join(page.text)
    assert text.startswith(f"Reader {reader.name}")
    for line in repr(reader).rstrip(">").splitlines()[1:]:
        assert line.strip() in text
    assert ".shuffle(buffer_size=3, seed=0)  # 1 thread" in text


def test_nothing_is_read_or_opened(tmp_path: Path) -> None:
    reader, queue = feed(4)
    queue.push(tuple_of(1))
    chain = reader.shuffle(2).batch(2).double_buffer()
    before = chain.stats()
    Page(chain._repr_html_())
    assert (chain.stats(), queue.size()) == (before, 1)
    np.save(tmp_path / "x.npy", np.zeros(3))
    files = open_files(tmp_path / "x.npy", shapes=[()], dtypes=["float64"])
    (tmp_path / "x.npy").unlink()
    assert Page(files._repr_html_()).rows[1] == ["0", "", "float64", "()", ""]


def test_a_reader_with_levels_and_a_closed_one() -> None:
    reader, _ = pyfeed.py_array_reader(2, [(-1,)], lod_levels=[2], scope=Scope())
    assert Page(reader._repr_html_()).rows[1] == ["0", "", "any dtype", "(-1,)", "2"]
    reader.close()
    page = Page(reader._repr_html_())
    assert "(closed)" in "".join(page.text)
    assert page.rows[1] == ["0", "", "any dtype", "(-1,)", "2"]


def test_names_are_escaped() -> None:
    name = """<script>alert("1")</script>'&amp;\n\udc80\u202e"""
    with random_data([()], names=["<b>\"'&"], scope=Scope(), name="<i>'\"&") as reader:
        page = Page(reader._repr_html_())
        assert page.rows[1][1] == "<b>\"'&"
        assert page.text[:3] == ["Reader", " ", "<i>'\"&"]
    page = Page(Preview([Slot(name, None, (), 0)], [(np.array(1),)])._repr_html_())
    assert page.rows[0][1].startswith('<script>alert("1")</script>\'&amp;')


def test_many_slots() -> None:
    page = Page(random_data([()] * 1000)._repr_html_())
    assert len(page.rows) == 201
    assert "… 800 more slots" in "".join(page.text)


def test_a_forked_child() -> None:
    out = run("""
reader = pyfeed.random_data([()], name="forked")
pid = os.fork()
if pid == 0:
    say("child", reader._repr_html_())
    os._exit(0)
os.waitpid(pid, 0)
""")
    assert len(out) == 1
    assert "".join(Page(out[0].removeprefix("child ")).text) == "Reader forked"


# ---- Previews ----


def test_a_csv_of_html(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        'a,"<script>alert(1)</script>"\n<img src=x onerror=alert(2)>,1\n"</td></table>""\'&amp;",2\n'
    )
    reader = open_csv(tmp_path / "x.csv")
    Page(reader._repr_html_())
    page = Page(reader.preview()._repr_html_())
    assert page.pictures == []
    assert page.rows == [
        ["", "auint8 (-1,) lod_levels=1", "<script>alert(1)</script>int64"],
        ["0", "<img src=x onerror=alert(2)>", "1"],
        ["1", "</td></table>\"'&amp;", "2"],
    ]


def test_an_empty_preview() -> None:
    page = Page(Preview([Slot("x", "int64", (), 0)], [])._repr_html_())
    assert page.rows == [["", "xint64"]]
    assert page.text[0] == "Preview of 0 tuples"
    assert Page(Preview([], [])._repr_html_()).rows == [[""]]


def test_many_tuples_and_slots() -> None:
    page = Page(random_data([()] * 100, count=150).preview(150)._repr_html_())
    assert [len(row) for row in page.rows] == [101] * 101
    assert page.text[-1] == "… 50 more tuples"


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((2, 3), (2, 3, 1)),
        ((2, 3, 1), (2, 3, 1)),
        ((2, 5, 3), (2, 5, 3)),
        ((2, 5, 4), (2, 5, 4)),
        ((3, 5, 7), (5, 7, 3)),
        ((1, 5, 7), (5, 7, 1)),
        ((1, 1), (1, 1, 1)),
        ((1, 1, 1), (1, 1, 1)),
        ((1, 1, 3), (1, 1, 3)),
        ((96, 96), (96, 96, 1)),
    ],
)
def test_images(shape: tuple[int, ...], shown: tuple[int, ...]) -> None:
    image = pixels(*shape)
    (found,) = images_of(image)
    channels_last = np.moveaxis(image, 0, 2) if image.ndim == 3 and shape[-1] not in (1, 3, 4) else image
    assert found.shape == shown
    assert np.array_equal(found, channels_last.reshape(shown))


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 3), np.uint8),
        np.zeros((4, 0, 3), np.uint8),
        pixels(5),
        np.array(7, np.uint8),
        pixels(2, 5, 7),
        pixels(4, 5, 7),
        pixels(2, 2, 5, 7),
        pixels(2, 2, 2, 2, 3),
        pixels(4, 4).astype(np.int8),
        pixels(4, 4).astype(np.float32),
        pixels(4, 4) > 3,
        LoDTensor.from_lengths(pixels(4, 4), [[1, 3]]),
    ],
    ids=lambda value: f"{value.dtype} {value.shape}",
)
def test_arrays_that_are_no_images(value: Any) -> None:
    page = page_of(value)
    assert page.pictures == []
    assert len(page.rows[1][1]) < 60


def test_batches_of_images() -> None:
    assert [i.shape for i in images_of(pixels(3, 5, 7), (-1, 5, 7))] == [(5, 7, 1)] * 3
    assert [i.shape for i in images_of(pixels(2, 5, 7, 3), (-1, 5, 7, 3))] == [(5, 7, 3)] * 2
    assert [i.shape for i in images_of(pixels(2, 3, 5, 7), (-1, 3, 5, 7))] == [(5, 7, 3)] * 2
    assert images_of(pixels(64, 784), (-1, 784)) == []  # a batch of vectors
    page = page_of(pixels(64, 8, 8), (-1, 8, 8))
    assert len(page.pictures) == 8
    assert page.text[-1] == "… 56 more images"
    (x,) = random_data([(8, 8)], ["uint8"], high=255).batch(4).preview(1).tuples[0]
    batch = random_data([(8, 8)], ["uint8"], high=255).batch(4).preview(1)
    found = [decode_png(decode(p["src"])[1])[:, :, 0] for p in Page(batch._repr_html_()).pictures]
    assert np.array_equal(found, x)


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((97, 97, 3), (48, 48, 3)),
        ((192, 96), (96, 48, 1)),
        ((1000, 10), (83, 1, 1)),
        ((480, 640, 3), (60, 80, 3)),
        ((1, 10**6), (1, 96, 1)),
        ((10**6, 3), (96, 1, 1)),
        ((3, 500, 300), (83, 50, 3)),
    ],
)
def test_large_images_are_shrunk(shape: tuple[int, ...], shown: tuple[int, ...]) -> None:
    (found,) = images_of(np.full(shape, 77, np.uint8))
    assert found.shape == shown
    assert (found == 77).all()


def test_pixels_of_a_shrunk_image_are_means() -> None:
    image = pixels(192, 192)
    (found,) = images_of(image)
    expected = image.reshape(96, 2, 96, 2).mean(axis=(1, 3)).astype(np.uint8)
    assert np.array_equal(found[:, :, 0], expected)


def test_a_huge_image_is_not_read_as_a_whole() -> None:
    """The array would take 3 TB, if it were copied."""
    (found,) = images_of(np.broadcast_to(np.array([1, 2, 3], np.uint8), (10**6, 10**6, 3)))
    assert max(found.shape) <= 96
    assert (found == [1, 2, 3]).all()


# The first bytes of files, which are enough to tell the type.
FILES = {
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image/gif": b"GIF89a\x01\0\x01\0",
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
}


@pytest.mark.parametrize("media_type", FILES)
def test_image_files(media_type: str) -> None:
    data = FILES[media_type] + b"\0\xff<>\"'"
    page = page_of(LoDTensor.from_bytes(data))
    assert [decode(picture["src"]) for picture in page.pictures] == [(media_type, data)]
    large = page_of(LoDTensor.from_bytes(data + bytes(256 << 10)))
    assert large.pictures == []
    assert large.rows[1][1] == f"{(256 << 10) + len(data):,} bytes, {media_type}"


def test_bytes_that_are_no_image_files() -> None:
    for data, text in (
        (b"RIFF\x24\0\0\0WAVEfmt \xff", r"17 bytes b'RIFF$\x00\x00\x00'…"),
        (b"<svg onload=alert(1)>", "<svg onload=alert(1)>"),
        (b"\x89PNG", r"4 bytes b'\x89PNG'"),
        (b"", ""),
        (b"\x00\x01", r"\x00\x01"),
    ):
        page = page_of(LoDTensor.from_bytes(data))
        assert page.pictures == []
        assert page.rows[1][1] == text


def test_long_and_many_texts() -> None:
    assert page_of(LoDTensor.from_bytes("<é>" * 10**5)).rows[1][1] == ("<é>" * 67)[:199] + "…"
    page = page_of(LoDTensor.from_bytes(["x" * 1000] * 30))
    assert page.rows[1][1] == ("x" * 49 + "…") * 8 + " … 22 more sequences"


def test_pictures_have_a_limit() -> None:
    slots = [Slot("", None, (-1,), 1)]
    data = FILES["image/png"] + bytes(200 << 10)
    html = Preview(slots, [(LoDTensor.from_bytes(data),)] * 100)._repr_html_()
    assert len(Page(html).pictures) == 20
    assert len(html) < 6 << 20
    noise = np.random.default_rng(1).integers(0, 256, (96, 96, 3), np.uint8)
    html = Preview([Slot("", None, noise.shape, 0)] * 50, [(noise,) * 50] * 100)._repr_html_()
    assert len(html) < 9 << 20
    assert "(96, 96, 3) [" in html


def test_small_pictures_are_enlarged() -> None:
    (picture,) = page_of(pixels(8, 8)).pictures
    assert "width:48px;height:48px" in picture["style"]
    assert picture["title"] == "(8, 8)"
