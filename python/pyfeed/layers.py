"""Functions that build programs: each adds an operator to the default program, and gives its outputs.

Readers are made in the startup program, which is to be run once, and are known to both; everything else
is added to the main program. The names are those of PaddlePaddle Fluid.

Examples
--------
Two passes over ten numbers, in a program that needs no Python when it runs:

>>> import pyfeed
>>> from pyfeed import Executor, Program, Scope, layers, program_guard
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
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arguments, files, slots, unique_name
from ._arguments import anything, flag, integer, items, mapping, optional, refuse, takes, text
from ._errors import Error, InvalidArgument, StateError
from ._kernels import Kernel
from .place import CPUPlace, Place, a_place, attribute, places
from .program import Program, Variable, caller, default_main_program, default_startup_program
from .queue import QUEUE, PyArrayFeedQueue, PyArrayFeedQueueHolder
from .readers import Reader, _erase
from .scope import Scope, a_scope, global_scope
from .slots import SLOTS, Shape, Slot

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
    "shard",
    "shuffle",
    "staging",
    "unstaging",
    "variable",
    "zip",
]

# What names a variable.
Named = Variable | str


# ---- Checks ----------------------------------------------------------------------------------


def _variable(name: str, value: Any) -> Named:
    """A variable, or its name."""
    if isinstance(value, str):
        return text(name, value)
    return value if isinstance(value, Variable) else refuse(name, "a Variable or the name of one", value)


def _variables(name: str, value: Any) -> Named | list[Named]:
    """One, or several."""
    if isinstance(value, (Variable, str)):
        return _variable(name, value)
    every = items(name, value, "a Variable, the name of one, or a sequence of them")
    return [_variable(f"{name}[{i}]", one) for i, one in enumerate(every)]


def _reader(name: str, value: Any) -> Named | Reader:
    """A reader: of a program, or made eagerly."""
    return value if isinstance(value, Reader) else _variable(name, value)


def _number(name: str, value: Any) -> int | float:
    """A number, which may be infinite; True and False are 1 and 0, for a condition."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(name, "a number", value)
    return value  # type: ignore[return-value]


def _outputs(name: str, value: Any) -> int | Named | list[Named]:
    """How many variables, or which."""
    if isinstance(value, (Variable, Iterable)):
        return _variables(name, value)
    return _arguments.number(name, value, 0)


def _kernel(name: str, value: Any) -> str:
    """The name of a kernel."""
    if isinstance(value, Kernel):
        return value.name
    return text(name, value) if isinstance(value, str) else refuse(name, "a Kernel or the name of one", value)


# ---- Variables -------------------------------------------------------------------------------


def _use(x: Named | Reader, program: Program) -> str:
    """The name of a variable for an operator of this program, which gets to know it if need be."""
    if isinstance(x, str):
        return program.variable(x).name
    if isinstance(x, Reader):
        if not program._has(x.name):
            program._declare(x.name, block=0, kind="reader", persistable=True, slots=_as_attributes(x.slots))
            program._kept.append(x)
        return x.name
    if x.program is not program and not program._has(x.name):
        known = x._known()
        if not known.get("persistable"):
            raise InvalidArgument(
                f"variable {x.name!r}: expected one of the program that is built, or a persistable one, "
                "found one of another program"
            )
        program._declare(block=0, **known)
    return x.name


def _output(x: Named | None, program: Program, key: str) -> Variable:
    """The variable for an output: made, unless it is there."""
    if x is None:
        return program._temporary(key)
    if isinstance(x, str) and not program._has(x):
        return program._declare(x)
    return program.variable(_use(x, program))


def _each(variables: Named | Sequence[Named]) -> Sequence[Named]:
    return [variables] if isinstance(variables, (Variable, str)) else variables


def _one_or_all(variables: list[Variable]) -> Any:
    return variables[0] if len(variables) == 1 else variables


def _as_attributes(every: Iterable[Slot]) -> list[dict[str, Any]]:
    return [{"name": s.name, "dtype": s.dtype or "", "dims": s.shape, "lod_levels": s.lod_levels} for s in every]


@takes(name=text, shape=slots.shape, dtype=slots.dtype, lod_level=integer(0), append_batch_size=flag)
def data(
    name: str,
    shape: Shape,
    dtype: npt.DTypeLike = "float32",
    lod_level: int = 0,
    append_batch_size: bool = True,
) -> Variable:
    """A variable that is fed: see `Executor.run`.

    Parameters
    ----------
    name : str
    shape : shape
        -1 matches any size. Without any, a first dimension of -1, the batch's, is put before it.
    dtype : dtype
    lod_level : int
        Levels of detail: with any, it is fed a `LoDTensor`.
    append_batch_size : bool
        False: `shape` is the whole shape in any case.

    Examples
    --------
    >>> from pyfeed import Program, layers, program_guard
    >>> with program_guard(Program()):
    ...     layers.data("image", [784]), layers.data("count", [], "int64", append_batch_size=False)
    (<Variable 'image': float32 (-1, 784)>, <Variable 'count': int64 ()>)
    """
    dims = list(shape)
    if append_batch_size and -1 not in dims:
        dims = [-1, *dims]
    return default_main_program()._declare(name, block=0, dtype=dtype or "", dims=dims, lod_levels=lod_level)


@takes(name=text, shape=optional(slots.shape), dtype=optional(slots.dtype), lod_level=integer(0), persistable=flag)
def variable(
    name: str,
    shape: Shape | None = None,
    dtype: npt.DTypeLike | None = None,
    lod_level: int = 0,
    persistable: bool = False,
) -> Variable:
    """A variable of the block that is built.

    Parameters
    ----------
    name : str
    shape : shape, optional
        -1 matches any size; None: any shape.
    dtype : dtype, optional
        None: any.
    lod_level : int
        Levels of detail.
    persistable : bool
        It is the scope's that the program runs in, as parameters are; else it goes with the run.
    """
    known: dict[str, object] = {"dtype": dtype or "", "persistable": persistable}
    if shape is not None:
        known |= {"dims": shape, "lod_levels": lod_level}
    return default_main_program()._declare(name, block=0 if persistable else None, **known)


@takes(shape=slots.shape, value=_number, dtype=slots.dtype, name=optional(text))
def create_global_var(shape: Shape, value: float, dtype: npt.DTypeLike, name: str | None = None) -> Variable:
    """A persistable variable that the startup program fills with a number.

    Examples
    --------
    >>> from pyfeed import Executor, Program, Scope, layers, program_guard
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
    name = startup._unused("global_var", main) if name is None else name
    known = {"dtype": dtype or "", "dims": shape, "persistable": True}
    startup._declare(name, block=0, **known)
    startup._append("fill_constant", (), [name], _constant(shape, dtype, value), block=0)
    return main._declare(name, block=0, **known) if main is not startup else Variable(main, 0, name)


# ---- Readers ---------------------------------------------------------------------------------


def _made(
    kind: str, below: Sequence[Variable | str | Reader], key: str, attributes: Mapping[str, object], **known: object
) -> Variable:
    """A reader: made by the startup program, and known to both."""
    main, startup = default_main_program(), default_startup_program()
    inputs = [_use(reader, startup) for reader in below]
    # Eager readers have names of their own, which are not to be met in the scope of a program from elsewhere.
    name = startup._unused(f"layers.{key}", main)
    startup._declare(name, block=0, kind="reader", persistable=True, **known)
    startup._append(kind, inputs, [name], attributes, block=0)
    out = Variable(startup, 0, name)
    _use(out, main)
    return Variable(main, 0, name)


@takes(filenames=files.paths, format=optional(text), **SLOTS, **files.READING, options=anything)
def open_files(
    filenames: files.Path | Iterable[files.Path],
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
    on_corrupt: str = "raise",
    verify_first: bool = False,
    compression: str = "auto",
    io: str = "auto",
    **options: Any,
) -> Variable:
    """A reader of files, as `pyfeed.open_files`, made by the startup program.

    Parameters
    ----------
    shapes, dtypes, lod_levels, names : sequence, optional
        What an instance looks like, one a slot. If `shapes` are not given, the first file is looked into
        now, and what is found is noted in the program.
    filenames, and all others
        As for `pyfeed.open_files`.

    Returns
    -------
    Variable
        Of the main program: for `read_file`, and for the readers below.
    """
    reading: dict[str, Any] = {
        "num_threads": num_threads,
        "ordered": ordered,
        "interleave": interleave,
        "shuffle_files": shuffle_files,
        "on_corrupt": on_corrupt,
        "verify_first": verify_first,
        "compression": compression,
        "io": io,
    }
    every: Any = filenames
    if shapes is None:
        try:
            eager = files._open(every, format, options, None, dtypes, lod_levels, names, scope=Scope(), **reading)
        except Error as error:
            error.add_note(
                "layers.open_files looks into the first file when the program is built: "
                "give shapes and dtypes to build it without"
            )
            raise
        found = eager.slots
        shapes, dtypes = [s.shape for s in found], [s.dtype for s in found]
        lod_levels, names = [s.lod_levels for s in found], [s.name for s in found]
    kind, attributes = files.creation(every, format, options, shapes, dtypes, lod_levels, names, **reading)
    return _made(kind, (), "open_files", attributes)


@takes(**files.RANDOM)
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
    """A reader of random numbers, as `pyfeed.random_data`."""
    every = ["float32"] * len(shapes) if dtypes is None else dtypes
    attributes = {
        "slots": slots.attributes(shapes, every, None, names),
        "low": low,
        "high": high,
        "seed": seed,
        "count": -1 if count is None else count,
    }
    return _made("create_random_data_generator", (), "random_data", attributes)


@takes(
    capacity=integer(1, "tuple"),
    shapes=slots.shapes,
    place=optional(a_place),
    **QUEUE,
    names=optional(_arguments.names),
    name=optional(text),
    scope=optional(a_scope),
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
    """A reader of what Python pushes, and the queue to push into.

    The queue is made now, in a variable of the scope; the startup program finds it there by its name.

    Parameters
    ----------
    names : sequence of str, optional
        Of the slots.
    name : str, optional
        The queue's variable. Made up if not given.
    scope : Scope, optional
        That the programs will run in. The global one by default.
    capacity, shapes, place, dtypes, bytes_limit, lod_levels
        As for `pyfeed.py_array_reader`.

    Returns
    -------
    Variable, PyArrayFeedQueue

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, Scope, layers, program_guard
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
        capacity, shapes, place, dtypes=dtypes, bytes_limit=bytes_limit, lod_levels=lod_levels
    )
    weakref.finalize(queue, _erase, scope, feeder).atexit = False
    out = _made(
        "create_py_array_reader",
        (),
        "py_array_reader",
        {"feeder_name": feeder},
        slots=slots.attributes(shapes, dtypes, lod_levels, names),
    )
    default_startup_program()._kept.append(queue)
    return out, queue


def _unused_queue(scope: Scope) -> str:
    """A name for a queue's variable: names may begin anew, and the scope's others do not."""
    while True:
        name = unique_name.generate("py_array_feed_queue")
        if name not in scope:
            return name


@takes(reader=_reader, buffer_size=integer(1, "tuple"), seed=integer(0))
def shuffle(reader: Named | Reader, buffer_size: int, seed: int = 0) -> Variable:
    """A reader of the same tuples in another order, as `Reader.shuffle`."""
    return _made("create_shuffle_reader", [reader], "shuffle", {"buffer_size": buffer_size, "seed": seed})


@takes(reader=_reader, batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
def batch(reader: Named | Reader, batch_size: int, drop_last: bool = False, *, ragged: bool = False) -> Variable:
    """A reader of batches, as `Reader.batch`."""
    attributes = {"batch_size": batch_size, "drop_last": drop_last}
    if ragged:
        attributes["ragged"] = True
    return _made("create_batch_reader", [reader], "batch", attributes)


@takes(reader=_reader, pass_num=integer(0, "passes"))
def multi_pass(reader: Named | Reader, pass_num: int) -> Variable:
    """A reader that goes on to the next pass by itself, as `Reader.multi_pass`."""
    return _made("create_multi_pass_reader", [reader], "multi_pass", {"pass_num": pass_num})


@takes(reader=_reader, place=optional(places), depth=integer(1, "tuple"))
def double_buffer(reader: Named | Reader, place: Place | Sequence[Place] | None = None, depth: int = 2) -> Variable:
    """A reader that has the next tuples ready, as `Reader.double_buffer`."""
    attributes = {"place": attribute(CPUPlace() if place is None else place), "depth": depth}
    return _made("create_double_buffer_reader", [reader], "double_buffer", attributes)


@takes(reader=_reader, rank=integer(0), world=integer(1))
def shard(reader: Named | Reader, rank: int, world: int) -> Variable:
    """A reader of every `world`-th tuple, as `Reader.shard`."""
    return _made("create_shard_reader", [reader], "shard", {"rank": rank, "world": world})


@takes(readers=_reader, strict=flag)
def zip(*readers: Named | Reader, strict: bool = False) -> Variable:
    """A reader whose tuples have the slots of all these readers', as `Reader.zip`."""
    return _made("create_zip_reader", readers, "zip", {"strict": strict})


@takes(reader=_reader, names=optional(_variables))
def read_file(reader: Named | Reader, names: Sequence[Named] | None = None) -> Any:
    """Read the next tuple of a reader.

    At the end of the data the run ends with `EndOfData`: see `has_next`.

    Parameters
    ----------
    reader : Variable or Reader
        A reader that was made eagerly, as by `pyfeed.open_files`, will do: in the scope that the program
        runs in.
    names : sequence of str or Variable, optional
        The variables to read into, one a slot: made, if there are none. Needed if the reader's slots are
        not known.

    Returns
    -------
    list of Variable, or Variable
        One a slot; if there is one slot, that one.
    """
    program = default_main_program()
    name = _use(reader, program)
    if names is None:
        found = program.variable(name).slots
        if found is None:
            raise InvalidArgument(
                f"read_file: expected names, one a slot, as the slots of reader {name!r} are not known, found none"
            )
        outs = [program._temporary(slot.name or "slot") for slot in found]
    else:
        outs = [_output(each, program, "") for each in _each(names)]
    program._append("read", [name], [out.name for out in outs])
    return _one_or_all(outs)


@takes(reader=_reader, out=optional(_variable))
def has_next(reader: Named | Reader, out: Named | None = None) -> Variable:
    """Whether this pass of a reader has another tuple: a bool. Reads one ahead, and so may wait.

    Parameters
    ----------
    reader : Variable or Reader
    out : Variable or str, optional
        Where the answer goes. A new variable, if not given.
    """
    program = default_main_program()
    name = _use(reader, program)
    answer = _output(out, program, "has_next")
    program._append("has_next", [name], [answer.name])
    return answer


@takes(reader=_reader)
def reset(reader: Named | Reader) -> None:
    """Start a reader over."""
    program = default_main_program()
    program._append("reset", [_use(reader, program)])


# ---- Tensors ---------------------------------------------------------------------------------


def _result(
    kind: str, inputs: Sequence[Named], out: Named | None, attributes: Mapping[str, object] | None = None
) -> Variable:
    program = default_main_program()
    names = [_use(x, program) for x in inputs]
    result = _output(out, program, kind)
    program._append(kind, names, [result.name], attributes)
    return result


def _constant(shape: Shape, dtype: npt.DTypeLike, value: float) -> dict[str, object]:
    return {"dims": shape, "dtype": dtype or "", "value": value}


@takes(shape=slots.shape, dtype=slots.dtype, value=_number, out=optional(_variable))
def fill_constant(shape: Shape, dtype: npt.DTypeLike, value: float, out: Named | None = None) -> Variable:
    """A tensor of one number, again and again. Of shape [], it is a counter, or, of bool, a condition."""
    return _result("fill_constant", (), out, _constant(shape, dtype, value))


@takes(x=_variable, out=optional(_variable))
def assign(x: Named, out: Named | None = None) -> Variable:
    """The same tensor in another variable. Neither sees what is written into the other later."""
    return _result("assign", [x], out)


@takes(x=_variable, step=_number, in_place=flag)
def increment(x: Named, step: float = 1, in_place: bool = True) -> Variable:
    """A tensor with `step` added to each element: in place, or in a new variable."""
    return _result("increment", [x], x if in_place else None, {"step": step})


@takes(x=_variable, y=_variable, cond=optional(_variable))
def less_than(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x < y``, element by element, as bool: into `cond`, or a new variable.

    Both are of one dtype and shape, or one of them has one element. So the next five.
    """
    return _result("less_than", [x, y], cond)


@takes(x=_variable, y=_variable, cond=optional(_variable))
def less_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x <= y``: see `less_than`."""
    return _result("less_equal", [x, y], cond)


@takes(x=_variable, y=_variable, cond=optional(_variable))
def greater_than(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x > y``: see `less_than`."""
    return _result("greater_than", [x, y], cond)


@takes(x=_variable, y=_variable, cond=optional(_variable))
def greater_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x >= y``: see `less_than`."""
    return _result("greater_equal", [x, y], cond)


@takes(x=_variable, y=_variable, cond=optional(_variable))
def equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x == y``: see `less_than`."""
    return _result("equal", [x, y], cond)


@takes(x=_variable, y=_variable, cond=optional(_variable))
def not_equal(x: Named, y: Named, cond: Named | None = None) -> Variable:
    """Whether ``x != y``: see `less_than`."""
    return _result("not_equal", [x, y], cond)


@takes(x=_variable, y=_variable, out=optional(_variable))
def logical_and(x: Named, y: Named, out: Named | None = None) -> Variable:
    """Whether `x` and `y` both hold, element by element."""
    return _result("logical_and", [x, y], out)


@takes(x=_variable, y=_variable, out=optional(_variable))
def logical_or(x: Named, y: Named, out: Named | None = None) -> Variable:
    """Whether `x`, `y` or both hold, element by element."""
    return _result("logical_or", [x, y], out)


@takes(x=_variable, out=optional(_variable))
def logical_not(x: Named, out: Named | None = None) -> Variable:
    """Whether `x` does not hold, element by element."""
    return _result("logical_not", [x], out)


@takes(input=_variables, message=text, summarize=integer(0), first_n=integer(0))
def Print(  # noqa: N802 (Fluid's name)
    input: Named | Sequence[Named], message: str = "", summarize: int = 20, first_n: int = 0
) -> None:
    """Print tensors to standard error, a line each.

    Parameters
    ----------
    input : Variable or sequence of them
    message : str
        What the lines begin with.
    summarize : int
        How many elements are shown.
    first_n : int
        Only the first so many times of a run; 0: always.
    """
    program = default_main_program()
    attributes = {"message": message, "summarize": summarize, "first_n": first_n}
    program._append("print", [_use(x, program) for x in _each(input)], (), attributes)


@takes(kernel=_kernel, inputs=_variables, outputs=_outputs, attributes=optional(mapping))
def call(
    kernel: str | Kernel,
    inputs: Named | Sequence[Named] = (),
    outputs: int | Named | Sequence[Named] = 0,
    attributes: Mapping[str, object] | None = None,
) -> Any:
    """Call a kernel: a function that was registered by a name, in Python, C, C++ or Go.

    Parameters
    ----------
    kernel : str or Kernel
        Its name. It need not be there before the program runs.
    inputs : Variable or sequence of them
    outputs : int, or Variable, str or sequence of them
        How many new variables, or the variables: made, if there are none of that name. One that is an
        input as well is updated in place.
    attributes : mapping, optional
        What it is given besides: numbers, text, lists and mappings.

    Returns
    -------
    list of Variable, or Variable
        The outputs; if there is one, that one.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, kernel, layers, program_guard
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
    ins = [_use(x, program) for x in _each(inputs)]
    wanted = [None] * outputs if isinstance(outputs, int) else _each(outputs)
    outs = [_output(x, program, str(kernel)) for x in wanted]
    program._append("call", ins, [out.name for out in outs], {"kernel": kernel, "attributes": dict(attributes or {})})
    return _one_or_all(outs)


# ---- Staging ---------------------------------------------------------------------------------


@takes(input=_variables, capacity=integer(1, "tuple"), bytes_limit=integer(0))
def staging(input: Named | Sequence[Named], capacity: int = 3, bytes_limit: int = 0) -> Variable:
    """Put tensors into the staging buffer of the executor's place, as a tuple, behind those that are there.

    Waits while the buffer is full. If none of them was fed, nothing is put there: so the last tuples can be
    had by running the program without a feed.

    Parameters
    ----------
    input : Variable or sequence of them
    capacity : int
        The buffer's, in tuples: at least one more than there are when the program begins, as after a
        warm-up of two. The first to use it settles it, and `bytes_limit`.
    bytes_limit : int
        The buffer's, in bytes; 0: no limit.

    Returns
    -------
    Variable
        For `unstaging`.
    """
    program = default_main_program()
    names = [_use(x, program) for x in _each(input)]
    stage = program._declare(program._unused("stage"), kind="stage")
    program._append("stage", names, [stage.name], {"capacity": capacity, "bytes_limit": bytes_limit})
    return stage


@takes(stage=_variable)
def unstaging(stage: Named) -> Any:
    """Take the oldest tuple out of the staging buffer; wait for one.

    Parameters
    ----------
    stage : Variable
        What `staging` gave.

    Returns
    -------
    list of Variable, or Variable
        One for each tensor that is staged; if there is one, that one.

    Examples
    --------
    Two tuples are on their way while the third is put there:

    >>> import numpy as np
    >>> from pyfeed import Executor, Program, layers, program_guard
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
    name = _use(stage, program)
    made = [op for block in program.blocks for op in block.operators if op.type == "stage" and name in op.outputs]
    found = program.variable(name).slots
    if not made or found is None:
        raise InvalidArgument(
            f"unstaging: expected what staging gave, of tensors whose shapes are known, found {name!r}"
        )
    outs = [program._temporary(slot.name) for slot in found]
    limits = {key: made[0].attributes[key] for key in ("capacity", "bytes_limit")}
    program._append("unstage", [name], [out.name for out in outs], limits)
    return _one_or_all(outs)


# ---- Control flow ----------------------------------------------------------------------------


class While:
    """A loop: what is added within its block runs again and again, as long as a condition holds.

    Parameters
    ----------
    cond : Variable
        A bool of one element. The block must see to it that it ends, as by ``less_than(..., cond=cond)``.

    Examples
    --------
    >>> from pyfeed import Executor, Program, layers, program_guard
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

    @takes(cond=_variable)
    def __init__(self, cond: Named) -> None:
        self._program = default_main_program()
        self._parent = self._program._building.blocks[-1]
        self._cond = _use(cond, self._program)
        self._where = caller()
        self._added = False

    @takes()
    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """The body, in a with statement. It can be left out by an exception: then there is no loop."""
        _check_place("While", self._program, self._parent)
        if self._added:
            raise StateError("While: expected one block, found a second")
        with self._program._body(self._parent) as body:
            yield
        self._program._append("while", [self._cond], (), {"block": body}, block=self._parent, where=self._where)
        self._added = True


class IfElse:
    """A branch: one of two blocks runs, or, where the other is left out, one or none.

    The second block, if there is one, is to follow the first at once.

    Parameters
    ----------
    cond : Variable
        A bool of one element.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import Executor, Program, layers, program_guard
    >>> program = Program()
    >>> with program_guard(program):
    ...     x, y = (layers.data(name, [], "int64", append_batch_size=False) for name in "xy")
    ...     larger = layers.variable("larger")  # of the block around both: new ones are those of a branch
    ...     branch = layers.IfElse(layers.less_than(x, y))
    ...     with branch.true_block():
    ...         larger = layers.assign(y, out=larger)
    ...     with branch.false_block():
    ...         larger = layers.assign(x, out=larger)
    >>> int(Executor().run(program, feed={"x": np.array(3), "y": np.array(8)}, fetch=[larger])[0])
    8
    """

    @takes(cond=_variable)
    def __init__(self, cond: Named) -> None:
        self._program = default_main_program()
        self._parent = self._program._building.blocks[-1]
        self._cond = _use(cond, self._program)
        self._where = caller()
        self._bodies: dict[str, int] = {}
        self._place: tuple[int, int] | None = None  # where it waits for its second block
        self._added = False

    @takes()
    def true_block(self) -> contextlib.AbstractContextManager[None]:
        """What runs if the condition holds, in a with statement."""
        return self._block("true_block")

    @takes()
    def false_block(self) -> contextlib.AbstractContextManager[None]:
        """What runs if it does not, in a with statement."""
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
                    f"IfElse: expected the {name} at once after the other, found it after something else: "
                    "the operator has been added without it"
                )
            if self._place is not None:
                program._recall(self._place)
        with program._body(parent) as body:
            yield
        self._bodies[name] = body
        if len(self._bodies) == 2:
            self._complete()
        else:
            self._place = program._put_off(parent, self._complete)

    def _complete(self) -> None:
        self._added = True
        self._program._append("if_else", [self._cond], (), self._bodies, block=self._parent, where=self._where)


def _check_place(what: str, program: Program, parent: int) -> None:
    here = program._building.blocks[-1]
    if here != parent:
        raise StateError(
            f"{what}: expected its block to begin in block {parent}, where it was made, found block {here}"
        )
