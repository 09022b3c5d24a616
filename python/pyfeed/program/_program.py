"""Programs, which consist of blocks of operators over variables."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .. import _attributes, _native, _slots, unique_name
from .._arguments import instance, optional, path, text, validate
from .._slots import Slot
from ..errors import ArgumentTypeError, NotFoundError


class Variable:
    """A variable of a program, which operators read and write when the program runs.

    The functions of `layers` make variables, and `Program.variable` looks them up. A variable has no value while
    the program is built. Properties that are not known then are None; the executor checks the tensors when the
    program runs.

    Attributes
    ----------
    program : Program
        The program of the variable.
    name : str
        The name of the variable, which is unique in its block.
    """

    __slots__ = ("_block", "name", "program")

    def __init__(self, program: Program, block: int, name: str) -> None:
        self.program = program
        self._block = block
        self.name = name

    def _description(self) -> dict[str, Any]:
        known: dict[str, Any] = json.loads(self.program._variable(self._block, self.name))
        return known

    @property
    def kind(self) -> str:
        """What the variable contains: ``"tensor"``, ``"reader"`` or ``"stage"``."""
        return str(self._description().get("kind", "tensor"))

    @property
    def persistable(self) -> bool:
        """Whether the variable belongs to the scope, and keeps its value when a run ends."""
        return bool(self._description().get("persistable", False))

    @property
    def dtype(self) -> str | None:
        """The name of a tensor's dtype, such as ``"float32"``; None if it is not known."""
        return self._description().get("dtype") or None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a tensor, in which -1 stands for any size; None if it is not known."""
        dims = self._description().get("dims")
        return None if dims is None else tuple(dims)

    @property
    def lod_level(self) -> int:
        """The number of levels of ragged offsets (LoD, level of detail) of a tensor."""
        return int(self._description().get("lod_levels", 0))

    @property
    def slots(self) -> list[Slot] | None:
        """The slots of the tuples of a reader or a stage, a `Slot` for each; None if they are not known."""
        known = self._description().get("slots")
        return None if known is None else _slots.from_attributes(known)

    def __bool__(self) -> bool:
        raise ArgumentTypeError(
            f"variable {self.name!r} has no value while the program is built: "
            "branch with layers.IfElse, loop with layers.While"
        )

    def __repr__(self) -> str:
        known = self._description()
        kind = known.get("kind", "tensor")
        if kind != "tensor":
            found = known.get("slots")
            return f"<Variable {self.name!r}: {kind}{'' if found is None else f' of {len(found)} slots'}>"
        shape = "" if known.get("dims") is None else f" {tuple(known['dims'])}"
        return f"<Variable {self.name!r}: {known.get('dtype') or 'tensor'}{shape}>"


class Operator(NamedTuple):
    """An operator of a program: one step, such as a read of the next batch.

    Attributes
    ----------
    type : str
        The type of the operator, such as ``"read"``. `docs/program.md` lists all types.
    inputs : list of str
        The names of the variables that it reads.
    outputs : list of str
        The names of the variables that it writes.
    attributes : dict
        The attributes of the operator, by name.
    where : str
        The file and the line of the code that added the operator.
    """

    type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    where: str


class Block(NamedTuple):
    """A block of a program: variables, and operators that run one after the other.

    Attributes
    ----------
    number : int
        The number of the block. A run executes block 0. Each other block is the body of an operator in its
        parent.
    parent : int
        The number of the parent block, whose variables the operators can use too. -1 for block 0.
    variables : list of Variable
        The variables that are declared in this block.
    operators : list of Operator
        The operators, in the order in which they run.
    """

    number: int
    parent: int
    variables: list[Variable]
    operators: list[Operator]


class _BlockStack(threading.local):
    """The blocks that each thread is building. New operators are added to the innermost one."""

    def __init__(self) -> None:
        self.blocks = [0]


class Program(_native.Program):
    """A training loop as blocks of operators over variables, which needs no Python when it runs.

    The functions of `layers` add operators to the default programs, which `program_guard` sets. An `Executor`
    runs a program. A saved program runs in a process without Python: see ``pyfeed_program.hpp``. A new program is
    empty.

    Any number of threads may build and run the same program at the same time. A run executes the program as it
    was when the run began.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
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

    @validate()
    def __new__(cls) -> Program:
        return cls._new()._initialize()

    def _initialize(self) -> Program:
        self._block_stack = _BlockStack()
        self._lock = threading.RLock()
        self._deferred: dict[_Place, tuple[Callable[[], None], _Guard | None]] = {}
        self._references: list[object] = []  # objects that must live as long as the program: eager readers, queues
        return self

    # ---- Saving and loading ----

    @classmethod
    @validate(path=path)
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """Read a program from a file that `save` wrote, in any language.

        Parameters
        ----------
        path : str or path
            The name of the file. The file is JSON if the name ends with ``.json``, otherwise protobuf. A further
            suffix, such as ``.gz``, means that it is compressed.

        Returns
        -------
        Program

        Raises
        ------
        FileError
            The file cannot be read.
        CorruptRecordError
            The file is damaged, or is not a program.
        UnsupportedError
            The file has another version of the format.

        Examples
        --------
        >>> import tempfile
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     program.save(f"{folder}/program.json")
        ...     Program.load(f"{folder}/program.json")
        <Program: 1 block, 2 variables, 1 operator>
        """
        return cls._load(os.fsencode(path))._initialize()

    @validate(path=path)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file.

        The file is written completely or not at all, and replaces an old one. It contains neither kernels nor queues,
        which a program finds by their names, nor the values of variables.

        Parameters
        ----------
        path : str or path
            The name of the file. The file is JSON if the name ends with ``.json``, otherwise protobuf. A further
            suffix ``.gz``, ``.zst``, ``.sz`` or ``.zlib`` compresses it.

        Raises
        ------
        FileError
            The file cannot be written.

        Examples
        --------
        See `load`.
        """
        self._flush_deferred()
        self._save(os.fsencode(path))

    @classmethod
    @validate(data=instance((bytes, bytearray, memoryview), "bytes"))
    def from_bytes(cls, data: bytes) -> Program:
        """Make a program from the result of `to_bytes`.

        Parameters
        ----------
        data : bytes
            A program as protobuf.

        Returns
        -------
        Program

        Raises
        ------
        CorruptRecordError
            `data` is damaged, or is not a program.
        UnsupportedError
            `data` has another version of the format.

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> Program.from_bytes(program.to_bytes())
        <Program: 1 block, 2 variables, 1 operator>
        """
        return cls._parse(data)._initialize()

    @validate()
    def to_bytes(self) -> bytes:
        """Return the program as protobuf: the content of the file that `save` writes.

        Returns
        -------
        bytes
            A message as described by ``program/desc/program.proto``. The same program always gives the same bytes.
        """
        return self._serialized("protobuf")

    @classmethod
    @validate(text=text)
    def from_json(cls, text: str) -> Program:
        """Make a program from JSON: the result of `to_json`, or text that was written by hand.

        Parameters
        ----------
        text : str
            A program as JSON.

        Returns
        -------
        Program

        Raises
        ------
        CorruptRecordError
            `text` is not a program.
        UnsupportedError
            `text` has another version of the format.

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> Program.from_json(program.to_json())
        <Program: 1 block, 2 variables, 1 operator>
        """
        return cls._parse(text.encode())._initialize()

    @validate()
    def to_json(self) -> str:
        """Return the program as JSON, for people to read and edit.

        Returns
        -------
        str
        """
        return self._serialized("json").decode()

    @validate()
    def to_mermaid(self) -> str:
        """Return a diagram of the program as text for Mermaid, which notebooks, GitHub and GitLab draw.

        Returns
        -------
        str

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> "assign" in program.to_mermaid()
        True
        """
        return self._serialized("mermaid").decode()

    @validate()
    def to_graphviz(self) -> str:
        """Return a diagram of the program as text for the command ``dot`` of Graphviz.

        Returns
        -------
        str

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> "assign" in program.to_graphviz()
        True
        """
        return self._serialized("graphviz").decode()

    def _serialized(self, form: str) -> bytes:
        self._flush_deferred()
        return self._serialize(form)

    @validate()
    def clone(self) -> Program:
        """Return a copy of the program. Later changes of one do not affect the other.

        Returns
        -------
        Program

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> copy = program.clone()
        >>> with program_guard(copy):
        ...     y = layers.increment(y)
        >>> program, copy
        (<Program: 1 block, 2 variables, 1 operator>, <Program: 1 block, 2 variables, 2 operators>)
        """
        self._flush_deferred()
        copy = self._clone()._initialize()
        copy._references = list(self._references)
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

    # ---- Blocks and variables ----

    @property
    def handle(self) -> int:
        """The handle of the program, a number that functions of the C library take."""
        self._flush_deferred()
        return super().handle

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the program, as they are now: a list of `Block`."""
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
            for index, block in enumerate(_attributes.decode_operator_attributes(self.to_json())["blocks"])
        ]

    @validate(name=text)
    def variable(self, name: str) -> Variable:
        """Look up a variable by name, in the block that is being built and the blocks around it.

        Parameters
        ----------
        name : str
            The name of the variable.

        Returns
        -------
        Variable

        Raises
        ------
        NotFoundError
            There is no variable of that name.

        Examples
        --------
        >>> from pyfeed.program import Program, layers, program_guard
        >>> program = Program()
        >>> with program_guard(program):
        ...     y = layers.assign(layers.data("x", [3]))
        >>> program.variable("x")
        <Variable 'x': float32 (-1, 3)>
        """
        block = self._block_stack.blocks[-1]
        self._variable(block, name)
        return Variable(self, block, name)

    # ---- Building ----

    def _has(self, name: str) -> bool:
        try:
            self._variable(self._block_stack.blocks[-1], name)
        except NotFoundError:
            return False
        return True

    def _declare(self, name: str, *, block: int | None = None, **known: object) -> Variable:
        """Add a variable to a block, by default to the one that is being built."""
        block = self._block_stack.blocks[-1] if block is None else block
        self._add_variable(block, _attributes.encode({"name": name, **known}))
        return Variable(self, block, name)

    def _temporary(self, key: str) -> Variable:
        """Add a variable with a unique name, of which nothing else is known."""
        return self._declare(self._unique_name(key))

    def _unique_name(self, key: str, *others: Program) -> str:
        while True:  # a program that was loaded may have generated names already
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
        """Add an operator to a block, by default to the one that is being built."""
        block = self._block_stack.blocks[-1] if block is None else block
        self._flush_deferred(block)
        op = {
            "type": kind,
            "inputs": list(inputs),
            "outputs": list(outputs),
            "where": caller_location() if where is None else where,
        }
        encoded = _attributes.encode_operator_attributes(attributes or {})
        self._add_op(block, f'{json.dumps(op)[:-1]}, "attributes": {encoded}}}')

    @contextlib.contextmanager
    def _new_block(self, parent: int) -> Iterator[int]:
        """Add a block. Within the with statement, operators and variables are added to it."""
        self._flush_deferred(parent)
        block = self._add_block(parent)
        blocks = self._block_stack.blocks
        blocks.append(block)
        try:
            yield block
            self._flush_deferred(block)
        finally:
            self._cancel_deferred((threading.get_ident(), block))
            blocks.pop()

    # An IfElse with one block may still get its second block. Its operator is therefore deferred until this thread adds
    # another operator to the block, or until the program is used. Uses by other threads do not count while the
    # program_guard of this thread is open.

    def _defer(self, block: int, complete: Callable[[], None]) -> _Place:
        place = threading.get_ident(), block
        with self._lock:
            self._deferred[place] = complete, _guards.of(self)
        return place

    def _cancel_deferred(self, place: _Place) -> None:
        with self._lock:
            self._deferred.pop(place, None)

    def _flush_deferred(self, block: int | None = None) -> None:
        """Add the deferred operators of a block, or of all blocks, as is necessary before the program is used."""
        if not self._deferred:
            return
        here = threading.get_ident()
        with self._lock:
            for place in sorted(self._deferred, key=lambda place: -place[1]):  # bodies first
                if place not in self._deferred:  # the completion of another operator has added this one too
                    continue
                complete, guard = self._deferred[place]
                left = guard is None or not guard.open
                if (place[0] == here and block in (None, place[1])) or (left and block is None):
                    del self._deferred[place]
                    complete()


check_program = instance(Program, "a Program")


def caller_location() -> str:
    """Return the file and the line of the innermost stack frame outside of pyfeed."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pyfeed":
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


# ---- Default programs ----


_Place = tuple[int, int]  # a thread, and the number of the block that it builds


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
_defaults_lock = threading.Lock()


def _default(which: int) -> Program:
    if _guards.all:
        return _guards.all[-1].programs[which]
    with _defaults_lock:
        if not _defaults:
            _defaults.extend((Program(), Program()))
    return _defaults[which]


@validate()
def default_main_program() -> Program:
    """Return the program to which the functions of `layers` add operators.

    It is the main program of the innermost `program_guard` of this thread. Without a guard, it is a program that
    the whole process shares.

    Returns
    -------
    Program

    Examples
    --------
    >>> from pyfeed.program import Program, default_main_program, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     default_main_program() is program
    True
    """
    return _default(0)


@validate()
def default_startup_program() -> Program:
    """Return the program to which the functions of `layers` add readers and global variables.

    This program runs once, before the main program. It is the startup program of the innermost `program_guard` of
    this thread. Without a guard, it is a program that the whole process shares.

    Returns
    -------
    Program

    Examples
    --------
    >>> from pyfeed.program import Program, default_startup_program, program_guard
    >>> main, startup = Program(), Program()
    >>> with program_guard(main, startup):
    ...     default_startup_program() is startup
    True
    """
    return _default(1)


@validate(main=check_program, startup=optional(check_program))
@contextlib.contextmanager
def program_guard(main: Program, startup: Program | None = None) -> Iterator[None]:
    """Set the default programs of this thread within a ``with`` statement.

    Parameters
    ----------
    main : Program
        The program that `default_main_program` returns within the statement.
    startup : Program, optional
        The program that `default_startup_program` returns within the statement. By default, it does not change.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
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
        main._flush_deferred()
    finally:
        guard.open = False
        _guards.all.remove(guard)
