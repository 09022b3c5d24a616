"""The command line: ``python -m pyfeed convert``, ``inspect``, ``verify`` and ``index``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TextIO

import numpy as np

import pyfeed.formats  # fails with a reason where another distribution has replaced the package's __init__.py
from pyfeed._example_features import array_sizes, describe_example
from pyfeed._stats import describe_position

COMMAND = "python -m pyfeed"

SOURCES = """\
SOURCE is a file, a glob in quotes, or a directory. The suffix of a file tells its format. Where it does not, write the
tag of the format and a colon before the name, such as idx:train-images, or use --format. The tags are {formats}.

The option of a format is NAME=VALUE. VALUE is JSON; anything else is taken as a string. The page docs/formats.md of the
project lists the options of each format.

Formats such as raw do not store what the arrays of a record look like. Give their dtypes and dimensions by --slots:
  --slots '[{"dtype": "uint8", "dims": [28, 28]}, {"dtype": "int64"}]'
"""

# The first example of a command is also shown with its errors. The tests run all of them.
EXAMPLES = {
    "convert": [
        "convert train.npz -o train.recordio",
        "convert 'train-*.csv' -o train.recordio --shuffle 10000 --seed 1",
        "convert images.npz -o images.tar --names npy,cls --shard-records 1000",
    ],
    "inspect": [
        "inspect train.recordio",
        "inspect 'data/*.tfrecord' --records 100",
        "inspect --format idx train-images",
    ],
    "verify": [
        "verify train.recordio",
        "verify 'data/*.tfrecord.gz' data/labels.npy",
    ],
    "index": [
        "index train.recordio",
        "index 'data/*.tfrecord' --index-dir indexes --threads 8",
    ],
}

# What follows the command in an example of an option.
OPTION_EXAMPLES = {
    "sources": "train.npz",
    "format": "train-images --format idx",
    "compression": "train.csv.gz --compression gzip",
    "slots": """data.raw --slots '[{"dtype": "uint8", "dims": [28, 28]}]'""",
    "option": "train.csv --option header=true",
    "output": "train.npz -o train.recordio",
    "to": "train.npz -o train.data --to recordio",
    "to_option": "train.npz -o train.recordio --to-option compression=snappy",
    "names": "images.npz -o images.tar --names npy,cls",
    "shard_records": "train.npz -o train.recordio --shard-records 1000",
    "shuffle": "train.npz -o train.recordio --shuffle 10000",
    "seed": "train.npz -o train.recordio --shuffle 10000 --seed 1",
    "threads": "train.npz -o train.recordio --threads 4",
    "on_corrupt": "train.recordio -o train.npz --on-corrupt skip",
    "records": "train.recordio --records 100",
    "index": "train.npz -o train.recordio --index",
    "index_dir": "train.recordio --index-dir indexes",
    "index compression": "train.recordio --compression none",
    "index threads": "'data/*.tfrecord' --threads 8",
    "index on_corrupt": "train.recordio --on-corrupt skip",
    "progress": "train.recordio --no-progress",
}

# Formats whose files have about as many bytes as their tuples, if the files are not compressed.
PLAIN_FORMATS = {"idx", "mds", "npy", "npz", "raw", "recordio", "tar", "tfrecord", "tokens"}
COMPRESSED = (".gz", ".tgz", ".zst", ".sz", ".zlib")


# ---- Messages --------------------------------------------------------------------------------


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal: COLUMNS if it is set."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fold(text: str, width: int, indent: str = "") -> str:
    """The text in lines of a width, except for words that are longer, such as the names of files."""
    return textwrap.fill(text, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def complain(message: str) -> None:
    """Print an error or a warning: folded for a terminal, in one line for a file or another program."""
    if is_terminal(sys.stderr):
        width = terminal_width(sys.stderr)
        message = "\n".join(fold(line, width, "  ") for line in f"pyfeed: {message}".splitlines())
        print(message, file=sys.stderr)
    else:
        print(f"pyfeed: {message}", file=sys.stderr)


def show_example(command: str | None, option: str | None) -> None:
    """Print an example of a command, or of one of its options, and how to get its help."""
    if command is None:
        example, page = EXAMPLES["convert"][0], ""
    else:
        example, page = EXAMPLES[command][0], f" {command}"
        if option in OPTION_EXAMPLES:
            of_option = OPTION_EXAMPLES.get(f"{command} {option}", OPTION_EXAMPLES[option])
            example = f"{command} {of_option}"
            if command == "convert" and " -o " not in example:
                example += " -o train.recordio"
    print(f"example: {in_lines(f'{COMMAND} {example}')}\nhelp:    {COMMAND}{page} --help", file=sys.stderr)


def in_lines(command: str) -> str:
    """A command, in lines that a shell joins if it is too long for one."""
    if len(command) <= 70:
        return command
    head, option, tail = command.partition(" --")
    return f"{head} \\\n           {option.strip()}{tail}"


def name_option(text: str, args: argparse.Namespace) -> tuple[str, str | None]:
    """The message of the library about an argument, with the name of the option; the option, if it can be told."""
    if flag := re.match(r"--([a-z-]+): ", text):
        return text, flag[1].replace("-", "_")
    output = getattr(args, "output", None)
    if "suffix of a format" in text:
        is_output = output is not None and text.startswith((f"{output}: ", f"{shard_name(output, 0)}: "))
        return text, "to" if is_output else "format"
    options = {word: word for word in ("compression", "format", "slots")}
    options |= {"attributes": "option", "num_threads": "threads"}
    if output is not None and args.to and not args.format:
        options["format"] = "to"
    if output is not None and args.to_option and not args.option:
        options["attributes"] = "to_option"
    if text.startswith("features: "):  # the error is about the value of an option, and names only that option
        text = f"attributes: {text}"
    for word in text.split(": "):
        if option := options.get(word):
            return text.replace(f"{word}: ", f"--{option.replace('_', '-')}: ", 1), option
    return text, None


# ---- Progress --------------------------------------------------------------------------------


class Progress:
    """The progress of a command on standard error: a bar of tqdm, or a plain line where tqdm is not installed.

    Parameters
    ----------
    what : str
        The command.
    total : int or None
        How much there is to do, if it is known: records, or the bytes of files.
    in_bytes : bool
        Whether `total` is in bytes. Then `begin_file` and `end_file` say which bytes are done.
    enabled : bool
        Whether anything is shown.
    """

    INTERVAL = 0.1  # seconds between two updates

    def __init__(self, what: str, total: int | None, *, in_bytes: bool = False, enabled: bool) -> None:
        self.what, self.total, self.in_bytes, self.enabled = what, total or None, in_bytes, enabled
        self.records = self.bytes = 0
        self.at = self.file_end = 0  # bytes of files
        self.smooth = False
        self.begin = self.last_shown = time.monotonic()
        self.width = 0  # of the plain line
        self.bar: Any = None
        if self.enabled:
            try:
                from tqdm import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
            except ImportError:
                return
            unit: dict[str, Any] = {"unit": "B", "unit_scale": True} if in_bytes else {"unit": " records"}
            # Where a terminal says that its size is 0 x 0, tqdm by itself would show nothing.
            size = {"ncols": terminal_width(sys.stderr) - 1, "nrows": 24}
            self.bar = tqdm(desc=what, total=self.total, file=sys.stderr, **size, **unit)

    def begin_file(self, size: int, smooth: bool) -> None:
        """Begin the next file, or all of them. If `smooth`, the bytes of tuples count as those of the file."""
        self.file_end, self.smooth = self.at + size, smooth

    def end_file(self) -> None:
        self.at = self.file_end

    def add(self, nbytes: int) -> None:
        """Count a record of so many bytes."""
        self.records += 1
        self.bytes += nbytes
        if self.smooth:
            self.at = min(self.at + nbytes, self.file_end)
        if self.enabled:
            now = time.monotonic()
            if now - self.last_shown >= self.INTERVAL:
                self.last_shown = now
                self.show()

    def show(self) -> None:
        rate = f"{self.bytes / 1e6 / max(time.monotonic() - self.begin, 1e-9):.0f} MB/s"
        if self.bar is not None:
            self.bar.n = self.at if self.in_bytes else self.records
            self.bar.set_postfix_str(f"{self.records} records" if self.in_bytes else rate, refresh=False)
            self.bar.refresh()
            return
        done = self.at if self.in_bytes else self.records
        share = f"{min(100 * done // self.total, 100)} %, " if self.total else ""
        line = f"{self.what}: {share}{self.records} records, {rate}"[: terminal_width(sys.stderr) - 1]
        print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
        self.width = len(line)

    def clear(self) -> None:
        """Remove the bar, so that something else can be printed."""
        if self.bar is not None:
            self.bar.clear()
        elif self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)
            self.width = 0

    def say(self, line: str) -> None:
        """Print a line of the command's output."""
        self.clear()
        print(line, flush=self.enabled)

    def close(self) -> None:
        """Leave the progress on the screen, unless there was none."""
        if not self.enabled:
            return
        if self.records:
            self.show()
        if self.bar is not None:
            self.bar.leave = self.records > 0
            self.bar.close()
        elif self.records:
            print(file=sys.stderr)


def wants_progress(args: argparse.Namespace) -> bool:
    return is_terminal(sys.stderr) if args.progress is None else bool(args.progress)


def sizes_of(names: Sequence[str]) -> list[int] | None:
    """The bytes of each file, or None if there are files without a size, such as named pipes."""
    paths = [path_of(name) for name in names]
    try:
        sizes = [os.path.getsize(path) if os.path.isfile(path) else 0 for path in paths]
    except OSError:
        return None
    return sizes if all(sizes) else None


def is_plain(name: str, compression: str) -> bool:
    """Whether the tuples of a file have about as many bytes as the file."""
    tag, _, path = name.partition(":")
    suffixes = re.sub(r"-\d+-of-\d+$", "", path)  # the number of a shard may follow them
    return tag in PLAIN_FORMATS and compression in ("auto", "none") and not suffixes.endswith(COMPRESSED)


# ---- Options ---------------------------------------------------------------------------------


def parse_options(flag: str, given: Sequence[str]) -> dict[str, Any]:
    options = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals:
            raise pyfeed.errors.InvalidArgument(f"{flag}: expected NAME=VALUE, found {word!r}")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options


def reader_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of open_files, from the command line."""
    options: dict[str, Any] = {"compression": args.compression, **parse_options("--option", args.option)}
    if args.format:
        options["format"] = args.format
    if args.slots:
        try:
            slots = [{"dims": [], **s} for s in json.loads(args.slots)]
        except (TypeError, ValueError):
            raise pyfeed.errors.InvalidArgument(
                f'--slots: expected JSON such as [{{"dtype": "uint8", "dims": [28, 28]}}], found {args.slots!r}'
            ) from None
        options["shapes"] = [s["dims"] for s in slots]
        options["dtypes"] = [s.get("dtype") for s in slots]
        options["lod_levels"] = [s.get("lod_levels", 0) for s in slots]
        options["names"] = [s.get("name", "") for s in slots]
    return options


def nbytes(tuple_: Sequence[Any]) -> int:
    return sum(array_of(a).nbytes for a in tuple_)


def array_of(slot: Any) -> np.ndarray[Any, Any]:
    array = slot.data if isinstance(slot, pyfeed.LoDTensor) else slot
    return np.asarray(array)


def path_of(name: str) -> str:
    """The path in a name that `list_files` returned, which begins with the tag of the format."""
    return name.partition(":")[2]


# ---- convert ---------------------------------------------------------------------------------


def convert(args: argparse.Namespace) -> int:
    if args.index and args.output.endswith(COMPRESSED):
        raise pyfeed.errors.InvalidArgument(
            f"--index: expected an output that is not compressed, found {args.output}: records in it are read in order"
        )
    options = {"num_threads": args.threads, "on_corrupt": args.on_corrupt, **reader_options(args)}
    reader = pyfeed.open_files(args.sources, **options)
    slots = reader.slots
    if args.shuffle:
        reader = reader.shuffle(args.shuffle, args.seed)
    names = args.names.split(",") if args.names else [s.name for s in slots]
    if len(names) != len(slots):
        raise pyfeed.errors.InvalidArgument(
            f"--names: expected {len(slots)} name{'s' * (len(slots) != 1)} with commas between them, one for each slot "
            f"of the sources, found {len(names)}"
        )
    options = {"names": names if all(names) else None, **parse_options("--to-option", args.to_option)}

    def create(shard: int, **slots: Any) -> pyfeed.formats.Writer:
        path = shard_name(args.output, shard) if args.shard_records else args.output
        return pyfeed.open_writer(path, format=args.to, **options, **slots)

    with contextlib.closing(conversion_progress(reader, args)) as progress:
        shards = 0
        while reader.has_next():
            with create(shards) as writer:
                write(reader, writer, args.shard_records, progress)
            shards += 1
        if shards == 0:  # no records: the file still describes its slots
            shapes, dtypes, lod_levels = (
                [s.shape for s in slots],
                [s.dtype for s in slots],
                [s.lod_levels for s in slots],
            )
            with create(0, shapes=shapes, dtypes=dtypes, lod_levels=lod_levels):
                shards = 1
        progress.end_file()
    if args.index:
        written = [shard_name(args.output, i) for i in range(shards)] if args.shard_records else [args.output]
        of_raw: dict[str, Any] = {"shapes": [s.shape for s in slots], "dtypes": [s.dtype for s in slots]}
        given = of_raw if pyfeed.list_files(written, args.to)[0].startswith("raw:") else {}
        pyfeed.open_files(written, format=args.to, index=True, **given).close()
    print(f"{progress.records} records, {progress.bytes} bytes, {shards} file{'s' * (shards != 1)} written")
    skipped = count_corrupt(reader.stats())
    if skipped:
        print(f"{skipped} damaged place{'s' * (skipped != 1)} skipped: see {COMMAND} verify", file=sys.stderr)
    return 0


def conversion_progress(reader: pyfeed.Reader, args: argparse.Namespace) -> Progress:
    """The progress in records if their number is known; else in bytes if the files tell enough of them."""
    if not wants_progress(args):
        return Progress("convert", None, enabled=False)
    try:
        return Progress("convert", len(reader), enabled=True)
    except TypeError:  # the number is not known
        pass
    names = pyfeed.list_files(args.sources, args.format)
    sizes = sizes_of(names) if all(is_plain(name, args.compression) for name in names) else None
    progress = Progress("convert", sum(sizes or []), in_bytes=sizes is not None, enabled=True)
    progress.begin_file(sum(sizes or []), smooth=True)
    return progress


def write(reader: pyfeed.Reader, writer: pyfeed.formats.Writer, limit: int, progress: Progress) -> None:
    """Write up to `limit` tuples of the reader; 0: all."""
    for tuple_ in take(reader, limit):
        writer.write(tuple_)
        progress.add(nbytes(tuple_))


def shard_name(path: str, shard: int) -> str:
    """``a.tfrecord`` becomes ``a-00003.tfrecord``."""
    folder, name = os.path.split(path)
    stem, dot, suffix = name.partition(".")
    return os.path.join(folder, f"{stem}-{shard:05d}{dot}{suffix}")


def count_corrupt(stats: dict[str, Any]) -> int:
    return int(stats.get("details", {}).get("corrupt", 0)) + sum(count_corrupt(b) for b in stats.get("below", []))


# ---- inspect ---------------------------------------------------------------------------------


COMPARED_RECORDS = 20  # of a file, to find features that may be the memory of arrays

ARRAYS_HINT = """\
  These features have bytes of the same size in the first {records} records. If they
  are the memory of an array, give its dtype and shape, such as (Python: True)"""


class SlotSummary:
    """The shapes, bytes and checksum of the instances of one slot."""

    def __init__(self) -> None:
        self.least: list[int] | None = None
        self.most: list[int] = []
        self.bytes = 0
        self.crc = 0

    def add(self, slot: Any) -> None:
        array = np.ascontiguousarray(array_of(slot))
        shape = list(array_of(slot).shape)  # not that of array: ascontiguousarray makes () to (1,)
        if self.least is None:
            self.least = self.most = shape
        self.least = [min(p) for p in zip(self.least, shape, strict=True)]
        self.most = [max(p) for p in zip(self.most, shape, strict=True)]
        self.bytes += array.nbytes
        self.crc = zlib.crc32(array.tobytes(), self.crc)

    def shape(self) -> str:
        pairs = zip(self.least or [], self.most, strict=True)
        sizes = [str(a) if a == b else f"{a}..{b}" for a, b in pairs]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def inspect(args: argparse.Namespace) -> int:
    options = reader_options(args)
    names = pyfeed.list_files(args.sources, args.format)
    with files_progress("inspect", names, args) as (progress, files):
        for name in files:
            inspect_file(name, options, args.records, progress)
    return 0


def inspect_file(name: str, options: dict[str, Any], limit: int, progress: Progress) -> None:
    """Print what is in a file: of its first records if there is a limit, or of all of them."""
    reader = pyfeed.open_files([name], **{"num_threads": 1, **options})
    seen = [SlotSummary() for _ in reader.slots]
    records = 0
    features: dict[str, Any] | None = None
    sizes: dict[str, int] = {}  # of features that may be the memory of arrays
    failure: pyfeed.errors.Error | None = None
    try:
        for tuple_ in take(reader, limit):
            if records == 0 and holds_records(name, options):
                features = describe_example(array_of(tuple_[0]).data)
                sizes = array_sizes(array_of(tuple_[0]).data)
            elif sizes and records < COMPARED_RECORDS:
                sizes = dict(sizes.items() & array_sizes(array_of(tuple_[0]).data).items())
            records += 1
            progress.add(nbytes(tuple_))
            for s, slot in zip(seen, tuple_, strict=True):
                s.add(slot)
    except pyfeed.errors.Error as error:
        if records == 0:
            raise
        failure = error
    stats = reader.stats()
    path = path_of(name)
    which = " before the error" if failure else " looked at" if limit else ""
    progress.say(
        f"{path}: {stats['details']['formats'][0]}, {os.path.getsize(path)} bytes, "
        f"{records} record{'s' * (records != 1)}{which}"
    )
    for i, (slot, s) in enumerate(zip(reader.slots, seen, strict=True)):
        lod = f", LoD levels {slot.lod_levels}" if slot.lod_levels else ""
        shape = f", shapes {s.shape()}, {s.bytes} bytes, CRC-32 {s.crc:08x}" if records else ""
        progress.say(f"  slot {i} {slot.name or '-'}: {slot.dtype} {slot.shape}{lod}{shape}")
    if features:
        progress.say(f"  features={format_features(features)}  (of the first record)")
    if sizes and records > 1:
        progress.say(ARRAYS_HINT.format(records=min(records, COMPARED_RECORDS)))
        for feature, size in sorted(sizes.items()):
            about = {feature: {"dtype": "uint8", "shape": [size], "raw": True}}
            progress.say(f"    {format_features(about)[1:-1]}")
    if failure:
        sys.stdout.flush()  # before the error
        raise failure


def holds_records(name: str, options: dict[str, Any]) -> bool:
    """Whether the slot of a file is the bytes of its records, which may be Examples."""
    given = {**options, **options.get("tfrecord", {})}
    return name.startswith("tfrecord:") and given.get("features") is None


def format_features(features: dict[str, Any]) -> str:
    """The argument ``features``, as JSON that is Python too. Characters that cannot be printed are escaped."""
    text = json.dumps(features, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 2**16 else f"\\U{ord(c):08x}" for c in text)


@contextlib.contextmanager
def files_progress(
    what: str, names: Sequence[str], args: argparse.Namespace
) -> Iterator[tuple[Progress, Iterator[str]]]:
    """The progress of a command that reads one file after the other, and the names of the files to go through."""
    enabled = wants_progress(args)
    sizes = sizes_of(names) if enabled else None
    progress = Progress(what, sum(sizes or []), in_bytes=sizes is not None, enabled=enabled)

    def files() -> Iterator[str]:
        for name, size in zip(names, sizes or [0] * len(names), strict=True):
            progress.begin_file(size, is_plain(name, args.compression))
            yield name
            progress.end_file()

    with contextlib.closing(progress):
        yield progress, files()


def take(reader: pyfeed.Reader, limit: int) -> Iterator[tuple[Any, ...]]:
    for i, tuple_ in enumerate(reader.current_pass()):
        yield tuple_
        if i + 1 == limit:
            return


# ---- verify ----------------------------------------------------------------------------------


def verify(args: argparse.Namespace) -> int:
    options = reader_options(args)
    names = pyfeed.list_files(args.sources, args.format)
    with files_progress("verify", names, args) as (progress, files):
        found = [verify_file(name, options, progress) for name in files]
    print(
        f"{len(names)} file{'s' * (len(names) != 1)}, {progress.records} records, {found.count(1)} damaged"
        + (f", {found.count(2)} not verified" if 2 in found else "")
    )
    return max(found, default=0)


def verify_file(name: str, options: dict[str, Any], progress: Progress) -> int:
    """Read all of a file and report every damaged place in it: the exit status, for this file alone."""
    path, before = path_of(name), progress.records
    try:
        # The index of an MDS data set has hashes of whole files.
        given = {"num_threads": 1, **options, "on_corrupt": "skip", "verify_first": name.startswith("mds:")}
        reader = pyfeed.open_files([name], **given)
        for tuple_ in reader:
            progress.add(nbytes(tuple_))
    except pyfeed.errors.CorruptRecordError as e:
        progress.say(str(e))
        return 1
    except pyfeed.errors.Error as e:
        progress.clear()
        complain(str(e) if path in str(e) else f"{path}: {e}")
        return 2
    details = reader.stats()["details"]
    for place in details["ledger"]:
        progress.say(f"{path}{describe_position(place)}: {place['reason']}")
    damaged = details["corrupt"]
    if damaged > len(details["ledger"]):
        progress.say(f"{path}: {damaged - len(details['ledger'])} more damaged places")
    if damaged:
        whole = progress.records - before
        progress.say(f"{path}: {whole} whole records, {damaged} damaged place{'s' * (damaged != 1)}")
    return int(damaged > 0)


# ---- index -----------------------------------------------------------------------------------


def index(args: argparse.Namespace) -> int:
    options = {**reader_options(args), "on_corrupt": args.on_corrupt, "index": True, "index_dir": args.index_dir}
    names = pyfeed.list_files(args.sources, args.format)
    threads = max(args.threads, 1)
    records = 0
    with files_progress("index", names, args) as (progress, files):
        for i, name in enumerate(files):
            if i % threads == 0:  # make as many as there are threads, side by side
                pyfeed.open_files(names[i : i + threads], **options, num_threads=threads).close()
            with pyfeed.open_files([name], **options, num_threads=1) as reader:
                found = len(reader)
            progress.say(f"{path_of(name)}: {found} record{'s' * (found != 1)}")
            records += found
    print(f"{len(names)} file{'s' * (len(names) != 1)}, {records} records")
    return 0


# ---- The command line ------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors are short: what is wrong, an example, and how to get the help."""

    command: str | None = None

    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument (?:-\w/)?-*([\w-]+)", message)
        complain(message.removeprefix("argument "))
        show_example(self.command, found[1].lower().replace("-", "_") if found else None)
        sys.exit(2)


def natural(word: str) -> int:
    """An integer of at least 0, from the command line."""
    try:
        n = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, found {word!r}") from None
    if n < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, found {n}")
    return n


def paragraphs(*texts: str) -> str:
    """Paragraphs of a help, folded. Lines at the end of a paragraph that begin with spaces stay as they are."""
    width = shutil.get_terminal_size().columns - 2
    found = [p for text in texts for p in text.strip("\n").split("\n\n")]

    def folded(paragraph: str) -> str:
        text, *indented = paragraph.split("\n  ")
        return "\n  ".join((fold(" ".join(text.split()), width), *indented))

    return "\n\n".join(map(folded, found))


def examples(commands: Sequence[str]) -> str:
    return "\n".join(("examples:", *(f"  {in_lines(f'{COMMAND} {command}')}" for command in commands)))


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog=COMMAND,
        usage=f"{COMMAND} COMMAND SOURCE [SOURCE ...] [OPTION ...]",
        description=paragraphs("Convert, inspect, verify and index files of training data."),
        epilog=paragraphs(
            examples([commands[0] for commands in EXAMPLES.values()]),
            f"{COMMAND} COMMAND --help lists the options of a command, with more examples.",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=pyfeed.__version__, help="print the version and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    formats = ", ".join(f.tag for f in pyfeed.formats.list_formats())

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, more: str, needs: str = "") -> Any:
        p = commands.add_parser(
            name,
            help=text,
            usage=f"{COMMAND} {name} SOURCE [SOURCE ...]{needs} [OPTION ...]",
            description=paragraphs(text, more),
            epilog=paragraphs(SOURCES.replace("{formats}", formats), examples(EXAMPLES[name])),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        p.command = name
        p.set_defaults(run=run, parser=p)
        p.add_argument("sources", nargs="+", metavar="SOURCE", help="a file, a glob or a directory to read")
        reading = p.add_argument_group("options for reading")
        reading.add_argument("--format", metavar="TAG", help="format of the sources; default: by their suffix")
        reading.add_argument(
            "--compression",
            metavar="NAME",
            default="auto",
            help="compression of the sources: auto, none, gzip, zlib, zstd, snappy or snappy-skippable; default: auto",
        )
        reading.add_argument(
            "--slots",
            metavar="JSON",
            help="the dtypes and dimensions of the arrays of a record, for formats that do not store them: see below",
        )
        reading.add_argument(
            "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the sources' format"
        )
        return p, reading

    c, reading = command(
        "convert",
        convert,
        "Write the records of files to files of another format.",
        "An output file is written completely or not at all.",
        " -o OUTPUT",
    )
    reading.add_argument("--threads", type=natural, default=2, metavar="N", help="threads that read; default: 2")
    reading.add_argument(
        "--on-corrupt", choices=["raise", "skip"], default="raise", metavar="raise|skip",
        help="at a damaged record, stop with an error or skip it; default: raise",
    )  # fmt: skip
    writing = c.add_argument_group("options for writing")
    writing.add_argument(
        "-o", "--output", required=True, metavar="OUTPUT", help="the file to write; its suffix tells the format"
    )
    writing.add_argument("--to", metavar="TAG", help="format of the output; default: by its suffix")
    writing.add_argument(
        "--to-option", action="append", default=[], metavar="NAME=VALUE", help="an option of the output's format"
    )
    writing.add_argument(
        "--names", metavar="A,B",
        help="names of the output's slots (the arrays of a record), such as jpg,cls for a tar file; default: as read",
    )  # fmt: skip
    writing.add_argument(
        "--shard-records", type=natural, default=0, metavar="N",
        help="begin a new file, such as train-00001.recordio, after N records; default: one file",
    )  # fmt: skip
    writing.add_argument(
        "--index", action="store_true", help="also make the index of the output, which says where its records are"
    )
    writing.add_argument(
        "--shuffle", type=natural, default=0, metavar="N", help="shuffle the records in blocks of N; default: do not"
    )
    writing.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the shuffle; default: 0")

    i, _ = command(
        "inspect",
        inspect,
        "Print the format, records, slots, shapes, ragged offsets and checksums of files.",
        "All records of a file are read, unless --records limits them. If a file is damaged, the output is about the "
        "records before the damage, and the exit status is 1. If a TFRecord file holds messages of the type "
        "tf.train.Example, the output also has the features of the first record, in the form of the option features. "
        "It names features that may be the memory of an array, such as an image.",
    )
    i.add_argument("--records", type=natural, default=0, metavar="N", help="read the first N records of each file only")
    v, _ = command(
        "verify",
        verify,
        "Read files completely and report each damaged place.",
        "The exit status is 0 if all files are whole, 1 if one is damaged, and 2 if one could not be verified.",
    )
    x, reading = command(
        "index",
        index,
        "Make the indexes of files, which say where their records are.",
        "open_files with the argument index=True, index_dir or shuffle_records makes them when they are needed, and "
        "uses those that are there. The index of train.recordio is .train.recordio.pfindex. Files of npy, npz, idx, "
        "raw, parquet, mds and tokens need none, and files that are compressed as a whole cannot have one.",
    )
    reading.add_argument(
        "--threads", type=natural, default=2, metavar="N", help="files that are read at the same time; default: 2"
    )
    reading.add_argument(
        "--on-corrupt", choices=["raise", "skip"], default="raise", metavar="raise|skip",
        help="at a damaged record, stop with an error or leave it out; default: raise",
    )  # fmt: skip
    x.add_argument("--index-dir", metavar="DIR", help="a directory for the indexes; default: beside the files")
    for p in (c, i, v, x):
        p.add_argument(
            "--progress",
            action=argparse.BooleanOptionalAction,
            help="show the progress on standard error; default: if it is a terminal. tqdm shows a bar if it is "
            "installed (pip install 'pyarrayfeed[progress]')",
        )
    return top


def warn_of_other_distribution() -> None:
    """Say on standard error that the RSS parser ``pyfeed`` is installed too: uninstalling it removes our files."""
    try:
        other = importlib.metadata.version("pyfeed")
    except importlib.metadata.PackageNotFoundError:
        return
    complain(
        f"warning: the distribution pyfeed {other}, an RSS parser, is installed beside pyarrayfeed, and their files "
        "overwrite each other: pip uninstall pyfeed, then pip install --force-reinstall pyarrayfeed"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns
    -------
    int
        The exit status: 0; 1 for damage; 2 for an error; 130 after Ctrl-C; 141 if a reader of the output is gone.
    """
    args, unknown = parser().parse_known_args(argv)
    if unknown:
        args.parser.error(f"unknown arguments: {' '.join(unknown)}")
    warn_of_other_distribution()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files come out as the bytes that they are
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would fail again
        return 141
    except (pyfeed.errors.Error, OSError) as e:
        wrong_argument = isinstance(e, pyfeed.errors.InvalidArgument)
        text, option = name_option(str(e), args) if wrong_argument else (str(e), None)
        complain(text)
        if wrong_argument or isinstance(e, pyfeed.errors.SlotCountError):
            show_example(args.parser.command, option)
        return 1 if isinstance(e, pyfeed.errors.CorruptRecordError) else 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
