"""Reader.preview: the first tuples, read by a second reader."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from pyfeed.formats import register_format
from pyfeed.typing import Preview, Slot

import pyfeed
from pyfeed import LoDTensor, Reader, Scope, errors, from_generator, open_csv, open_files, open_writer, random_data
from pyfeed.shared import SharedFeedQueue

from .support import Background, Process, feed, raises, run, same, tuple_of, wait_until


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Three files with the rows 0 to 9, 10 to 19 and 20 to 29."""
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", x=np.arange(10.0) + 10 * i, y=np.arange(20).reshape(10, 2))
    return str(tmp_path / "*.npz")


def lists(tuples: Any) -> list[Any]:
    return [tuple(np.asarray(a).tolist() for a in arrays) for arrays in tuples]


def add_noise(x: Any, y: Any, rng: np.random.Generator, position: tuple[int, int]) -> tuple[Any, Any]:
    return x + rng.random(), y + position[1]


def zipped(files: str) -> Reader:
    """Both inputs of the upper reader read from one reader below."""
    below = open_files(files)
    return below.zip(below.batch(2))


CHAINS: dict[str, Callable[[str], Reader]] = {
    "files": open_files,
    "in the order of threads": lambda f: open_files(f, ordered=False, interleave=1, num_threads=1),
    "in the calling thread": lambda f: open_files(f.replace("*", "1"), num_threads=0),
    "shuffled files": lambda f: open_files(f, shuffle_files=3, interleave=2),
    "shuffled records": lambda f: open_files(f, shuffle_records=3),
    "a rank": lambda f: open_files(f, rank=1, world=3, virtual_shards=6),
    "random data": lambda f: random_data([(2,)], seed=5, count=20),
    "without end": lambda f: random_data([(2,)]).multi_pass(0),
    "a generator": lambda f: from_generator(lambda: ((np.full(2, i),) for i in range(20)), [(2,)]),
    "a generator with a start": lambda f: from_generator(lambda start: ((np.int64(i),) for i in range(start, 9)), [()]),
    "shuffle and batch": lambda f: open_files(f).shuffle(12, seed=2).batch(4).double_buffer(depth=3),
    "short batches": lambda f: open_files(f).batch(8, drop_last=True),
    "passes": lambda f: open_files(f).batch(25).multi_pass(3),
    "shards": lambda f: open_files(f).shard(1, 2, even="pad"),
    "parts of batches": lambda f: open_files(f).batch(8).split_batches(1, 2),
    "map": lambda f: open_files(f).map(add_noise, num_threads=3, rng=True, seed=4, with_position=True).batch(3),
    "map to other slots": lambda f: open_files(f).map(lambda x, y: x * 2, shapes=[()], names=["twice"], capacity=9),
    "zip": lambda f: open_files(f).zip(random_data([()]), from_generator(lambda: [tuple_of(1)] * 50, [(2,)])),
    "one reader below two": zipped,
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("count", [1, 5, 31])
def test_the_tuples_are_those_that_a_new_reader_delivers(chain: str, count: int, files: str) -> None:
    make = CHAINS[chain]
    expected = [arrays for _, arrays in zip(range(count), make(files), strict=False)]
    reader = make(files)
    preview = reader.preview(count)
    assert lists(preview.tuples) == lists(expected)
    assert 0 < len(preview.tuples) <= count
    # The first tuple determines the dtypes that are not known before.
    assert [s._replace(dtype=t.dtype) for s, t in zip(preview.slots, reader.slots, strict=True)] == reader.slots
    assert lists(next(reader) for _ in range(len(expected))) == lists(expected)


def test_the_reader_does_not_change(files: str) -> None:
    reader = open_files(files, shuffle_files=1).shuffle(4, seed=1).batch(3).double_buffer()
    for _ in range(2):  # passes
        first = [next(reader) for _ in range(4)]
        state, stats = reader.state_dict(), reader.stats()["tuples"]
        preview = reader.preview(50)
        assert len(preview.tuples) == 10
        assert (reader.state_dict(), reader.stats()["tuples"]) == (state, stats)
        rest = list(reader.current_pass())
        assert len(first) + len(rest) == 10
        reader.reset()
    assert lists(reader.preview(50).tuples) == lists(preview.tuples) == lists(open_files(files, shuffle_files=1)
        .shuffle(4, seed=1).batch(3))  # fmt: skip


def test_the_names_of_later_readers_do_not_change() -> None:
    before = random_data([()]).batch(2)
    before.preview()
    number = int(before.name.rpartition("_")[2])
    assert random_data([()]).batch(2).name == f"batch_reader_{number + 1}"


def test_functions_are_called_for_these_tuples_only(files: str) -> None:
    closed = threading.Event()

    def generate() -> Iterator[tuple[Any, Any]]:
        try:
            for i in range(1000):
                yield np.float64(i), np.zeros(2)
        finally:
            closed.set()

    for reader in (open_files(files, interleave=1), from_generator(generate, [(), (2,)], capacity=64)):
        called: list[float] = []

        def count(x: Any, y: Any, called: list[float] = called) -> tuple[Any, Any]:
            called.append(float(x))
            return x, y

        reader.map(count, num_threads=4, capacity=64).preview(3)
        assert called[:3] == [0, 1, 2]
        assert len(called) <= 5  # capacity, and the tuple that the thread works on
    assert closed.wait(30)


def test_an_empty_reader_and_a_short_one() -> None:
    empty = from_generator(list, [(2,)]).preview()
    assert (empty.tuples, [s.shape for s in empty.slots]) == ([], [(2,)])
    assert repr(empty) == "Preview of 0 tuples\n  slot 0\n  any dtype (2,)"
    short = random_data([()], count=3).batch(2)
    assert [len(x) for (x,) in short.preview().tuples] == [2, 1]


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    file = os.fsdecode(bytes(tmp_path) + b"/\xff.npy")
    np.save(file, np.arange(3))
    assert lists(open_files(file).preview().tuples) == [(0,), (1,), (2,)]
    os.unlink(file)
    with pytest.raises(errors.MissingFileError):
        open_files(file, shapes=[()], dtypes=["int64"]).preview()


def test_tuples_stay_valid_when_the_files_are_gone(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5.0))
    preview = open_files(tmp_path / "x.npy").preview()
    (tmp_path / "x.npy").unlink()
    gc.collect()
    assert lists(preview.tuples) == [(float(i),) for i in range(5)]


def test_errors_of_the_second_reader_are_raised(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n2\nbad\n")
    reader = open_csv(tmp_path / "x.csv", column_dtypes={"a": "int64"})
    assert lists(reader.preview(2).tuples) == [(1,), (2,)]
    with pytest.raises(errors.CorruptRecordError):
        reader.preview(3)
    failing = random_data([()]).map(lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.preview()
    (tmp_path / "x.csv").unlink()
    with pytest.raises(errors.MissingFileError):
        reader.preview()


def test_a_format_of_the_program(tmp_path: Path) -> None:
    @register_format("previewed", [".previewed"], shapes=[()], dtypes=["int64"])
    def read(path: str, factor: int = 1) -> Iterator[tuple[Any]]:
        for i in range(4):
            yield (np.int64(factor * i),)

    (tmp_path / "a.previewed").touch()
    reader = open_files(tmp_path / "a.previewed", factor=3)
    assert lists(reader.preview(3).tuples) == [(0,), (3,), (6,)]


# ---- What has no preview ----

EXPECTED = "preview: expected a reader of files, random data or from_generator, found the reader "


def test_a_queue_has_no_preview() -> None:
    reader, queue = feed()
    queue.push(tuple_of(1))
    for chain in (reader, reader.shuffle(2).batch(2), random_data([()], scope=reader.scope).zip(reader.batch(3))):
        with raises(
            errors.UnsupportedError, f"{EXPECTED}{reader.name!r} of a queue, whose tuples can be read only once"
        ):
            chain.preview()
    assert queue.size() == 1
    shared = SharedFeedQueue([()], dtypes=["float64"], scope=Scope())
    with pytest.raises(errors.UnsupportedError, match="of a queue, whose tuples can be read only once"):
        shared.reader.preview()


def test_a_reader_that_python_has_not_made_has_no_preview() -> None:
    below = random_data([()], scope=Scope())
    reader = Reader.in_variable(below.scope, below.name)
    with raises(errors.UnsupportedError, f"{EXPECTED}{below.name!r}, which a program or C++ has made"):
        reader.batch(2).preview()
    assert len(below.preview().tuples) == 5


def test_a_named_pipe_has_no_preview(tmp_path: Path) -> None:
    """Otherwise the preview would take the data from the reader."""
    os.mkfifo(tmp_path / "x.csv")
    reader = open_files(tmp_path / "x.csv", shapes=[()], dtypes=["int64"])
    with raises(
        errors.UnsupportedError,
        f"preview: expected regular files, found {str(tmp_path / 'x.csv')!r}, which can be read only once",
    ):
        reader.preview()
    writer = Background(lambda: (tmp_path / "x.csv").write_text("a\n1\n2\n"))
    assert lists(reader) == [(1,), (2,)]
    writer.wait()


def test_a_closed_reader_has_no_preview() -> None:
    reader = random_data([()])
    above = reader.batch(2)
    reader.close()
    with raises(errors.StateError, f"the reader {reader.name!r} is closed"):
        reader.preview()
    assert len(above.preview(1).tuples[0][0]) == 2  # this chain is still open
    above.close()
    with raises(errors.StateError, f"the reader {above.name!r} is closed"):
        above.preview()


def test_a_forked_child() -> None:
    out = run("""
reader = pyfeed.random_data([()])
preview = reader.preview(1)
pid = os.fork()
if pid == 0:
    try:
        reader.preview()
    except pyfeed.errors.ForkError as error:
        say("child", "does not work in the child" in str(error))
    say("float32" in repr(preview), "float32" in preview._repr_html_())
    os._exit(0)
os.waitpid(pid, 0)
""")
    assert out == ["child True", "True True"]


# ---- Threads and memory ----


def test_while_another_thread_loops(files: str) -> None:
    reader = open_files(files).map(lambda x, y: (x, y)).shuffle(7).batch(2).double_buffer()
    expected, stop = lists(reader.preview(15).tuples), threading.Event()

    def loop() -> int:
        passes = 0
        while passes == 0 or not stop.is_set():
            assert sum(len(x) for x, y in reader) == 30
            passes += 1
        return passes

    background = Background(loop)
    for _ in range(20):
        assert lists(reader.preview(15).tuples) == expected
    stop.set()
    assert background.result() >= 1


def test_nothing_is_left_of_the_second_reader(files: str) -> None:
    chain = open_files(files).map(lambda x, y: (x, y)).shuffle(4).double_buffer()
    generated = from_generator(lambda: (tuple_of(i) for i in range(100)), [(2,)])
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for reader in (chain, generated):
        reader.preview()
    wait_until(lambda: set(threading.enumerate()) <= threads)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


def test_a_preview_keeps_no_reader_alive() -> None:
    below = random_data([()], count=20)
    above = below.map(lambda x: x).batch(2)
    preview = above.preview()
    alive = [weakref.ref(below), weakref.ref(above)]
    del below, above
    assert [ref() for ref in alive] == [None, None]
    assert len(preview.tuples) == 5


@pytest.mark.parametrize("chain", ["pyfeed.random_data([()]).map(block)", "pyfeed.from_generator(yields, [()])"])
def test_ctrl_c(chain: str) -> None:
    process = Process(f"""
blocked, end = threading.Event(), threading.Event()
def block(x):
    blocked.set()
    end.wait()
    return x
def yields():
    blocked.set()
    end.wait()
    yield (np.float64(1),)
reader = {chain}
threads = set(threading.enumerate())
def tell():
    blocked.wait()
    until_waiting(1)
    say("blocked")
start(tell, daemon=True)
try:
    reader.preview()
except KeyboardInterrupt:
    say("interrupted")
end.set()
while not set(threading.enumerate()) <= threads:
    time.sleep(0.001)
say(len(reader.preview(1).tuples))
""")
    assert process.line() == "blocked"
    process.signal(signal.SIGINT)
    assert process.end() == (["interrupted", "1"], "")


def test_a_loop_imports_none_of_this() -> None:
    out = run("""
reader = pyfeed.random_data([()], count=3)
list(reader); repr(reader)
print(sorted({"pyfeed._preview", "pyfeed._html", "pyfeed._picture", "pyfeed._pickling"} & sys.modules.keys()))
""")
    assert out == ["[]"]


# ---- Text ----


def show(value: Any, dtype: str | None = None, shape: tuple[int, ...] = (), name: str = "") -> str:
    """Return the text of a cell."""
    slot = Slot(name, dtype, shape, 1 if isinstance(value, LoDTensor) else 0)
    return repr(Preview([slot], [(value,)])).splitlines()[-1].removeprefix("0  ").strip()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array(3), "3"),
        (np.array(True), "True"),
        (np.array(2.5 + 1j), "2.5+1j"),
        (np.array(1 / 3), "0.3333"),
        (np.array(np.nan), "nan"),
        (np.array(2**63, np.uint64), "9223372036854775808"),
        (np.array(1.5, ml_dtypes.bfloat16), "1.5"),
        (np.arange(6), "[0, 1, 2, 3, 4, 5]"),
        (np.arange(7), "(7,) [0, 1, 2, …]"),
        (np.zeros((0, 3)), "(0, 3) []"),
        (np.zeros(0), "[]"),
        (np.arange(4).reshape(2, 2).T, "(2, 2) [0, 2, 1, 3]"),
        (np.broadcast_to(np.float32(1), (10**6, 10**6)), "(1000000, 1000000) [1, 1, 1, …]"),
        (np.full(3, 1.5, ml_dtypes.bfloat16), "[1.5, 1.5, 1.5]"),
        (LoDTensor.from_bytes("text"), '"text"'),
        (LoDTensor.from_bytes(""), '""'),
        (LoDTensor.from_bytes(["a", "b", "c", "d"]), '4: "a", "b", "c", …'),
        (LoDTensor.from_bytes("a\tb\n\x1b[31m\u202e"), '"a\\tb\\n\\x1b[31m\\u202e"'),
        (LoDTensor.from_bytes("é" * 10**6), '"' + "é" * 33 + '…"'),
        (LoDTensor.from_bytes("日本"), '"日本"'),
        (LoDTensor.from_bytes("日本".encode()[:-1]), r"5 bytes b'\xe6\x97\xa5\xe6\x9c'"),
        (LoDTensor.from_bytes(b"\xff\xfe" * 500), r"1,000 bytes b'\xff\xfe\xff\xfe\xff\…"),
        (LoDTensor(np.zeros(0, np.uint8), [[0]]), "0:"),
        (LoDTensor.from_lengths(np.arange(5.0), [[2, 3]]), "lengths [2, 3]: [0, 1, 2, 3, 4]"),
        (LoDTensor(np.arange(5), [[0, 1, 2], [0, 2, 5]]), "lengths [1, 1] / [2, 3]: [0, 1, 2, …"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_the_text_of_an_array(value: Any, text: str) -> None:
    assert show(value) == text


def test_bfloat16_without_ml_dtypes() -> None:
    assert show(np.full(2, 1.5, ml_dtypes.bfloat16).view("V2"), "bfloat16", (2,)) == "[1.5, 1.5]"


def test_a_table() -> None:
    slots = [Slot("name\n", None, (-1,), 1), Slot("", "int64", (), 0), Slot("x" * 99, "float32", (2,), 0)]
    rows = [(LoDTensor.from_bytes(text), np.array(n), np.array([n, 0.5])) for text, n in (("a", 5), ("bcd", 10))]
    assert repr(Preview(slots, rows)).splitlines() == [
        "Preview of 2 tuples",
        r"   name\n                        slot 1  " + "x" * 35 + "…",
        "   any dtype (-1,) lod_levels=1   int64  float32 (2,)",
        '0  "a"                                5  [5, 0.5]',
        '1  "bcd"                             10  [10, 0.5]',
    ]


def test_a_table_of_many_slots_and_many_tuples() -> None:
    text = repr(random_data([()] * 100, count=150).preview(150))
    lines = text.splitlines()
    assert lines[0] == "Preview of 150 tuples"
    assert lines[-1] == "… 50 more, in .tuples"
    assert max(map(len, lines)) <= 110
    assert [word for line in lines for word in line.replace("slot ", "slot_").split() if "slot_" in word] == [
        f"slot_{i}" for i in range(100)
    ]
    assert (len(lines) - 2) % 102 == 0


def test_a_csv_of_hostile_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b'a,"b""\x07"\n<script>,1\n\x1b]0;owned\x07,2\n')
    text = repr(open_files(tmp_path / "x.csv").preview())
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert 'b"\\x07' in text
    assert '"\\x1b]0;owned\\x07"' in text


def test_bytes_that_open_writer_has_written(tmp_path: Path) -> None:
    with open_writer(tmp_path / "x.recordio") as writer:
        for record in (b"one", b"\x00\xff", b""):
            writer.write((record,))
    preview = open_files(tmp_path / "x.recordio").preview()
    assert [x.bytes_list() for (x,) in preview.tuples] == [[b"one"], [b"\x00\xff"], [b""]]
    same(preview.tuples[0][0].data, np.frombuffer(b"one", np.uint8))


def test_count_is_checked() -> None:
    for count in (0, -1, True, 2.0, "5"):
        with pytest.raises(errors.InvalidArgument, match="count: expected"):
            random_data([()]).preview(count)  # type: ignore[arg-type]
    assert len(random_data([()]).preview(np.int64(2)).tuples) == 2  # type: ignore[arg-type]
    assert isinstance(pyfeed.random_data([()]).preview(), Preview)


def test_previews_of_readers_that_deliver_dicts() -> None:
    reader = random_data({"x": (2,), "y": {"z": ()}}, {"y": {"z": "int64"}}, count=3)
    doubled = reader.map(lambda d: {"x": d["x"], "y": {"z": d["y"]["z"] + 1}}).double_buffer()
    preview = doubled.preview(2)
    assert [(d["x"].shape, d["y"]["z"].item()) for d in preview.tuples] == [
        ((2,), d["y"]["z"].item() + 1) for d in reader
    ][:2]
    assert "y.z" in repr(preview)
    assert preview._repr_html_().count("y.z") == 1
    generated = pyfeed.from_generator(lambda: iter([{"a": 1}]), {"a": ()})
    assert [d["a"].item() for d in generated.preview().tuples] == [1]
