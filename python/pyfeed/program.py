"""Programs: blocks of operators over variables, for an `Executor` to run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import _attributes, _native, slots, unique_name
from ._arguments import instance, optional, path, takes, text
from ._errors import ArgumentTypeError, NotFoundError
from .slots import Slot


class Variable:
    """A variable of a program: what operators read and write when it runs. It has no value before.

    Made by the functions of `layers`; `Program.variable` gives those that are there. Whatever is not
    known when the program is built is None, and checked when it runs.

    Attributes
    ----------
    program : Program
    name : str
    """

    __slots__ = ("_block", "name", "program")

    def __init__(self, program: Program, block: int, name: str) -> None:
        self.program = program
        self._block = block
        self.name = name

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = json.loads(self.program._variable(self._block, self.name))
        return known

    @property
    def kind(self) -> str:
        """``"tensor"``, ``"reader"`` or ``"stage"``."""
        return str(self._known().get("kind", "tensor"))

    @property
    def persistable(self) -> bool:
        """Whether it is the scope's, and outlives the run."""
        return bool(self._known().get("persistable", False))

    @property
    def dtype(self) -> str | None:
        """``"float32"`` and the like, of a tensor."""
        return self._known().get("dtype") or None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a tensor. -1 stands for any size."""
        dims = self._known().get("dims")
        return None if dims is None else tuple(dims)

    @property
    def lod_level(self) -> int:
        """The levels of detail of a tensor."""
        return int(self._known().get("lod_levels", 0))

    @property
    def slots(self) -> list[Slot] | None:
        """What the tuples of a reader look like, or of a stage."""
        known = self._known().get("slots")
        return None if known is None else slots.described(known)

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            f"variable {self.name!r} has no value while the program is built: "
            "branch with layers.IfElse, loop with layers.While"
        )

    def __repr__(self) -> str:
        known = self._known()
        kind = known.get("kind", "tensor")
        if kind != "tensor":
            found = known.get("slots")
            return f"<Variable {self.name!r}: {kind}{'' if found is None else f' of {len(found)} slots'}>"
        shape = "" if known.get("dims") is None else f" {tuple(known['dims'])}"
        return f"<Variable {self.name!r}: {known.get('dtype') or 'tensor'}{shape}>"


class Operator(NamedTuple):
    """An operator of a program.

    Attributes
    ----------
    type : str
        Such as ``"read"``.
    inputs, outputs : list of str
        Names of variables.
    attributes : dict
    where : str
        The line that it was built at.
    """

    type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    where: str


class Block(NamedTuple):
    """A block of a program: operators that run one after the other, and variables.

    Attributes
    ----------
    number : int
        0 is what runs; each other one is the body of an operator of its parent.
    parent : int
        Whose variables it sees too. -1 for the first.
    variables : list of Variable
    operators : list of Operator
    """

    number: int
    parent: int
    variables: list[Variable]
    operators: list[Operator]


class _Building(threading.local):
    """Where each thread adds operators: the innermost block of a with statement."""

    def __init__(self) -> None:
        self.blocks = [0]


class Program(_native.Program):
    """Blocks of operators over variables: a training loop that needs no Python when it runs.

    The functions of `layers` add operators to the default programs, which `program_guard` changes; an
    `Executor` runs them. Saved, a program runs in a process without Python: see ``pyfeed_program.hpp``.

    Any number of threads may run a program, and build it: a run goes by what it was when it began.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [3], "int64")
    ...     y = layers.assign(x)
    ...     y = layers.increment(y, 10)
    >>> (found,) = Executor().run(program, feed={"x": np.array([[1, 2, 3]])}, fetch=[y])
    >>> found.tolist()
    [[11, 12, 13]]
    >>> program
    <Program: 1 block, 2 variables, 2 operators>
    """

    @takes()
    def __new__(cls) -> Program:
        return cls._new()._begun()

    def _begun(self) -> Program:
        self._building = _Building()
        self._lock = threading.RLock()
        self._pending: dict[_Place, tuple[Callable[[], None], _Guard | None]] = {}
        self._kept: list[object] = []  # what must live as long as the program: eager readers, queues
        return self

    # ---- Its forms ----

    @classmethod
    @takes(path=path)
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """The program in a file: JSON if its name ends with ``.json``, else protobuf.

        Raises
        ------
        CorruptRecordError
            The file is damaged.
        UnsupportedError
            It is of another version of the format.
        """
        return cls._load(os.fsencode(path))._begun()

    @takes(path=path)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: as JSON if its name ends with ``.json``, else as protobuf.

        The file is written whole or not at all.
        """
        self._settle()
        self._save(os.fsencode(path))

    @classmethod
    @takes(data=instance((bytes, bytearray, memoryview), "bytes"))
    def from_bytes(cls, data: bytes) -> Program:
        """The program that `to_bytes` gave."""
        return cls._parse(data)._begun()

    @takes()
    def to_bytes(self) -> bytes:
        """As protobuf, by ``program/desc/program.proto``: what `save` writes."""
        return self._form("protobuf")

    @classmethod
    @takes(text=text)
    def from_json(cls, text: str) -> Program:
        """The program that `to_json` gave, or that somebody has written."""
        return cls._parse(text.encode())._begun()

    @takes()
    def to_json(self) -> str:
        """As JSON, to be read and edited."""
        return self._form("json").decode()

    @takes()
    def to_mermaid(self) -> str:
        """A picture, as text for Mermaid: what notebooks, GitHub and GitLab show as one."""
        return self._form("mermaid").decode()

    @takes()
    def to_graphviz(self) -> str:
        """A picture, as text for Graphviz's ``dot``."""
        return self._form("graphviz").decode()

    def _form(self, form: str) -> bytes:
        self._settle()
        return self._serialize(form)

    @takes()
    def clone(self) -> Program:
        """A copy, which may be changed apart from the original."""
        self._settle()
        copy = self._clone()._begun()
        copy._kept = list(self._kept)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return Program.from_bytes, (self.to_bytes(),)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/vnd.mermaid": self.to_mermaid()}

    def __repr__(self) -> str:
        blocks = self.blocks
        counts = (
            (len(blocks), "block"),
            (sum(len(b.variables) for b in blocks), "variable"),
            (sum(len(b.operators) for b in blocks), "operator"),
        )
        return f"<Program: {', '.join(f'{n} {what}{s}' for n, what in counts for s in ['s' * (n != 1)])}>"

    # ---- What it consists of ----

    @property
    def handle(self) -> int:
        """The number by which the C API knows it."""
        self._settle()
        return super().handle

    @property
    def blocks(self) -> list[Block]:
        """Its blocks, as they are now."""
        return [
            Block(
                index,
                block["parent"],
                [Variable(self, index, v["name"]) for v in block.get("variables", ())],
                [
                    Operator(
                        op["type"],
                        op.get("inputs", []),
                        op.get("outputs", []),
                        op.get("attributes", {}),
                        op.get("where", ""),
                    )
                    for op in block.get("ops", ())
                ],
            )
            for index, block in enumerate(_attributes.decode_of_operator(self.to_json())["blocks"])
        ]

    @takes(name=text)
    def variable(self, name: str) -> Variable:
        """The variable of that name, in the block that is being built or those around it.

        Raises
        ------
        NotFoundError
            There is none.
        """
        block = self._building.blocks[-1]
        self._variable(block, name)
        return Variable(self, block, name)

    # ---- Building ----

    def _has(self, name: str) -> bool:
        try:
            self._variable(self._building.blocks[-1], name)
        except NotFoundError:
            return False
        return True

    def _declare(self, name: str, *, block: int | None = None, **known: object) -> Variable:
        """Add a variable, to the block that is being built if it is not said."""
        block = self._building.blocks[-1] if block is None else block
        self._add_variable(block, _attributes.encode({"name": name, **known}))
        return Variable(self, block, name)

    def _temporary(self, key: str) -> Variable:
        """A new variable, of which nothing is known."""
        return self._declare(self._unused(key))

    def _unused(self, key: str, *others: Program) -> str:
        while True:  # a program that was loaded has names of its own
            name = unique_name.generate(key)
            if not any(program._has(name) for program in (self, *others)):
                return name

    def _append(
        self,
        kind: str,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        attributes: Mapping[str, object] | None = None,
        *,
        block: int | None = None,
        where: str | None = None,
    ) -> None:
        """Add an operator, to the block that is being built if it is not said."""
        block = self._building.blocks[-1] if block is None else block
        self._settle(block)
        op = {
            "type": kind,
            "inputs": list(inputs),
            "outputs": list(outputs),
            "where": caller() if where is None else where,
        }
        encoded = _attributes.encode_of_operator(attributes or {})
        self._add_op(block, f'{json.dumps(op)[:-1]}, "attributes": {encoded}}}')

    @contextlib.contextmanager
    def _body(self, parent: int) -> Iterator[int]:
        """A new block, which what is added within a with statement goes to."""
        self._settle(parent)
        block = self._add_block(parent)
        blocks = self._building.blocks
        blocks.append(block)
        try:
            yield block
            self._settle(block)
        finally:
            self._recall((threading.get_ident(), block))
            blocks.pop()

    # An operator that is complete, but for what may follow at once, is put off: until this thread adds another to
    # the block, or the program is used. What other threads do, as long as a program_guard is open, is no matter.

    def _put_off(self, block: int, complete: Callable[[], None]) -> _Place:
        place = threading.get_ident(), block
        with self._lock:
            self._pending[place] = complete, _guards.of(self)
        return place

    def _recall(self, place: _Place) -> None:
        with self._lock:
            self._pending.pop(place, None)

    def _settle(self, block: int | None = None) -> None:
        """Nothing can follow at once any more: in a block or, as before the program is used, in all of them."""
        if not self._pending:
            return
        here = threading.get_ident()
        with self._lock:
            for place in sorted(self._pending, key=lambda place: -place[1]):  # bodies first
                if place not in self._pending:  # one that was completed before it has seen to this one too
                    continue
                complete, guard = self._pending[place]
                left = guard is None or not guard.open
                if (place[0] == here and block in (None, place[1])) or (left and block is None):
                    del self._pending[place]
                    complete()


a_program = instance(Program, "a Program")


def caller() -> str:
    """The line of somebody else's code that called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pyfeed":
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# ---- Default programs ----


_Place = tuple[int, int]  # a thread, and the block that it builds


class _Guard:
    def __init__(self, main: Program, startup: Program) -> None:
        self.programs = main, startup
        self.open = True


class _Guards(threading.local):
    def __init__(self) -> None:
        self.all: list[_Guard] = []

    def of(self, main: Program) -> _Guard | None:
        return next((guard for guard in reversed(self.all) if guard.programs[0] is main), None)


_guards = _Guards()
_defaults: list[Program] = []
_making = threading.Lock()


def _default(which: int) -> Program:
    if _guards.all:
        return _guards.all[-1].programs[which]
    with _making:
        if not _defaults:
            _defaults.extend((Program(), Program()))
    return _defaults[which]


@takes()
def default_main_program() -> Program:
    """The program that `layers` add operators to: that of the innermost `program_guard`, or the process's own."""
    return _default(0)


@takes()
def default_startup_program() -> Program:
    """The program that `layers` add to what is to run once, before the main program: readers are made there."""
    return _default(1)


@takes(main=a_program, startup=optional(a_program))
@contextlib.contextmanager
def program_guard(main: Program, startup: Program | None = None) -> Iterator[None]:
    """Make other programs the default ones for the length of a with statement, in this thread.

    Parameters
    ----------
    main : Program
    startup : Program, optional
        That of before, if not given.

    Examples
    --------
    >>> from pyfeed import Program, layers, program_guard
    >>> main, startup = Program(), Program()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([(2,)], count=3)
    >>> main, startup
    (<Program: 1 block, 1 variable, 0 operators>, <Program: 1 block, 1 variable, 1 operator>)
    """
    guard = _Guard(main, default_startup_program() if startup is None else startup)
    _guards.all.append(guard)
    try:
        yield
        main._settle()
    finally:
        guard.open = False
        _guards.all.remove(guard)
