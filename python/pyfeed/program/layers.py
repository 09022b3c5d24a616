"""Functions that build programs. Each adds an operator to a default program, and returns its results.

The operators that make readers are added to the startup program, which runs once. Both programs can use the
readers. All other operators are added to the main program. `program_guard` sets the two programs. The
functions compute nothing themselves: an `Executor` runs the programs. The names are those of PaddlePaddle
Fluid.

A new variable belongs to the block that is being built, such as the body of a loop. Every function that takes
a variable also takes its name. An operator that does not fit its variables is refused with `ShapeError`,
`DTypeError` or `InvalidArgument`, as far as the variables are known; the executor checks all tensors again.

Examples
--------
Two passes over ten numbers, in a program that needs no Python when it runs:

>>> import pyfeed
>>> from pyfeed import Scope
>>> from pyfeed.program import Executor, Program, layers, program_guard
>>> main, startup = Program(), Program()
>>> with program_guard(main, startup):
...     reader = layers.batch(layers.random_data([()], ["int64"], high=99, count=10), 4)
...     passes = layers.fill_constant([], "int64", 0)
...     batches = layers.fill_constant([], "int64", 0)
...     required = layers.fill_constant([], "int64", 2)
...     going_on = layers.less_than(passes, required)
...     with layers.While(going_on).block():
...         more = layers.IfElse(layers.has_next(reader))
...         with more.true_block():
...             numbers = layers.read_file(reader)
...             batches = layers.increment(batches)
...         with more.false_block():
...             layers.reset(reader)
...             passes = layers.increment(passes)
...             going_on = layers.less_than(passes, required, cond=going_on)
>>> executor, scope = Executor(), Scope()
>>> executor.run(startup, scope=scope)
()
>>> [int(x) for x in executor.run(main, fetch=[passes, batches], scope=scope)]
[2, 6]
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _arguments, _open, _slots, unique_name
from .._arguments import anything, flag, integer, items, mapping, optional, refuse, text, validate
from .._place import CPUPlace, Place, check_place, check_places, place_attribute
from .._queue import PyArrayFeedQueue, PyArrayFeedQueueHolder
from .._reader import Reader, _erase
from .._scope import Scope, check_scope, global_scope
from .._slots import SLOT_CHECKS, Shape, Slot
from ..errors import Error, InvalidArgument, StateError
from ._program import Program, Variable, caller_location, default_main_program, default_startup_program
from .kernels import Kernel

__all__ = [
    "IfElse",
    "Print",
    "While",
    "assign",
    "batch",
    "call",
    "create_global_var",
    "data",
    "double_buffer",
    "equal",
    "fill_constant",
    "greater_equal",
    "greater_than",
    "has_next",
    "increment",
    "less_equal",
    "less_than",
    "load_reader",
    "logical_and",
    "logical_not",
    "logical_or",
    "multi_pass",
    "not_equal",
    "open_files",
    "py_array_reader",
    "random_data",
    "read_file",
    "reset",
    "save_reader",
    "shard",
    "shuffle",
    "split_batches",
    "staging",
    "unstaging",
    "variable",
    "zip",
]

# A variable, or its name.
Named = Variable | str


# ---- Checks ----------------------------------------------------------------------------------


def _variable(name: str, value: Any) -> Named:
    """Accept a variable, or its name."""
    if isinstance(value, str):
        return text(name, value)
    return value if isinstance(value, Variable) else refuse(name, "a Variable or the name of one", value)


def _variables(name: str, value: Any) -> Named | list[Named]:
    """Accept a variable, or several."""
    if isinstance(value, (Variable, str)):
        return _variable(name, value)
    every = items(name, value, "a Variable, the name of one, or a sequence of them")
    return [_variable(f"{name}[{i}]", one) for i, one in enumerate(every)]


def _reader(name: str, value: Any) -> Named | Reader:
    """Accept a reader: a variable, its name, or a `Reader` that was made outside of a program."""
    return value if isinstance(value, Reader) else _variable(name, value)


def _number(name: str, value: Any) -> int | float:
    """Accept a number, which may be infinite. True and False, for a condition, become 1 and 0."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(name, "a number", value)
    return value  # type: ignore[return-value]


def _outputs(name: str, value: Any) -> int | Named | list[Named]:
    """Accept a number of variables, or the variables."""
    if isinstance(value, (Variable, Iterable)):
        return _variables(name, value)
    return _arguments.number(name, value, 0)


def _kernel(name: str, value: Any) -> str:
    """Accept a kernel, or its name, and return the name."""
    if isinstance(value, Kernel):
        return value.name
    return text(name, value) if isinstance(value, str) else refuse(name, "a Kernel or the name of one", value)


# ---- Variables -------------------------------------------------------------------------------


def _resolve(x: Named | Reader, program: Program) -> str:
    """Return the name of a variable for an operator of a program. If necessary, declare the variable in the program."""
    if isinstance(x, str):
        return program.variable(x).name
    if isinstance(x, Reader):
        if not program._has(x.name):
            program._declare(x.name, block=0, kind="reader", persistable=True, slots=_as_attributes(x.slots))
            program._references.append(x)
        return x.name
    if x.program is not program and not program._has(x.name):
        known = x._description()
        if not known.get("persistable"):
            raise InvalidArgument(
                f"variable {x.name!r}: expected one of the program that is built, or a persistable one, "
                "found one of another program"
            )
        program._declare(block=0, **known)
    return x.name


def _output(x: Named | None, program: Program, key: str) -> Variable:
    """Return the variable for an output. It is declared if it does not exist."""
    if x is None:
        return program._temporary(key)
    if isinstance(x, str) and not program._has(x):
        return program._declare(x)
    return program.variable(_resolve(x, program))


def _as_list(variables: Named | Sequence[Named]) -> Sequence[Named]:
    return [variables] if isinstance(variables, (Variable, str)) else variables


def _one_or_all(variables: list[Variable]) -> Any:
    return variables[0] if len(variables) == 1 else variables


def _as_attributes(every: Iterable[Slot]) -> list[dict[str, Any]]:
    return [{"name": s.name, "dtype": s.dtype or "", "dims": s.shape, "lod_levels": s.lod_levels} for s in every]


@validate(name=text, shape=_slots.shape, dtype=_slots.dtype, lod_level=integer(0), append_batch_size=flag)
def data(
    name: str,
    shape: Shape,
    dtype: npt.DTypeLike = "float32",
    lod_level: int = 0,
    append_batch_size: bool = True,
) -> Variable:
    """Declare a variable that each run is fed: see the argument ``feed`` of `Executor.run`.

    Parameters
    ----------
    name : str
        The name of the variable.
    shape : shape
        The shape of the tensor, in which -1 matches any size. If it has no -1, a first dimension of -1 is added,
        which is the size of the batch.
    dtype : dtype
        The dtype of the tensor.
    lod_level : int
        The number of levels of ragged offsets (LoD, level of detail). If it is not 0, the variable is fed a
        `LoDTensor`.
    append_batch_size : bool
        False: no dimension is added to `shape`.

    Returns
    -------
    Variable

    Raises
    ------
    StateError
        The program has a variable of that name.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program()):
    ...     layers.data("image", [784]), layers.data("count", [], "int64", append_batch_size=False)
    (<Variable 'image': float32 (-1, 784)>, <Variable 'count': int64 ()>)
    """
    dims = list(shape)
    if append_batch_size and -1 not in dims:
        dims = [-1, *dims]
    return default_main_program()._declare(name, block=0, dtype=dtype or "", dims=dims, lod_levels=lod_level)


@validate(name=text, shape=optional(_slots.shape), dtype=optional(_slots.dtype), lod_level=integer(0), persistable=flag)
def variable(
    name: str,
    shape: Shape | None = None,
    dtype: npt.DTypeLike | None = None,
    lod_level: int = 0,
    persistable: bool = False,
) -> Variable:
    """Declare a tensor in the block that is being built.

    Declare a variable before a loop or a branch if its value is needed afterwards.

    Parameters
    ----------
    name : str
        The name of the variable.
    shape : shape, optional
        The shape of the tensor, in which -1 matches any size. By default, it is not known.
    dtype : dtype, optional
        The dtype of the tensor. By default, it is not known.
    lod_level : int
        The number of levels of ragged offsets (LoD, level of detail). It is ignored without `shape`.
    persistable : bool
        True: the variable belongs to the scope in which the program runs, and keeps its value when a run ends, as
        parameters do. False: it belongs to a run, and is released at the end of the run.

    Returns
    -------
    Variable

    Raises
    ------
    StateError
        The block has a variable of that name.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program()):
    ...     layers.variable("total", [], "float32", persistable=True)
    <Variable 'total': float32 ()>
    """
    known: dict[str, object] = {"dtype": dtype or "", "persistable": persistable}
    if shape is not None:
        known |= {"dims": shape, "lod_levels": lod_level}
    return default_main_program()._declare(name, block=0 if persistable else None, **known)


@validate(shape=_slots.shape, value=_number, dtype=_slots.dtype, name=optional(text))
def create_global_var(shape: Shape, value: float, dtype: npt.DTypeLike, name: str | None = None) -> Variable:
    """Declare a persistable variable, which the startup program fills with a number.

    Parameters
    ----------
    shape : shape
        The shape of the tensor, without -1.
    value : float
        The value of every element.
    dtype : dtype
        The dtype of the tensor.
    name : str, optional
        The name of the variable. By default, a unique name.

    Returns
    -------
    Variable
        The variable in the main program.

    Raises
    ------
    StateError
        One of the two programs has a variable of that name.

    Examples
    --------
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     runs = layers.increment(layers.create_global_var([], 0, "int64", "runs"))
    >>> executor = Executor()
    >>> for program in startup, main, main:
    ...     executor.run(program, scope=scope)
    ()
    ()
    ()
    >>> int(scope["runs"])
    2
    """
    main, startup = default_main_program(), default_startup_program()
    name = startup._unique_name("global_var", main) if name is None else name
    known = {"dtype": dtype or "", "dims": shape, "persistable": True}
    startup._declare(name, block=0, **known)
    startup._append("fill_constant", (), [name], _constant(shape, dtype, value), block=0)
    return main._declare(name, block=0, **known) if main is not startup else Variable(main, 0, name)


# ---- Readers ---------------------------------------------------------------------------------


def _add_reader(
    kind: str, below: Sequence[Variable | str | Reader], key: str, attributes: Mapping[str, object], **known: object
) -> Variable:
    """Add an operator that makes a reader to the startup program, and declare the reader in both programs."""
    main, startup = default_main_program(), default_startup_program()
    inputs = [_resolve(reader, startup) for reader in below]
    # The prefix "layers." keeps the name apart from those of readers that are made outside of programs, in the same
    # scope.
    name = startup._unique_name(f"layers.{key}", main)
    startup._declare(name, block=0, kind="reader", persistable=True, **known)
    startup._append(kind, inputs, [name], attributes, block=0)
    out = Variable(startup, 0, name)
    _resolve(out, main)
    return Variable(main, 0, name)


@validate(filenames=_open.check_paths, format=optional(text), **SLOT_CHECKS, **_open.READ_CHECKS, options=anything)
def open_files(
    filenames: _open.Path | Iterable[_open.Path],
    *,
    format: str | None = None,
    shapes: Sequence[Shape] | None = None,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    num_threads: int = 2,
    ordered: bool = True,
    interleave: int = 8,
    shuffle_files: int | None = None,
    shuffle_records: int | None = None,
    rank: int | str | None = None,
    world: int | None = None,
    virtual_shards: int | None = None,
    even: str | None = None,
    index: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    on_corrupt: str = "raise",
    verify_first: bool = False,
    compression: str = "auto",
    io: str = "auto",
    **options: Any,
) -> Variable:
    """Add a reader of files to the startup program, with the arguments of `pyfeed.open_files`.

    A relative path is relative to the working directory of the process that runs the program.

    Parameters
    ----------
    filenames : str, path or iterable of them
        As for `pyfeed.open_files`.
    shapes, dtypes, lod_levels, names : sequence, optional
        The slots of a record. Without `shapes`, the call opens the first file, and the program stores the slots
        of this file.
    format, num_threads, ordered, interleave, shuffle_files, shuffle_records, index, index_dir
        As for `pyfeed.open_files`.
    rank, world, virtual_shards, even
        As for `pyfeed.open_files`. With ``rank="auto"``, the program stores the rank of the process that builds
        it.
    on_corrupt, verify_first, compression, io, **options
        As for `pyfeed.open_files`.

    Returns
    -------
    Variable
        The reader in the main program, for functions such as `batch` and `read_file`.

    Raises
    ------
    FileError
        The first file cannot be read. Only without `shapes`.
    CorruptRecordError
        The first file is damaged. Only without `shapes`.
    InvalidArgument
        As for `pyfeed.open_files`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/x.npy", np.arange(6).reshape(3, 2))
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     x = layers.read_file(layers.batch(layers.open_files(f"{folder.name}/*.npy"), 2))
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> executor.run(main, fetch=[x], scope=scope)[0].tolist()
    [[0, 1], [2, 3]]
    >>> folder.cleanup()
    """
    reading: dict[str, Any] = {
        "num_threads": num_threads,
        "ordered": ordered,
        "interleave": interleave,
        "shuffle_files": shuffle_files,
        "shuffle_records": shuffle_records,
        "rank": rank,
        "world": world,
        "virtual_shards": virtual_shards,
        "even": even,
        "index": index,
        "index_dir": index_dir,
        "on_corrupt": on_corrupt,
        "verify_first": verify_first,
        "compression": compression,
        "io": io,
    }
    every: Any = filenames
    if shapes is None:
        try:
            eager = _open._open_format(
                every, format, options, None, dtypes, lod_levels, names, scope=Scope(), **reading
            )
        except Error as error:
            error.add_note(
                "layers.open_files opens the first file when the program is built: "
                "give shapes and dtypes to build the program without the file"
            )
            raise
        found = eager.slots
        shapes, dtypes = [s.shape for s in found], [s.dtype for s in found]
        lod_levels, names = [s.lod_levels for s in found], [s.name for s in found]
    kind, attributes = _open.open_operator(every, format, options, shapes, dtypes, lod_levels, names, **reading)
    return _add_reader(kind, (), "open_files", attributes)


@validate(**_open.RANDOM_DATA_CHECKS)
def random_data(
    shapes: Sequence[Shape],
    dtypes: Sequence[npt.DTypeLike] | None = None,
    low: float = 0,
    high: float = 1,
    *,
    seed: int = 0,
    count: int | None = None,
    names: Sequence[str] | None = None,
) -> Variable:
    """Add a reader of random numbers to the startup program, with the arguments of `pyfeed.random_data`.

    Parameters
    ----------
    shapes, dtypes, low, high, seed, count, names
        As for `pyfeed.random_data`.

    Returns
    -------
    Variable
        The reader in the main program.

    Raises
    ------
    InvalidArgument, ShapeError
        As for `pyfeed.random_data`.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(784,), ()], ["float32", "int64"], high=10, count=100)
    >>> [(slot.dtype, slot.shape) for slot in reader.slots]
    [('float32', (784,)), ('int64', ())]
    """
    every = ["float32"] * len(shapes) if dtypes is None else dtypes
    attributes = {
        "slots": _slots.to_attributes(shapes, every, None, names),
        "low": low,
        "high": high,
        "seed": seed,
        "count": -1 if count is None else count,
    }
    return _add_reader("create_random_data_generator", (), "random_data", attributes)


@validate(
    capacity=integer(1, "tuple"),
    place=optional(check_place),
    **{**SLOT_CHECKS, "shapes": _slots.shapes},
    bytes_limit=integer(0),
    name=optional(text),
    scope=optional(check_scope),
)
def py_array_reader(
    capacity: int,
    shapes: Sequence[Shape],
    place: Place | None = None,
    *,
    dtypes: Sequence[npt.DTypeLike | None] | None = None,
    bytes_limit: int = 0,
    lod_levels: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    name: str | None = None,
    scope: Scope | None = None,
) -> tuple[Variable, PyArrayFeedQueue]:
    """Make a queue, and add a reader of this queue to the startup program.

    The call makes the queue in a variable of the scope. The startup program finds it there by its name.

    Parameters
    ----------
    capacity, shapes, place, dtypes, bytes_limit, lod_levels
        As for `pyfeed.py_array_reader`.
    names : sequence of str, optional
        The names of the slots. By default, they have none.
    name : str, optional
        The name of the queue's variable. By default, a unique name.
    scope : Scope, optional
        The scope in which the programs will run, by default the global one.

    Returns
    -------
    Variable, PyArrayFeedQueue
        The reader in the main program, and the queue to push into.

    Raises
    ------
    StateError
        The variable `name` contains a queue already, or something else.
    SlotCountError
        `dtypes`, `lod_levels` or `names` do not have an entry for each of `shapes`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> shapes, dtypes = [(-1, 784), (-1,)], ["float32", "int64"]
    >>> with program_guard(main, startup):
    ...     reader, queue = layers.py_array_reader(8, shapes, dtypes=dtypes, scope=scope)
    ...     image, label = layers.read_file(reader)
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> queue.push((np.zeros((2, 784), "float32"), np.array([3, 8])))
    >>> executor.run(main, fetch=[label], scope=scope)[0].tolist()
    [3, 8]
    """
    scope = global_scope() if scope is None else scope
    feeder = _unused_queue(scope) if name is None else name
    queue = PyArrayFeedQueueHolder(scope, feeder).init_once(
        capacity, shapes, place, dtypes=dtypes, bytes_limit=bytes_limit, lod_levels=lod_levels, names=names
    )
    weakref.finalize(queue, _erase, scope, feeder).atexit = False
    out = _add_reader(
        "create_py_array_reader",
        (),
        "py_array_reader",
        {"feeder_name": feeder},
        slots=_slots.to_attributes(shapes, dtypes, lod_levels, names),
    )
    default_startup_program()._references.append(queue)
    return out, queue


def _unused_queue(scope: Scope) -> str:
    """Return a name for a queue's variable that the scope does not have, even if `unique_name.guard` restarts names."""
    while True:
        name = unique_name.generate("py_array_feed_queue")
        if name not in scope:
            return name


@validate(reader=_reader, buffer_size=integer(1, "tuple"), seed=integer(0))
def shuffle(reader: Named | Reader, buffer_size: int, seed: int = 0) -> Variable:
    """Add a reader of the same tuples in a random order: see `pyfeed.Reader.shuffle`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader to read from: a variable of the program, its name, or a reader that was made outside of a
        program.
    buffer_size : int
        The number of tuples in a block, at least 1. Each block is permuted.
    seed : int
        From 0 to ``2**63 - 1``. The order depends on the seed and the number of the pass only.

    Returns
    -------
    Variable
        The new reader in the main program.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(2,)], count=10)
    ...     reader = layers.shuffle(reader, 100, seed=1)
    >>> [slot.shape for slot in reader.slots]
    [(2,)]
    """
    return _add_reader("create_shuffle_reader", [reader], "shuffle", {"buffer_size": buffer_size, "seed": seed})


@validate(reader=_reader, batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
def batch(reader: Named | Reader, batch_size: int, drop_last: bool = False, *, ragged: bool = False) -> Variable:
    """Add a reader of batches: see `pyfeed.Reader.batch`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader to read from: a variable of the program, its name, or a reader that was made outside of a
        program.
    batch_size : int
        The number of tuples in a batch, at least 1.
    drop_last : bool
        Whether the last batch of a pass is dropped if it has fewer tuples.
    ragged : bool
        Whether the slots of a tuple may add different numbers of rows to a batch.

    Returns
    -------
    Variable
        The new reader in the main program.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(2,)], count=10)
    ...     reader = layers.batch(reader, 4)
    >>> [slot.shape for slot in reader.slots]
    [(-1, 2)]
    """
    attributes = {"batch_size": batch_size, "drop_last": drop_last}
    if ragged:
        attributes["ragged"] = True
    return _add_reader("create_batch_reader", [reader], "batch", attributes)


@validate(reader=_reader, pass_num=integer(0, "passes"))
def multi_pass(reader: Named | Reader, pass_num: int) -> Variable:
    """Add a reader that delivers several passes as one: see `pyfeed.Reader.multi_pass`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader to read from: a variable of the program, its name, or a reader that was made outside of a
        program.
    pass_num : int
        The number of passes. 0: without end.

    Returns
    -------
    Variable
        The new reader in the main program.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(2,)], count=10)
    ...     reader = layers.multi_pass(reader, 3)
    >>> [slot.shape for slot in reader.slots]
    [(2,)]
    """
    return _add_reader("create_multi_pass_reader", [reader], "multi_pass", {"pass_num": pass_num})


@validate(reader=_reader, place=optional(check_places), depth=integer(1, "tuple"))
def double_buffer(reader: Named | Reader, place: Place | Sequence[Place] | None = None, depth: int = 2) -> Variable:
    """Add a reader that prefetches tuples, and copies them to devices: see `pyfeed.Reader.double_buffer`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader to read from: a variable of the program, its name, or a reader that was made outside of a
        program.
    place : Place or sequence of Place, optional
        Where the tuples are consumed, by default `CPUPlace`. Several `CUDAPlace` get the tuples in turn. The
        place need not exist on the machine that builds the program.
    depth : int
        The largest number of tuples that are ready at each place.

    Returns
    -------
    Variable
        The new reader in the main program.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(2,)], count=10)
    ...     reader = layers.double_buffer(reader, depth=4)
    >>> [slot.shape for slot in reader.slots]
    [(2,)]
    """
    attributes = {"place": place_attribute(CPUPlace() if place is None else place), "depth": depth}
    return _add_reader("create_double_buffer_reader", [reader], "double_buffer", attributes)


@validate(reader=_reader, rank=integer(0), world=integer(1), even=optional(text))
def shard(reader: Named | Reader, rank: int, world: int, even: str | None = None) -> Variable:
    """Add a reader of one of `world` parts of the tuples: see `pyfeed.Reader.shard`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader to read from: a variable of the program, its name, or a reader that was made outside of a
        program.
    rank : int
        The number of the part, from 0 to ``world - 1``.
    world : int
        The number of parts, at least 1.
    even : {None, "drop", "repeat", "pad"}
        How all parts get the same number of tuples. By default, they may differ by one tuple.

    Returns
    -------
    Variable
        The new reader in the main program.

    Raises
    ------
    InvalidArgument
        `rank` is not less than `world`, or `even` has another value.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.random_data([(2,)], count=10)
    ...     reader = layers.shard(reader, rank=0, world=2)
    >>> [slot.shape for slot in reader.slots]
    [(2,)]
    """
    attributes = {"rank": rank, "world": world} | ({} if even is None else {"even": even})
    return _add_reader("create_shard_reader", [reader], "shard", attributes)


@validate(reader=_reader, rank=integer(0), world=integer(1), even=text)
def split_batches(reader: Named | Reader, rank: int, world: int, even: str = "drop") -> Variable:
    """Add a reader of one of `world` equal parts of each batch: see `pyfeed.Reader.split_batches`.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader of batches: a variable of the program, its name, or a reader that was made outside of a
        program.
    rank : int
        The number of the part, from 0 to ``world - 1``.
    world : int
        The number of parts, which divides ``batch_size``: else, the run of the program raises `InvalidArgument`.
    even : {"drop", "repeat", "pad"}
        What happens to a last batch of a size that `world` does not divide.

    Returns
    -------
    Variable
        The new reader in the main program.

    Raises
    ------
    InvalidArgument
        `rank` is not less than `world`, or `even` has another value.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     reader = layers.batch(layers.random_data([(2,)], count=10), 4)
    ...     reader = layers.split_batches(reader, rank=0, world=2)
    >>> [slot.shape for slot in reader.slots]
    [(-1, 2)]
    """
    attributes = {"rank": rank, "world": world, "even": even}
    return _add_reader("create_split_batches_reader", [reader], "split_batches", attributes)


@validate(readers=_reader, strict=flag)
def zip(*readers: Named | Reader, strict: bool = False) -> Variable:
    """Add a reader whose tuples have the slots of several readers: see `pyfeed.Reader.zip`.

    Parameters
    ----------
    *readers : Variable, Reader or str
        At least two readers. A pass ends with the shortest.
    strict : bool
        Whether a read raises `StateError` at the end of the pass if the readers do not end together.

    Returns
    -------
    Variable
        The new reader in the main program.

    Raises
    ------
    InvalidArgument
        There are fewer than two readers.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program(), Program()):
    ...     images = layers.random_data([(28, 28)], count=10)
    ...     labels = layers.random_data([()], ["int64"], high=10, count=10)
    ...     reader = layers.zip(images, labels, strict=True)
    >>> [slot.shape for slot in reader.slots]
    [(28, 28), ()]
    """
    return _add_reader("create_zip_reader", readers, "zip", {"strict": strict})


@validate(reader=_reader, names=optional(_variables))
def read_file(reader: Named | Reader, names: Sequence[Named] | None = None) -> Any:
    """Add an operator that reads the next tuple of a reader.

    At the end of the data, the operator ends the run with `EndOfData`. Use `has_next` to avoid this.

    Parameters
    ----------
    reader : Variable, Reader or str
        A reader of the program, or its name. Or a reader that was made outside of a program, such as by
        `pyfeed.open_files`, in the scope in which the program will run.
    names : sequence of str or Variable, optional
        The variables to read into, one for each slot. Names that do not exist are declared. By default, new
        variables are made; this requires that the slots of the reader are known.

    Returns
    -------
    Variable or list of Variable
        A variable for each slot; not a list if there is one slot.

    Raises
    ------
    InvalidArgument
        The slots of the reader are not known, and `names` is not given.

    Examples
    --------
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([(2,), ()], ["float32", "int64"], high=9, count=10)
    ...     x, y = layers.read_file(reader)
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> [array.shape for array in executor.run(main, fetch=[x, y], scope=scope)]
    [(2,), ()]
    """
    program = default_main_program()
    name = _resolve(reader, program)
    if names is None:
        found = program.variable(name).slots
        if found is None:
            raise InvalidArgument(
                "read_file: expected names, one for each slot, "
                f"because the slots of reader {name!r} are not known, found none"
            )
        outs = [program._temporary(slot.name or "slot") for slot in found]
    else:
        outs = [_output(each, program, "") for each in _as_list(names)]
    program._append("read", [name], [out.name for out in outs])
    return _one_or_all(outs)


@validate(reader=_reader, out=optional(_variable))
def has_next(reader: Named | Reader, out: Named | None = None) -> Variable:
    """Add an operator that tells whether the current pass of a reader has another tuple.

    The operator reads one tuple ahead, and may block for it.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader, as for `read_file`.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of one bool, a condition for `IfElse` or `While`.

    Examples
    --------
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([()], count=1)
    ...     more = layers.has_next(reader)
    ...     with layers.IfElse(more).true_block():
    ...         x = layers.read_file(reader)
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> [bool(executor.run(main, fetch=[more], scope=scope)[0]) for _ in range(2)]
    [True, False]
    """
    program = default_main_program()
    name = _resolve(reader, program)
    answer = _output(out, program, "has_next")
    program._append("has_next", [name], [answer.name])
    return answer


@validate(reader=_reader)
def reset(reader: Named | Reader) -> None:
    """Add an operator that begins the next pass of a reader.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader, as for `read_file`.

    Examples
    --------
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([()], count=1)
    ...     x = layers.read_file(reader)
    ...     layers.reset(reader)
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> [len(executor.run(main, fetch=[x], scope=scope)) for _ in range(2)]
    [1, 1]
    """
    program = default_main_program()
    program._append("reset", [_resolve(reader, program)])


@validate(reader=_reader, out=optional(_variable))
def save_reader(reader: Named | Reader, out: Named | None = None) -> Variable:
    """Add an operator that saves the position of a reader, as `Reader.state_dict` does.

    Parameters
    ----------
    reader : Variable, Reader or str
        The reader, as for `read_file`.
    out : Variable or str, optional
        The variable for the state. By default, a new one.

    Returns
    -------
    Variable
        A tensor of uint8: a JSON object, in host memory. A kernel can store it together with the model.

    Examples
    --------
    >>> from pyfeed import Scope
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([()], count=6)
    ...     x = layers.read_file(reader)
    ...     state = layers.save_reader(reader)
    >>> executor = Executor()
    >>> executor.run(startup, scope=scope)
    ()
    >>> first, saved = executor.run(main, fetch=[x, state], scope=scope)
    >>> bytes(saved).startswith(b"{")
    True
    """
    return _result("save_reader", [reader], out)


@validate(state=_variable, reader=_reader, strict=flag)
def load_reader(state: Named, reader: Named | Reader, *, strict: bool = True) -> None:
    """Add an operator that makes a reader go on at a saved position, as `Reader.load_state_dict` does.

    Parameters
    ----------
    state : Variable or str
        The tensor of uint8 that `save_reader` has saved, in this process or in another one. An empty tensor
        changes nothing.
    reader : Variable, Reader or str
        The reader, as for `read_file`, made by the same calls as the one that was saved.
    strict : bool
        As for `Reader.load_state_dict`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Scope, random_data
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> main, startup, scope = Program(), Program(), Scope()
    >>> with program_guard(main, startup):
    ...     reader = layers.random_data([()], count=6)
    ...     state = layers.data("state", [-1], "uint8", append_batch_size=False)
    ...     layers.load_reader(state, reader)
    ...     x = layers.read_file(reader)
    ...     saved = layers.save_reader(reader)
    >>> executor, nothing = Executor(), np.zeros(0, "uint8")
    >>> executor.run(startup, scope=scope)
    ()
    >>> _, state = executor.run(main, feed={"state": nothing}, fetch=[x, saved], scope=scope)
    >>> second, _ = executor.run(main, feed={"state": nothing}, fetch=[x, saved], scope=scope)
    >>> again, _ = executor.run(main, feed={"state": state}, fetch=[x, saved], scope=scope)
    >>> bool(second == again)
    True
    """
    program = default_main_program()
    program._append("load_reader", [_resolve(state, program)], [_resolve(reader, program)], {"strict": strict})


# ---- Tensors ---------------------------------------------------------------------------------


def _result(
    kind: str, inputs: Sequence[Named | Reader], out: Named | None, attributes: Mapping[str, object] | None = None
) -> Variable:
    program = default_main_program()
    names = [_resolve(x, program) for x in inputs]
    result = _output(out, program, kind)
    program._append(kind, names, [result.name], attributes)
    return result


def _constant(shape: Shape, dtype: npt.DTypeLike, value: float) -> dict[str, object]:
    return {"dims": shape, "dtype": dtype or "", "value": value}


@validate(shape=_slots.shape, dtype=_slots.dtype, value=_number, out=optional(_variable))
def fill_constant(shape: Shape, dtype: npt.DTypeLike, value: float, out: Named | None = None) -> Variable:
    """Add an operator that makes a tensor in which every element has the same value.

    Parameters
    ----------
    shape : shape
        The shape of the tensor, without -1. Counters and conditions have the shape ``[]``.
    dtype : dtype
        The dtype of the tensor.
    value : float
        The value of every element.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.fill_constant([2], "float32", 1.5)
    >>> Executor().run(program, fetch=[x])[0].tolist()
    [1.5, 1.5]
    """
    return _result("fill_constant", (), out, _constant(shape, dtype, value))


@validate(x=_variable, out=optional(_variable))
def assign(x: Named, out: Named | None = None) -> Variable:
    """Add an operator that assigns a tensor to another variable.

    The two variables share the memory until one of them is written: the first write copies it. So a write to one
    does not change the other.

    Parameters
    ----------
    x : Variable or str
        The tensor.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.fill_constant([], "int64", 7)
    ...     y = layers.assign(x)
    ...     x = layers.increment(x)
    >>> [int(value) for value in Executor().run(program, fetch=[x, y])]
    [8, 7]
    """
    return _result("assign", [x], out)


@validate(x=_variable, step=_number, in_place=flag)
def increment(x: Named, step: float = 1, in_place: bool = True) -> Variable:
    """Add an operator that adds a number to each element of a tensor.

    A run fails if an integer dtype cannot hold the sum.

    Parameters
    ----------
    x : Variable or str
        The tensor.
    step : float
        The number to add.
    in_place : bool
        True: the result replaces `x`. False: the result is in a new variable.

    Returns
    -------
    Variable
        `x`, or the new variable.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.increment(layers.fill_constant([], "int64", 7), 3)
    >>> int(Executor().run(program, fetch=[x])[0])
    10
    """
    return _result("increment", [x], x if in_place else None, {"step": step})


@validate(x=_variable, y=_variable, cond=optional(_variable))
def less_than(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x < y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.less_than(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    True
    """
    return _result("less_than", [x, y], cond)


@validate(x=_variable, y=_variable, cond=optional(_variable))
def less_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x <= y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.less_equal(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    True
    """
    return _result("less_equal", [x, y], cond)


@validate(x=_variable, y=_variable, cond=optional(_variable))
def greater_than(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x > y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.greater_than(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    False
    """
    return _result("greater_than", [x, y], cond)


@validate(x=_variable, y=_variable, cond=optional(_variable))
def greater_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x >= y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.greater_equal(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    False
    """
    return _result("greater_equal", [x, y], cond)


@validate(x=_variable, y=_variable, cond=optional(_variable))
def equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x == y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.equal(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    False
    """
    return _result("equal", [x, y], cond)


@validate(x=_variable, y=_variable, cond=optional(_variable))
def not_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Add an operator that compares two tensors element by element: ``x != y``.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of the same dtype. They have the same shape, or one of them has one element.
    cond : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "int64", 3), layers.fill_constant([], "int64", 8)
    ...     result = layers.not_equal(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    True
    """
    return _result("not_equal", [x, y], cond)


@validate(x=_variable, y=_variable, out=optional(_variable))
def logical_and(x: Named, y: Named, out: Named | None = None) -> Variable:
    """Add an operator that computes, element by element, whether both of two tensors are true.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of bool. They have the same shape, or one of them has one element.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "bool", True), layers.fill_constant([], "bool", False)
    ...     result = layers.logical_and(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    False
    """
    return _result("logical_and", [x, y], out)


@validate(x=_variable, y=_variable, out=optional(_variable))
def logical_or(x: Named, y: Named, out: Named | None = None) -> Variable:
    """Add an operator that computes, element by element, whether at least one of two tensors is true.

    Parameters
    ----------
    x, y : Variable or str
        Tensors of bool. They have the same shape, or one of them has one element.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = layers.fill_constant([], "bool", True), layers.fill_constant([], "bool", False)
    ...     result = layers.logical_or(x, y)
    >>> bool(Executor().run(program, fetch=[result])[0])
    True
    """
    return _result("logical_or", [x, y], out)


@validate(x=_variable, out=optional(_variable))
def logical_not(x: Named, out: Named | None = None) -> Variable:
    """Add an operator that negates a tensor of bool, element by element.

    Parameters
    ----------
    x : Variable or str
        A tensor of bool.
    out : Variable or str, optional
        The variable for the result. By default, a new one.

    Returns
    -------
    Variable
        A tensor of bool.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     result = layers.logical_not(layers.fill_constant([], "bool", True))
    >>> bool(Executor().run(program, fetch=[result])[0])
    False
    """
    return _result("logical_not", [x], out)


@validate(input=_variables, message=text, summarize=integer(0), first_n=integer(0))
def Print(  # noqa: N802 (Fluid's name)
    input: Named | Sequence[Named], message: str = "", summarize: int = 20, first_n: int = 0
) -> None:
    """Add an operator that prints tensors to standard error.

    It prints a line for each tensor, with its name, dtype, shape and first elements.

    Parameters
    ----------
    input : Variable, str or sequence of them
        The tensors.
    message : str
        The beginning of each line.
    summarize : int
        The largest number of elements that are printed of a tensor.
    first_n : int
        How often the operator prints in a run. 0: each time that it runs.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     layers.Print(layers.fill_constant([2], "float32", 1.5), message="x: ")
    >>> program
    <Program: 1 block, 1 variable, 2 operators>
    """
    program = default_main_program()
    attributes = {"message": message, "summarize": summarize, "first_n": first_n}
    program._append("print", [_resolve(x, program) for x in _as_list(input)], (), attributes)


@validate(kernel=_kernel, inputs=_variables, outputs=_outputs, attributes=optional(mapping))
def call(
    kernel: str | Kernel,
    inputs: Named | Sequence[Named] = (),
    outputs: int | Named | Sequence[Named] = 0,
    attributes: Mapping[str, object] | None = None,
) -> Any:
    """Add an operator that calls a kernel: a function that is registered under a name, in Python, C, C++ or Go.

    Parameters
    ----------
    kernel : str or Kernel
        The kernel, or its name. The kernel is looked up when a run begins.
    inputs : Variable, str or sequence of them
        The tensors that the kernel gets. By default, there is none.
    outputs : int, Variable, str or sequence of them
        The number of new variables for the results, or the variables. Names that do not exist are declared. A
        variable may be both an input and an output: then the kernel updates it. By default, there is none.
    attributes : mapping, optional
        Further arguments of the kernel, by name: numbers, text, lists and mappings.

    Returns
    -------
    Variable or list of Variable
        The outputs; not a list if there is one output.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> from pyfeed.program.kernels import kernel
    >>> @kernel
    ... def scale(x, by):
    ...     return x * by
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [2], "int64")
    ...     y = layers.call(scale, x, 1, {"by": 10})
    >>> Executor().run(program, feed={x: np.array([[1, 2]])}, fetch=[y])[0].tolist()
    [[10, 20]]
    >>> scale.close()
    """
    program = default_main_program()
    ins = [_resolve(x, program) for x in _as_list(inputs)]
    wanted = [None] * outputs if isinstance(outputs, int) else _as_list(outputs)
    outs = [_output(x, program, str(kernel)) for x in wanted]
    program._append("call", ins, [out.name for out in outs], {"kernel": kernel, "attributes": dict(attributes or {})})
    return _one_or_all(outs)


# ---- Staging ---------------------------------------------------------------------------------


@validate(input=_variables, capacity=integer(1, "tuple"), bytes_limit=integer(0))
def staging(input: Named | Sequence[Named], capacity: int = 3, bytes_limit: int = 0) -> Variable:
    """Add an operator that copies tensors, as one tuple, into the staging buffer of the executor's place.

    The operator blocks while the buffer is full. In a run that feeds none of the tensors, it does nothing. So
    runs without a feed take the remaining tuples out of the buffer. `docs/program.md` describes the use of the
    buffer.

    Parameters
    ----------
    input : Variable, str or sequence of them
        The tensors.
    capacity : int
        The largest number of tuples in the buffer. It must be at least one more than the number of tuples that a
        warm-up stages before the program runs. The first use of the buffer sets its limits; every later use must
        give the same.
    bytes_limit : int
        The largest number of bytes in the buffer. 0: no limit.

    Returns
    -------
    Variable
        The stage, for `unstaging`.

    Examples
    --------
    >>> from pyfeed.program import Program, layers, program_guard
    >>> with program_guard(Program()):
    ...     stage = layers.staging([layers.data("x", [2]), layers.data("y", [], "int64")], capacity=2)
    >>> [slot.shape for slot in stage.slots]
    [(-1, 2), (-1,)]
    """
    program = default_main_program()
    names = [_resolve(x, program) for x in _as_list(input)]
    stage = program._declare(program._unique_name("stage"), kind="stage")
    program._append("stage", names, [stage.name], {"capacity": capacity, "bytes_limit": bytes_limit})
    return stage


@validate(stage=_variable)
def unstaging(stage: Named) -> Any:
    """Add an operator that takes the oldest tuple out of the staging buffer. It blocks while the buffer is empty.

    Parameters
    ----------
    stage : Variable or str
        The result of `staging`.

    Returns
    -------
    Variable or list of Variable
        A variable for each staged tensor; not a list if there is one tensor.

    Raises
    ------
    InvalidArgument
        `stage` is not a result of `staging`, or the shapes of the tensors are not known.

    Examples
    --------
    Each run copies the next tuple, and computes with the one before:

    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x = layers.data("x", [], "int64")
    ...     stage = layers.staging(x, capacity=2)
    ...     warm_up = program.clone()
    ...     y = layers.unstaging(stage)
    >>> executor = Executor()
    >>> _ = executor.run(warm_up, feed={"x": np.array([1])})
    >>> for feed in {"x": np.array([2])}, {"x": np.array([3])}, {}:
    ...     print(executor.run(program, feed=feed, fetch=[y])[0].tolist())
    [1]
    [2]
    [3]
    """
    program = default_main_program()
    name = _resolve(stage, program)
    made = [op for block in program.blocks for op in block.operators if op.type == "stage" and name in op.outputs]
    found = program.variable(name).slots
    if not made or found is None:
        raise InvalidArgument(
            f"unstaging: expected a result of staging, of tensors whose shapes are known, found {name!r}"
        )
    outs = [program._temporary(slot.name) for slot in found]
    limits = {key: made[0].attributes[key] for key in ("capacity", "bytes_limit")}
    program._append("unstage", [name], [out.name for out in outs], limits)
    return _one_or_all(outs)


# ---- Control flow ----------------------------------------------------------------------------


class While:
    """A loop. The operators of its block run again and again while a condition is true.

    Parameters
    ----------
    cond : Variable
        A tensor of one bool. The block must update it, for example by ``less_than(..., cond=cond)``. Otherwise
        the loop does not end.

    Examples
    --------
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     i, ten = layers.fill_constant([], "int64", 0), layers.fill_constant([], "int64", 10)
    ...     going_on = layers.less_than(i, ten)
    ...     with layers.While(going_on).block():
    ...         i = layers.increment(i, 3)
    ...         going_on = layers.less_than(i, ten, cond=going_on)
    >>> int(Executor().run(program, fetch=[i])[0])
    12
    """

    @validate(cond=_variable)
    def __init__(self, cond: Named) -> None:
        self._program = default_main_program()
        self._parent = self._program._block_stack.blocks[-1]
        self._cond = _resolve(cond, self._program)
        self._where = caller_location()
        self._added = False

    @validate()
    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Return a context manager. Operators that are added within it are the body of the loop.

        An exception within it leaves the loop out of the program.

        Raises
        ------
        StateError
            The loop has a block already, or another block than that around the loop is being built.
        """
        _check_place("While", self._program, self._parent)
        if self._added:
            raise StateError("While: expected one block, found a second")
        with self._program._new_block(self._parent) as body:
            yield
        self._program._append("while", [self._cond], (), {"block": body}, block=self._parent, where=self._where)
        self._added = True


class IfElse:
    """A branch. A condition decides which of two blocks runs.

    One of the two blocks may be left out. No operator may be added between them. A variable that is made in a
    block is not visible outside of it: declare results with `variable` before the branch, as in the example.

    Parameters
    ----------
    cond : Variable
        A tensor of one bool.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed.program import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = (layers.data(name, [], "int64", append_batch_size=False) for name in "xy")
    ...     larger = layers.variable("larger")  # declared around both blocks, which assign it
    ...     branch = layers.IfElse(layers.less_than(x, y))
    ...     with branch.true_block():
    ...         larger = layers.assign(y, out=larger)
    ...     with branch.false_block():
    ...         larger = layers.assign(x, out=larger)
    >>> int(Executor().run(program, feed={"x": np.array(3), "y": np.array(8)}, fetch=[larger])[0])
    8
    """

    @validate(cond=_variable)
    def __init__(self, cond: Named) -> None:
        self._program = default_main_program()
        self._parent = self._program._block_stack.blocks[-1]
        self._cond = _resolve(cond, self._program)
        self._where = caller_location()
        self._bodies: dict[str, int] = {}
        self._place: tuple[int, int] | None = None  # where the operator is deferred until its second block
        self._added = False

    @validate()
    def true_block(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager. Operators that are added within it run if the condition is true.

        Raises
        ------
        StateError
            There is such a block already, operators were added after the other block, or another block than that
            around the branch is being built.
        """
        return self._block("true_block")

    @validate()
    def false_block(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager. Operators that are added within it run if the condition is false.

        Raises
        ------
        StateError
            As for `true_block`.
        """
        return self._block("false_block")

    @contextlib.contextmanager
    def _block(self, name: str) -> Iterator[None]:
        program, parent = self._program, self._parent
        _check_place("IfElse", program, parent)
        with program._lock:
            if name in self._bodies:
                raise StateError(f"IfElse: expected one {name}, found a second")
            if self._added:
                raise StateError(
                    f"IfElse: expected the {name} directly after the other block, "
                    "found another use of the program between them: the branch has been added without it"
                )
            if self._place is not None:
                program._cancel_deferred(self._place)
        with program._new_block(parent) as body:
            yield
        self._bodies[name] = body
        if len(self._bodies) == 2:
            self._complete()
        else:
            self._place = program._defer(parent, self._complete)

    def _complete(self) -> None:
        self._added = True
        self._program._append("if_else", [self._cond], (), self._bodies, block=self._parent, where=self._where)


def _check_place(what: str, program: Program, parent: int) -> None:
    here = program._block_stack.blocks[-1]
    if here != parent:
        raise StateError(
            f"{what}: expected its block to begin in block {parent}, where it was made, found block {here}"
        )
