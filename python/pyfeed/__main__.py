"""The command line: ``python -m pyfeed convert``, ``inspect`` and ``verify``."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import pyfeed

EPILOG = """\
A source is a file, a glob or a directory, with a format's tag and a colon before it where its suffix does not tell
the format: "idx:train-images". Options of a format are given as name=value, where value is JSON or else a string:
--option 'features=[{"name": "image", "kind": "fixed", "dtype": "bytes"}]'. Formats: {formats}.
"""


class Progress:
    """How far a command is, on standard error if somebody looks at it."""

    def __init__(self, what: str, total: int, enabled: bool | None = None) -> None:
        self.what, self.total = what, total
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self.begin = time.monotonic()
        self.shown = self.begin
        self.records = self.bytes = self.done = 0

    def add(self, nbytes: int) -> None:
        self.records += 1
        self.bytes += nbytes
        if self.enabled and not self.records & 63:
            now = time.monotonic()
            if now - self.shown >= 0.1:
                self.shown = now
                self.show(now)

    def show(self, now: float) -> None:
        rate = self.bytes / 1e6 / max(now - self.begin, 1e-9)
        share = f"{self.done}/{self.total} files, " if self.total else ""
        print(
            f"\r{self.what}: {share}{self.records} records, {rate:.0f} MB/s\x1b[K", end="", file=sys.stderr, flush=True
        )

    def close(self) -> None:
        if self.enabled:
            self.show(time.monotonic())
            print(file=sys.stderr)


def parse_options(given: Sequence[str]) -> dict[str, Any]:
    options = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals:
            raise pyfeed.InvalidArgument(f"option: expected name=value, found {word!r}")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options


def how_to_read(args: argparse.Namespace) -> dict[str, Any]:
    """What open_files is to be told."""
    told: dict[str, Any] = {"compression": args.compression, **parse_options(args.option)}
    if args.format:
        told["format"] = args.format
    if args.slots:
        try:
            slots = [{"dims": [], **s} for s in json.loads(args.slots)]
        except (TypeError, ValueError):
            raise pyfeed.InvalidArgument(
                f'slots: expected JSON such as [{{"dtype": "uint8", "dims": [28, 28]}}], found {args.slots!r}'
            ) from None
        told["shapes"] = [s["dims"] for s in slots]
        told["dtypes"] = [s.get("dtype") for s in slots]
        told["lod_levels"] = [s.get("lod_levels", 0) for s in slots]
        told["names"] = [s.get("name", "") for s in slots]
    return told


def nbytes(tuple_: Sequence[Any]) -> int:
    return sum(array_of(a).nbytes for a in tuple_)


def array_of(slot: Any) -> np.ndarray[Any, Any]:
    array = slot.data if isinstance(slot, pyfeed.LoDTensor) else slot
    return np.asarray(array)


def path_of(name: str) -> str:
    """A name by list_files without its format."""
    return name.partition(":")[2]


# ---- convert ---------------------------------------------------------------------------------


def convert(args: argparse.Namespace) -> int:
    told = {"num_threads": args.threads, "on_corrupt": args.on_corrupt, **how_to_read(args)}
    reader = pyfeed.open_files(args.sources, **told)
    slots = reader.slots
    if args.shuffle:
        reader = reader.shuffle(args.shuffle, args.seed)
    names = args.names.split(",") if args.names else [s.name for s in slots]
    options = {"names": names if all(names) else None, **parse_options(args.to_option)}

    def create(shard: int, **slots: Any) -> pyfeed.Writer:
        path = shard_name(args.output, shard) if args.shard_records else args.output
        return pyfeed.open_writer(path, format=args.to, **options, **slots)

    progress = Progress("convert", 0, args.progress)
    with contextlib.closing(progress):
        shards = 0
        while reader.has_next():
            with create(shards) as writer:
                write(reader, writer, args.shard_records, progress)
            shards += 1
        if shards == 0:  # a file that says what there is none of
            shapes, dtypes, lod_levels = (
                [s.shape for s in slots],
                [s.dtype for s in slots],
                [s.lod_levels for s in slots],
            )
            with create(0, shapes=shapes, dtypes=dtypes, lod_levels=lod_levels):
                shards = 1
    print(f"{progress.records} records, {progress.bytes} bytes, {shards} file{'s' * (shards != 1)} written")
    skipped = corrupt_of(reader.stats())
    if skipped:
        print(f"{skipped} damaged place{'s' * (skipped != 1)} skipped: see pyfeed verify", file=sys.stderr)
    return 0


def write(reader: pyfeed.Reader, writer: pyfeed.Writer, most: int, progress: Progress) -> None:
    """Write what comes, at most so many tuples; 0: all."""
    for tuple_ in take(reader, most):
        writer.write(tuple_)
        progress.add(nbytes(tuple_))


def shard_name(path: str, shard: int) -> str:
    """``a.tfrecord`` becomes ``a-00003.tfrecord``."""
    folder, name = os.path.split(path)
    stem, dot, suffix = name.partition(".")
    return os.path.join(folder, f"{stem}-{shard:05d}{dot}{suffix}")


def corrupt_of(stats: dict[str, Any]) -> int:
    return int(stats.get("details", {}).get("corrupt", 0)) + sum(corrupt_of(b) for b in stats.get("below", []))


# ---- inspect ---------------------------------------------------------------------------------


class Seen:
    """What the instances of one slot look like."""

    def __init__(self) -> None:
        self.least: list[int] | None = None
        self.most: list[int] = []
        self.bytes = 0
        self.crc = 0

    def add(self, slot: Any) -> None:
        array = np.ascontiguousarray(array_of(slot))
        shape = list(array_of(slot).shape)  # of which ascontiguousarray makes at least one dimension
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
    told = how_to_read(args)
    for name in pyfeed.list_files(args.sources, args.format):
        reader = pyfeed.open_files([name], **{"num_threads": 1, **told})
        seen = [Seen() for _ in reader.slots]
        records = 0
        for tuple_ in take(reader, args.records):
            records += 1
            for s, slot in zip(seen, tuple_, strict=True):
                s.add(slot)
        stats = reader.stats()
        path = path_of(name)
        print(
            f"{path}: {stats['details']['formats'][0]}, {os.path.getsize(path)} bytes, {records} records"
            + (" looked at" if args.records else "")
        )
        for i, (slot, s) in enumerate(zip(reader.slots, seen, strict=True)):
            lod = f", LoD levels {slot.lod_levels}" if slot.lod_levels else ""
            shape = f", shapes {s.shape()}, {s.bytes} bytes, CRC-32 {s.crc:08x}" if records else ""
            print(f"  slot {i} {slot.name or '-'}: {slot.dtype} {slot.shape}{lod}{shape}")
    return 0


def take(reader: pyfeed.Reader, most: int) -> Iterator[tuple[Any, ...]]:
    for i, tuple_ in enumerate(reader):
        yield tuple_
        if i + 1 == most:
            return


# ---- verify ----------------------------------------------------------------------------------


def verify(args: argparse.Namespace) -> int:
    told = how_to_read(args)
    names = pyfeed.list_files(args.sources, args.format)
    progress = Progress("verify", len(names), args.progress)
    found = []
    with contextlib.closing(progress):
        for name in names:
            found.append(verify_file(name, told, progress))
            progress.done += 1
    print(
        f"{len(names)} file{'s' * (len(names) != 1)}, {progress.records} records, {found.count(1)} damaged"
        + (f", {found.count(2)} not verified" if 2 in found else "")
    )
    return max(found, default=0)


def verify_file(name: str, told: dict[str, Any], progress: Progress) -> int:
    """Read all of a file and report every damaged place in it: the exit status, for this file alone."""
    path, before = path_of(name), progress.records
    try:
        reader = pyfeed.open_files([name], **{"num_threads": 1, **told, "on_corrupt": "skip"})
        for tuple_ in reader:
            progress.add(nbytes(tuple_))
    except pyfeed.CorruptRecordError as e:
        print(e)
        return 1
    except pyfeed.Error as e:
        print(f"pyfeed: {e}" if path in str(e) else f"pyfeed: {path}: {e}", file=sys.stderr)
        return 2
    details = reader.stats()["details"]
    for place in details["ledger"]:
        where = ", byte {offset}".format_map(place) * (place["offset"] >= 0)
        about = "about " * place["approximate"]
        where += f", {about}record {place['record']}" * (place["record"] >= 0)
        print(f"{path}{where}: {place['reason']}")
    damaged = details["corrupt"]
    if damaged > len(details["ledger"]):
        print(f"{path}: {damaged - len(details['ledger'])} more damaged places")
    if damaged:
        print(f"{path}: {progress.records - before} whole records, {damaged} damaged place{'s' * (damaged != 1)}")
    return int(damaged > 0)


# ---- The command line ------------------------------------------------------------------------


def natural(word: str) -> int:
    n = int(word)
    if n < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, found {n}")
    return n


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m pyfeed", description=__doc__)
    top.add_argument("--version", action="version", version=pyfeed.__version__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    formats = ", ".join(f.tag for f in pyfeed.formats())

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        p = commands.add_parser(
            name, help=text, description=text, epilog=EPILOG.replace("{formats}", formats),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        p.set_defaults(run=run)
        p.add_argument("sources", nargs="+", metavar="SOURCE")
        p.add_argument("--format", help="the tag of the sources' format")
        p.add_argument(
            "--compression",
            default="auto",
            help="of the sources: auto, none, gzip, zlib, zstd, snappy or snappy-skippable",
        )
        p.add_argument("--slots", help='what instances look like, as JSON: [{"dtype": "uint8", "dims": [28, 28]}]')
        p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the sources' format")
        return p

    c = command("convert", convert, "Write what is in some files to files of another format.")
    c.add_argument("-o", "--output", required=True, help="the file to write, its format by prefix or suffix")
    c.add_argument("--to", help="the tag of the output's format")
    c.add_argument("--to-option", action="append", default=[], metavar="NAME=VALUE", help="of the output's format")
    c.add_argument("--names", help="of the output's slots, with commas between, such as jpg,cls for a tar file")
    c.add_argument("--shard-records", type=natural, default=0, metavar="N", help="begin a new file after N records")
    c.add_argument("--shuffle", type=natural, default=0, metavar="N", help="shuffle in blocks of N records")
    c.add_argument("--seed", type=natural, default=0)
    c.add_argument("--threads", type=natural, default=2, help="that read")
    c.add_argument("--on-corrupt", choices=["raise", "skip"], default="raise")
    i = command("inspect", inspect, "Say what is in files: format, records, slots, shapes, LoD, checksums.")
    i.add_argument("--records", type=natural, default=0, metavar="N", help="look at the first N records only")
    v = command("verify", verify, "Read all of files and report every damaged place. Exit status 1 if there is one.")
    for p in (c, v):
        p.add_argument("--progress", action=argparse.BooleanOptionalAction, help="default: if stderr is a terminal")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the answer is its exit status: 0, 1 for damage, 2 for what cannot be done, 130 after Ctrl-C."""
    args = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # names of files come out as the bytes that they are
    try:
        return int(args.run(args))
    except pyfeed.Error as e:
        print(f"pyfeed: {e}", file=sys.stderr)
        return 1 if isinstance(e, pyfeed.CorruptRecordError) else 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
