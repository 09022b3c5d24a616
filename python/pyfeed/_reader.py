"""Readers, which deliver training data, and functions that make readers of Python data."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _arguments, _exit, _native, _ranks, _slots, _structure, unique_name
from ._arguments import flag, instance, integer, optional, start_method, text, validate
from ._attributes import decode, encode
from ._cells import MOST_CELL_BYTES
from ._map import MapTask, MapWork
from ._place import CPUPlace, Place, check_place, check_places, place_attribute
from ._queue import QUEUE_CHECKS, PyArrayFeedQueue, PyArrayFeedQueueHolder
from ._recipe import Recipe
from ._scope import Scope, check_scope, global_scope
from ._slots import Slot
from ._structure import DTypes, LoDLevels, Shapes, Structure
from .errors import ForkError, InvalidArgument, NotFoundError, RecordIndexError, StateError

if TYPE_CHECKING:
    from ._preview import Preview


# The smallest default capacity of map. It is also the default of the operator: mapCapacity in readers/ops/map.go.
_MIN_MAP_CAPACITY = 16


class Reader(_native.Reader):
    """Delivers tuples of arrays, one pass (epoch) after the other.

    A reader is made by `open_files`, `py_array_reader`, `from_generator` or `random_data`. Methods such as
    `shuffle`, `batch` and `double_buffer` make a reader on top of this one, so that calls form a chain:
    ``open_files(f).shuffle(1000).batch(32).double_buffer()``. Read only from the topmost reader of a chain: a
    tuple that is taken from a reader below is missing above.

    Each ``for`` loop over a reader goes through one pass. The first loop since the reader was made or reset
    continues where the reader is, and so does a loop after an error of the reader. Any other loop begins the next
    pass, also after a ``break``. ``next(reader)`` and `read` never begin a pass.

    ``len(reader)`` is the number of tuples in a pass. It raises `TypeError` if the number cannot be known without
    reading. A ``with`` block over a reader closes it at the end of the block.

    Notes
    -----
    Any number of threads may read from a reader at the same time; each tuple goes to one of them. Their loops
    must be over `current_pass`: while a ``for`` loop over the reader itself is in progress, a second one raises
    `StateError`. Reading does not hold the GIL while it waits, or while it copies more than a few kilobytes.
    Threads of the library that read ahead end with the reader. `docs/readers.md` has the rules for loops, passes
    and resets in detail.

    Examples
    --------
    >>> from pyfeed import random_data
    >>> with random_data([(3,)], count=10).batch(4) as reader:
    ...     for epoch in range(2):
    ...         print([len(x) for x, in reader])
    [4, 4, 2]
    [4, 4, 2]

    Attributes
    ----------
    name : str
        The name of the reader's variable, by which programs and C++ find the reader.
    scope : Scope
        The scope of the variable.
    """

    # __iter__ is in native/loop.c. BeginLoop in readers/loop.go decides whether it begins a pass.

    name: str
    scope: Scope
    _upstream: object  # what the reader reads from, which must live as long as the reader: readers, a queue, a MapWork
    _finalizer: weakref.finalize[[Scope, str], Reader] | None  # erases the variable when the reader is gone
    _threads: int = 0  # Python threads that work for the reader
    _processes: int = 0  # worker processes of map
    _recipe: Recipe | None = None  # how the reader was made; None: a preview cannot make it once more
    _last_stats: str  # the statistics of a closed reader, as JSON

    @classmethod
    @validate(scope=check_scope, name=text, as_dict=flag)
    def in_variable(cls, scope: Scope, name: str, *, as_dict: bool = False) -> Reader:
        """Return the reader in a variable of a scope, such as one that a program or C++ made.

        Parameters
        ----------
        scope : Scope
            The scope, or a scope whose parent has the variable.
        name : str
            The name of the variable.
        as_dict : bool
            Whether the new object delivers dicts, whose keys are `names`, instead of tuples.

        Returns
        -------
        Reader
            A new object for the reader. The variable is not erased with it.

        Raises
        ------
        NotFoundError
            Neither the scope nor a parent has such a variable.
        StateError
            The variable contains no reader.

        Examples
        --------
        >>> from pyfeed import Reader, random_data
        >>> reader = random_data([(2,)], count=6, name="numbers_of_the_example")
        >>> Reader.in_variable(reader.scope, "numbers_of_the_example").name
        'numbers_of_the_example'
        """
        reader = cls._wrap(scope, name, _exit.UNKNOWN, direct=False)
        if as_dict:
            reader._set_structure(_structure.by_names(reader.names))
        return reader

    @classmethod
    def _wrap(cls, scope: Scope, name: str, upstream: object, *, direct: bool) -> Reader:
        reader = scope._use(name, lambda var: cls._of(var, direct))
        reader.name, reader.scope, reader._upstream = name, scope, upstream
        reader._finalizer = None
        _exit.readers.add(reader)
        return reader

    @classmethod
    def _wrap_owned(
        cls, scope: Scope, name: str, upstream: object, *, direct: bool = False, structure: Structure = None
    ) -> Reader:
        """Return an object for the reader in a variable. The variable is erased when the object is gone."""
        reader = cls._wrap(scope, name, upstream, direct=direct)
        reader._set_structure(structure)
        reader._finalizer = weakref.finalize(reader, _erase, scope, name)
        reader._finalizer.atexit = False
        return reader

    def _derive(
        self, kind: str, *others: Reader, _direct: bool = False, _structure: Structure = ..., **attributes: object
    ) -> Reader:
        """Make a reader on top of this one, by the operator ``create_<kind>_reader``.

        By default, its tuples have the structure of those of this reader.
        """
        self._check_open(*others)
        name = unique_name._generate_process_wide(f"{kind}_reader")
        self.scope._create(f"create_{kind}_reader", name, self.name, *(o.name for o in others), **attributes)
        structure = self._structure if _structure is ... else _structure
        upstream = (self, *others) if others else self
        reader = Reader._wrap_owned(self.scope, name, upstream, direct=_direct, structure=structure)
        reader._recipe = Recipe.above(f"create_{kind}_reader", attributes, self, *others, structure=structure)
        return reader

    def _readers_below(self) -> list[Reader]:
        """Return the readers that this one reads from, as far as Python knows them."""
        below = self._upstream._upstream if isinstance(self._upstream, MapWork) else self._upstream
        return [each for each in (below if isinstance(below, tuple) else (below,)) if isinstance(each, Reader)]

    def _check_open(self, *others: Reader) -> None:
        for reader in (self, *others):
            if reader.closed:
                raise StateError(f"the reader {reader.name!r} is closed")

    @validate(batch_size=integer(1, "tuple"), drop_last=flag, ragged=flag)
    def batch(self, batch_size: int, drop_last: bool = False, *, ragged: bool = False) -> Reader:
        """Make a reader of batches of `batch_size` tuples.

        A slot whose first dimension is -1 is concatenated along this dimension, and its ragged offsets (LoD, level of
        detail) are merged. Any other slot is stacked under a new first dimension.

        Parameters
        ----------
        batch_size : int
            The number of tuples in a batch, at least 1.
        drop_last : bool
            Whether the last batch of a pass is dropped if it has fewer tuples.
        ragged : bool
            Whether the slots of a tuple may add different numbers of rows to a batch. By default, a read raises a
            `ShapeError` for such a tuple, because its rows could not be matched with each other. A stacked slot adds
            one row. A concatenated slot adds its first dimension or, if it has LoD, its outermost sequences.

        Returns
        -------
        Reader

        Raises
        ------
        StateError
            This reader is closed.

        Notes
        -----
        The batch is copied in the thread that reads it, without the GIL; up to 3 threads of the library help with a
        batch of 512 KiB or more. `double_buffer` moves this work to a thread of the library. A read raises a
        `ShapeError` if tuples differ in a dimension other than the first of a concatenated slot.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], count=6)
        >>> [x.shape for x, in reader.batch(4)]
        [(4, 2), (2, 2)]
        """
        self._check_open()
        name = unique_name._generate_process_wide("batch_reader")
        self.scope.create_batch_reader(name, self.name, batch_size, drop_last, ragged=ragged)
        reader = Reader._wrap_owned(self.scope, name, self, structure=self._structure)
        attributes = {"batch_size": batch_size, "drop_last": drop_last, "ragged": ragged}
        reader._recipe = Recipe.above("create_batch_reader", attributes, self, structure=self._structure)
        return reader

    @validate(buffer_size=integer(1, "tuple"), seed=integer(0))
    def shuffle(self, buffer_size: int, seed: int = 0) -> Reader:
        """Make a reader of the same tuples in a random order.

        The reader works in blocks: it reads `buffer_size` tuples and permutes them. A thread of the library reads the
        next block while this one is delivered. The order depends on the seed, the number of the pass and the number
        of the block only. So it is the same on every machine, and differs from pass to pass.

        Parameters
        ----------
        buffer_size : int
            The number of tuples in a block, at least 1. Up to two blocks are in memory. References are moved, not
            bytes.
        seed : int
            From 0 to ``2**63 - 1``.

        Returns
        -------
        Reader

        Raises
        ------
        InvalidArgument
            `open_files` has divided the records among processes, and `buffer_size` is not a multiple of the number
            of virtual shards of this process.
        StateError
            This reader is closed.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], count=6)
        >>> len([x for x, in reader.shuffle(100, seed=1)])
        6
        """
        return self._derive("shuffle", buffer_size=buffer_size, seed=seed)

    @validate(rank=_ranks.check_rank, world=optional(integer(1)), even=optional(text))
    def shard(self, rank: int | str, world: int | None = None, even: str | None = None) -> Reader:
        """Make a reader of every `world`-th tuple, beginning with number `rank`: one of `world` parts.

        Each process reads all the data and drops the tuples of the other parts. Two parts differ by at most one
        tuple, or not at all with `even`. To train one model with several processes, prefer `split_batches`: its
        states can be loaded by another number of processes.

        Parameters
        ----------
        rank : int or "auto"
            The number of the part, from 0 to ``world - 1``. With "auto", `rank` and `world` are those of
            ``torch.distributed`` or ``jax.distributed``, if they are initialized; else those that ``torchrun``,
            ``srun`` or ``mpirun`` has set in the environment; else 0 and 1.
        world : int
            The number of parts, at least 1; usually the number of processes. Not given with ``rank="auto"``.
        even : {None, "drop", "repeat", "pad"}
            What to do with the last tuples of a pass if they are fewer than `world`. Each value gives all parts the
            same number of tuples. "drop" leaves these tuples out. "repeat" delivers some of them to several parts.
            "pad" delivers tuples of zeros, with empty sequences (slots with LoD), to the parts that get none of them.
            With `even`, `world` tuples are read before one of them is delivered. By default, the parts may differ by
            one tuple.

        Returns
        -------
        Reader

        Raises
        ------
        InvalidArgument
            `rank` is not less than `world`; or `even` has another value; or the variables of a launcher in the
            environment are no valid rank and world; or `open_files` has divided the records already.
        StateError
            This reader is closed.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], count=7)
        >>> [len(reader.shard(rank, world=3)) for rank in range(3)]
        [3, 2, 2]
        >>> [len(reader.shard(rank, world=3, even="repeat")) for rank in range(3)]
        [3, 3, 3]
        """
        rank, world = _ranks.resolve(rank, world)
        return self._derive("shard", rank=rank, world=world, even="" if even is None else even)

    @validate(rank=_ranks.check_rank, world=optional(integer(1)), even=text)
    def split_batches(self, rank: int | str, world: int | None = None, even: str = "drop") -> Reader:
        """Make a reader of one part of each batch: the parts of all processes together are the batch.

        Of each full batch, process number `rank` gets ``batch_size / world`` tuples of the reader below `batch`,
        beginning with tuple number ``rank * batch_size / world``. The processes of a job have the same chain below,
        with the same `batch_size`. So their state is the same too: the state of any process can be loaded by all
        processes of a job with another `world`.

        Parameters
        ----------
        rank : int or "auto"
            The number of the part, from 0 to ``world - 1``. With "auto", `rank` and `world` are those of
            ``torch.distributed`` or ``jax.distributed``, if they are initialized; else those that ``torchrun``,
            ``srun`` or ``mpirun`` has set in the environment; else 0 and 1.
        world : int
            The number of processes, which divides `batch_size`. Not given with ``rank="auto"``.
        even : {"drop", "repeat", "pad"}
            What happens to the last batch of a pass if `world` does not divide its size. All processes get parts of
            the same size. "drop" leaves out the last tuples of this batch, or all of them if they are fewer than
            `world`. "repeat" appends the first tuples of this batch to it. "pad" appends tuples of zeros; sequences
            (slots with LoD) are empty in them.

        Returns
        -------
        Reader

        Raises
        ------
        InvalidArgument
            This reader was not made by `batch`; or `world` does not divide its `batch_size`; or `rank` is not less
            than `world`; or `even` has another value; or the variables of a launcher in the environment are no valid
            rank and world; or `open_files` has divided the records already.
        StateError
            This reader is closed. Reads raise it if batches are also read directly from this reader.

        Notes
        -----
        Each process reads all the data, but copies only its part of each batch. The parts of a batch have the same
        number of tuples. If `batch` concatenates tuples with different numbers of rows, the parts may have
        different numbers of rows.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> batches = random_data([(2,)], count=10).batch(4)
        >>> [[len(x) for x, in batches.split_batches(rank, world=2)] for rank in range(2)]
        [[2, 2, 1], [2, 2, 1]]
        """
        rank, world = _ranks.resolve(rank, world)
        return self._derive("split_batches", rank=rank, world=world, even=even)

    @validate(pass_num=integer(0, "passes"))
    def multi_pass(self, pass_num: int) -> Reader:
        """Make a reader that delivers several passes as one.

        At the end of each pass it resets the reader below. `pass_id` is the number of the pass that the last tuple is
        from.

        Parameters
        ----------
        pass_num : int
            The number of passes. 0: without end.

        Returns
        -------
        Reader

        Raises
        ------
        StateError
            This reader is closed. Reads raise it for a pass without tuples, and if the data cannot start over.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], count=6)
        >>> len([x for x, in reader.multi_pass(3)])
        18
        """
        return self._derive("multi_pass", pass_num=pass_num)

    @validate(place=optional(check_places), depth=integer(1, "tuple"))
    def double_buffer(self, place: Place | Sequence[Place] | None = None, depth: int = 2) -> Reader:
        """Make a reader that prefetches tuples, and copies them to a device.

        A thread of the library reads up to `depth` tuples ahead. Put `double_buffer` on top of a chain, so that the
        work of the whole chain is done ahead. A consumer that finds no batch ready can assemble one itself, in
        parallel with the thread.

        Parameters
        ----------
        place : Place or sequence of Place, optional
            Where the consumer wants the tuples, by default `CPUPlace`. With a `CUDAPlace`, the thread copies the
            tuples to the device. With several of them, the devices get the tuples in turn.
        depth : int
            The number of tuples that are ready at each place, at most 65536, in addition to the one that is being
            consumed. For batches that take a few microseconds to copy, use about 8, because waking the thread takes
            as long as copying such a batch.

        Returns
        -------
        Reader

        Raises
        ------
        UnsupportedError
            `place` is not a `CPUPlace`, and there is no CUDA driver or no device.
        InvalidArgument
            There are several places, and not all are a `CUDAPlace`; or a device does not exist.
        StateError
            This reader is closed.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], count=6)
        >>> len([x for x, in reader.double_buffer(depth=3)])
        6
        """
        return self._derive("double_buffer", place=place_attribute(CPUPlace() if place is None else place), depth=depth)

    @validate(others=instance(_native.Reader, "a Reader"), strict=flag)
    def zip(self, *others: Reader, strict: bool = False) -> Reader:
        """Make a reader whose tuples join the slots of this reader with those of other readers.

        A pass ends with the shortest reader. If the readers deliver dicts, the dicts are joined.

        Parameters
        ----------
        *others : Reader
            At least one reader, in the same scope.
        strict : bool
            Whether a read raises `StateError` at the end of the pass if the readers do not end together.

        Returns
        -------
        Reader

        Raises
        ------
        InvalidArgument
            There is no other reader, or one is in another scope, or `open_files` has divided the records of the
            readers differently among processes; or only some readers deliver dicts, or two dicts have the same key.
        StateError
            A reader is closed.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> images, labels = random_data([(2, 2)], count=3), random_data([()], ["int64"], high=9, count=3)
        >>> [(image.shape, label.shape) for image, label in images.zip(labels, strict=True)]
        [((2, 2), ()), ((2, 2), ()), ((2, 2), ())]
        """
        if not others:
            raise InvalidArgument("zip: expected at least 1 other reader, found none")
        for other in others:
            if other.scope is not self.scope:
                raise InvalidArgument(f"zip: expected readers in one scope, found the reader {other.name!r} in another")
        self._check_open(*others)
        every = (self, *others)
        structure = None
        if any(reader._structure is not None for reader in every):
            structure = _structure.merge([r._structure for r in every], [r.names for r in every])
        return self._derive("zip", *others, _structure=structure, strict=strict)

    @validate(
        function=_arguments.function,
        num_threads=integer(1),
        **_structure.OPTIONAL_CHECKS,
        num_workers=integer(0, most=255),
        method=start_method,
        cell_bytes=optional(integer(1, most=MOST_CELL_BYTES)),
        as_dict=optional(flag),
        capacity=optional(integer(1, "tuple")),
        ordered=flag,
        with_position=flag,
        rng=flag,
        seed=integer(0),
        on_error=text,
    )
    def map(
        self,
        function: Callable[..., Any],
        num_threads: int = 1,
        shapes: Shapes | None = None,
        dtypes: DTypes | None = None,
        lod_levels: LoDLevels | None = None,
        names: Sequence[str] | None = None,
        *,
        num_workers: int = 0,
        method: str = "spawn",
        cell_bytes: int | None = None,
        as_dict: bool | None = None,
        capacity: int | None = None,
        ordered: bool = True,
        with_position: bool = False,
        rng: bool = False,
        seed: int = 0,
        on_error: str = "raise",
    ) -> Reader:
        """Make a reader of the results of a function, which threads or worker processes call for each tuple.

        Parameters
        ----------
        function : callable
            Called with the arrays of a tuple, an argument for each slot; or with the dict, if this reader delivers
            dicts. It returns a tuple or a list, a single array for a single slot, or a dict whose keys are the names
            of the slots. The values are as for `PyArrayFeedQueue.push`, and are copied.
        num_threads : int
            The number of threads that call the function. More than one thread helps only as far as the function
            releases the GIL, as NumPy, decoders and I/O do. For other functions, use `num_workers`.
        shapes, dtypes, lod_levels, names : sequence, optional
            The slots of the results, as for `py_array_reader`: an entry for each slot. By default, they are the slots
            of this reader.
        num_workers : int
            The number of worker processes that call the function instead of threads, at most 255. By default, there
            are none.
        method : {"spawn", "forkserver", "fork"}
            How multiprocessing starts the processes. With "spawn" and "forkserver", pickle must accept the function.
            A function of a notebook or a prompt needs the package cloudpickle.
        cell_bytes : int, optional
            With worker processes, the largest size of a tuple and of a result, in bytes. By default, it is computed
            if all sizes and dtypes are known, and else 64 MiB. Only the part that is used takes memory.
        as_dict : bool, optional
            Whether the new reader delivers dicts, if `shapes` is not a dict itself. By default, it does if this
            reader does.
        capacity : int, optional
            The largest number of tuples that were taken and whose results are not yet delivered. By default 4 for
            each thread, and at least 16; with worker processes, 8 for each, and at least 32.
        ordered : bool
            True: results are delivered in the order of the tuples. False: as soon as they are ready.
        with_position : bool
            Whether the function is also called with ``position=(pass_id, index)``: the number of the tuple's pass,
            and the tuple's number in it, both from 0.
        rng : bool
            Whether the function is also called with ``rng=``, a `numpy.random.Generator` for this one call. Its
            numbers depend on `seed` and the position only: not on threads, and not on interruptions of the run.
        seed : int
            The seed of the generators of `rng`, from 0 to ``2**63 - 1``.
        on_error : str
            ``"raise"``: a read raises the exception of the function. ``"skip"``: the tuple is left out. The
            details of this reader in `stats` have the number of such tuples, ``skipped``, and the first 1000 of
            them, ``skips``; printed, `stats` lists ten. A tuple whose worker process dies is not left out.

        Returns
        -------
        Reader

        Raises
        ------
        InvalidArgument
            `on_error` is "skip", and `open_files` has divided the records among processes; or both `num_threads` and
            `num_workers` are given.
        ArgumentTypeError
            Pickle refuses the function.
        StateError
            This reader is closed.

        Notes
        -----
        If there is a `multi_pass` below, a position has the pass of the reader below the `multi_pass`. The numbers of
        these passes continue to increase when the reader is reset. The generators are Philox generators [1]_ with the
        key `seed`, whose counter begins at the position.

        A read raises an exception of the function itself, after the results before it. A note on the exception says
        which tuple failed. If the tuple is from a file, the exception has the attributes ``file`` and ``record``. A
        read raises `ShapeError`, `DTypeError` or `SlotCountError` for a result that does not fit the slots.

        The threads are daemons. They start at once, and end when the reader is gone.

        So do worker processes. They get the tuples through shared memory, as views, and return the results the same
        way. Order, positions, generators, states and errors are those of threads. An exception of the function is
        raised with a note that contains the traceback of the worker; as a `ProducerError` if it cannot be pickled. If
        a process dies, a read raises `WorkerError` for the tuple that it had; after a `reset`, another process takes
        its place. Workers ignore SIGINT. If they have imported PyTorch, it computes in one thread in each.

        References
        ----------
        .. [1] Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(2,)], high=100, count=4).map(lambda x: x.sum(), shapes=[()])
        >>> [bool(0 <= x < 200) for x, in reader]
        [True, True, True, True]
        """
        check_on_error(self, on_error)
        if num_workers > 0 and num_threads > 1:
            raise InvalidArgument(f"num_threads: expected 1 with num_workers, found {num_threads}")
        if capacity is not None:
            size = capacity
        elif num_workers == 0:
            size = max(_MIN_MAP_CAPACITY, 4 * num_threads)
        else:
            size = 2 * max(_MIN_MAP_CAPACITY, 4 * num_workers)
        structure, slots = self._slots_of_results(shapes, dtypes, lod_levels, names, as_dict)
        calls: dict[str, Any] = {
            "function": function,
            "with_position": with_position,
            "seed": seed if rng else None,
            "skips": on_error == "skip",
            "same_slots": shapes is None,
        }
        return self._map(
            slots,
            structure,
            calls,
            size,
            num_threads,
            num_workers,
            ordered=ordered,
            method=method,
            cell_bytes=cell_bytes,
        )

    def _map(
        self,
        slots: list[dict[str, Any]] | None,
        structure: Structure,
        calls: dict[str, Any],
        capacity: int,
        num_threads: int,
        num_workers: int,
        *,
        ordered: bool = True,
        method: str = "spawn",
        cell_bytes: int | None = None,
        sizes: tuple[int | None, int | None] = (None, None),
        function_of_worker: Callable[..., Any] | None = None,
    ) -> Reader:
        """Make a map reader, and start its threads or processes.

        Parameters
        ----------
        slots : list of dict, optional
            The slots of the results, as attributes of operators; None: those of this reader.
        structure
            The structure of the tuples that the reader delivers.
        calls : dict
            The arguments of `MapTask` that say which function it calls, and how.
        sizes : tuple of int or None
            The sizes of a tuple and of a result in shared memory, if `cell_bytes` is not given; None: see
            `MapProcesses`.
        function_of_worker : callable, optional
            What processes call in place of the function.
        """
        attributes: dict[str, Any] = {} if slots is None else {"slots": slots}
        if calls["seed"] is not None:
            attributes["seed"] = calls["seed"]  # a state of another seed is refused
        attributes |= {"capacity": capacity, "ordered": ordered}
        out = self._derive("map", _direct=True, _structure=structure, **attributes)
        if out._recipe is not None:
            out._recipe.function = partial(MapTask, **calls)
        if num_workers > 0:
            from ._map_processes import MapProcesses  # few programs need it

            if function_of_worker is not None:
                calls = {**calls, "function": function_of_worker}
            failures = capacity + num_workers
            given = sizes if cell_bytes is None else (cell_bytes, cell_bytes)
            processes = MapProcesses(self, failures=failures, method=method, sizes=given, **calls)
            out._upstream = processes
            processes.start(out, num_workers, capacity)
            out._processes = num_workers
            return out
        task = out._upstream = MapTask(self, failures=capacity + num_threads, **calls)
        task.start(out, num_threads)
        out._threads = num_threads
        return out

    def _slots_of_results(
        self, shapes: Any, dtypes: Any, lod_levels: Any, names: Sequence[str] | None, as_dict: bool | None
    ) -> tuple[Structure, list[dict[str, Any]] | None]:
        """Return the structure of the results of `map`, and their slots as attributes; None: those of this reader."""
        dicts = isinstance(self._structure, dict) if as_dict is None else as_dict
        if shapes is not None:
            about = _structure.describe(shapes, dtypes, lod_levels, names, as_dict=dicts)
            return about.structure, _slots.to_attributes(*about[:4])
        _slots.refuse_without_shapes(dtypes, lod_levels, names)
        if as_dict is None or (as_dict and isinstance(self._structure, dict)):
            return self._structure, None
        return (_structure.by_names(self.names) if as_dict else None), None

    @property
    def rank(self) -> int:
        """The number of this process, if the source has divided the records among processes; else 0."""
        return _division(self.stats())[0]

    @property
    def world(self) -> int:
        """The number of processes, if the source has divided the records among them; else 1."""
        return _division(self.stats())[1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slots, which are the keys of dicts. Slot 2 is ``"slot2"`` if it has no name."""
        return _structure.names_of(self.slots)

    @property
    def slots(self) -> list[Slot]:
        """The slots of the tuples: a `Slot` with name, dtype and shape for each."""
        return _slots.from_attributes(self._described()["slots"])

    @property
    def pass_id(self) -> int:
        """The number, from 0, of the pass that the last tuple is from, if the chain has a `multi_pass`; otherwise 0."""
        return int(self._described()["pass_id"])

    @validate()
    def feeder(self) -> PyArrayFeedQueue:
        """Return the queue at the bottom of the chain, as made by `py_array_reader`.

        Returns
        -------
        PyArrayFeedQueue

        Raises
        ------
        StateError
            The chain does not read from exactly one such queue. It reads files, for example.

        Examples
        --------
        >>> from pyfeed import Scope, py_array_reader
        >>> reader, queue = py_array_reader(2, [(-1,)], scope=Scope())
        >>> reader.batch(2).feeder() is queue
        True
        """
        found = self._feeder()
        if found is None:
            raise StateError(f"feeder: expected a reader of a PyArrayFeedQueue, found another, {self.name!r}")
        return found

    def _feeder(self) -> PyArrayFeedQueue | None:
        if isinstance(self._upstream, PyArrayFeedQueue):
            return self._upstream
        below = self._readers_below()
        return below[0]._feeder() if len(below) == 1 else None

    @validate()
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the reader: behind the last tuple that it has delivered.

        `load_state_dict` of a reader that was made by the same calls goes on there, in another process and on another
        machine too: it delivers the next tuple, and then exactly what this reader would. What `has_next`, `shuffle`,
        `double_buffer` and other threads have read ahead counts as not delivered.

        Returns
        -------
        dict
            Some hundred bytes as JSON or by `pickle`. Save it together with the model and the optimiser.

        Raises
        ------
        StateError
            The position cannot be known exactly: the chain has ``ordered=False`` or a FIFO, another thread waits in a
            read of this reader, or tuples were also read from a reader below.

        Notes
        -----
        Any thread may call it, between two reads. It takes some microseconds and does not wait for data.
        `docs/resume.md` says what each reader and format promises.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([()], count=6).shuffle(4).batch(2)
        >>> first = next(reader)
        >>> state = reader.state_dict()
        >>> expected = [x.tolist() for x, in reader]
        >>> resumed = random_data([()], count=6).shuffle(4).batch(2)
        >>> resumed.load_state_dict(state)
        >>> [x.tolist() for x, in resumed] == expected
        True
        """
        state: dict[str, Any] = decode(self._get_state())
        return state

    @validate(strict=flag)
    def load_state_dict(self, state: dict[str, Any] | str, *, strict: bool = True) -> None:
        """Go to a position that `state_dict` has returned.

        The next tuple is the one that was next then. The next ``for`` loop goes on with the rest of that pass. If
        the state was taken after a loop had reached the end of its pass, the next ``for`` loop begins the next pass.
        The reader may have been read from before this call: what it has read ahead is dropped, as by `reset`.

        Parameters
        ----------
        state : dict or str
            A state of a reader that was made by the same calls; as JSON, it may come from C++ or from a program.
            Numbers of threads, depths, capacities and places may differ, and the files may be mounted elsewhere.
        strict : bool
            Whether the seeds, the files and everything else must be what they were. If False, the reader goes on at
            the same number of tuples with another seed, or with other or changed files.

        Raises
        ------
        StateError
            The chain, an option that decides the order, the list of files, or a file that was being read has changed,
            or is missing. The message names it.
        InvalidArgument
            `state` is no state, was changed, or is from a later release.
        FileError
            A file that was being read cannot be opened.

        Notes
        -----
        The call opens the files that were being read, at most as many as `interleave`. The state has places in these
        files that may be before the position. Then the first read reads the tuples in between again, and drops them.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([()], count=6)
        >>> state = reader.state_dict()
        >>> first = next(reader)
        >>> reader.load_state_dict(state)
        >>> bool(next(reader) == first)
        True
        """
        if isinstance(state, str):
            text("state", state)
        elif not isinstance(state, dict):
            _arguments.refuse("state", "a dict that state_dict() has returned", state)
        else:
            try:
                state = encode(state)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidArgument(
                    f"state: expected a dict that JSON can hold, found one that it cannot: {error}"
                ) from error
        self._set_state(state, strict)

    @validate()
    def get_state(self) -> dict[str, Any]:
        """Return `state_dict()`, under the name that this method has in Grain."""
        return self.state_dict()

    @validate(strict=flag)
    def set_state(self, state: dict[str, Any] | str, *, strict: bool = True) -> None:
        """Call `load_state_dict`, under the name that this method has in Grain.

        Parameters
        ----------
        state, strict
            As for `load_state_dict`.
        """
        self.load_state_dict(state, strict=strict)

    def __getitem__(self, index: SupportsIndex) -> Any:
        """Return a record of a reader that was made by ``open_files(..., index=True)``.

        Parameters
        ----------
        index : int
            The number of the record, from 0, through all files in the order of the list. A negative number counts
            from the end. `shuffle_files` and `shuffle_records` do not change the numbers.

        Returns
        -------
        tuple or dict of arrays

        Raises
        ------
        RecordIndexError
            The files do not have so many records.
        UnsupportedError
            The reader has no index, or is not one of `open_files`.

        Notes
        -----
        The call does not change which tuple a loop gets next. Any thread may make it.
        """
        number = _arguments.index("index", index, "an integer")
        if number < 0:
            number += len(self)
        try:
            return self._at(number)
        except InvalidArgument as error:
            raise RecordIndexError(str(error)) from None
        except OverflowError:
            raise RecordIndexError(f"index: expected the number of a record, found {number}") from None

    @validate()
    def stats(self) -> dict[str, Any]:
        """Report what this reader and the readers below it have done since they were made.

        Returns
        -------
        dict
            Printed, it is a table with a row for each reader. Below the table is a line for each of the first ten
            damaged places that a reader skipped. The dict has these keys:

            - ``reader``: the kind of the reader, such as ``"batch"``.
            - ``tuples``, ``bytes``: how many were delivered.
            - ``passes``: how many passes began, including the first.
            - ``pass_id``: the value of `pass_id`.
            - ``waited_seconds``: how long threads slept in the reader because there was no data, summed over threads.
            - ``slots``: a list of `Slot`.
            - ``details``: properties of this kind of reader. For ``open_files(..., on_corrupt="skip")``, ``ledger``
              lists the first 1000 damaged places, each once, with ``file``, ``offset``, ``record``, ``reason`` and
              ``times``, the number of passes in which it was skipped. ``corrupt`` is how often damage was skipped,
              over all places and passes.
            - ``below``: a list of the same for each reader that this one reads from. After
              ``open_files(...).batch(n)``, the ledger is in ``stats()["below"][0]["details"]``.

        Notes
        -----
        The call may wait for another thread that is reading from the reader, but not for data. For a closed reader,
        it returns the state at the time of `close`.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(3,)], count=10).batch(4)
        >>> print(sum(len(x) for x, in reader), reader.stats()["tuples"])
        10 3
        """
        from ._stats import ReaderStats  # a loop needs neither this module nor _repr

        return ReaderStats.of(self._described())

    def _described(self) -> dict[str, Any]:
        """Return the library's description of this reader and the readers below it."""
        try:
            text = self._last_stats if self.closed else self._stats()
        except StateError:
            if not self.closed:  # another thread may have closed it meanwhile
                raise
            text = self._last_stats
        described: dict[str, Any] = decode(text)
        return described

    @validate()
    def close(self) -> None:
        """Release the reader's variable, threads, files and memory. A second call does nothing.

        Every later call that reads, resets or makes a reader on top raises `StateError`, and so does a call that is
        waiting in the reader in another thread. Tuples that were delivered stay valid.

        The readers below are released too, except those that are still held by a Python object, by another chain, or
        by a variable that the caller has created (by `Scope.create_batch_reader` or in C++). These can still be read
        from. A queue whose object the caller holds stays open, because `PyArrayFeedQueue.pop` can still take tuples
        from it.
        """
        try:
            self._last_stats = self._stats()
        except StateError:
            return  # already closed
        self._close()
        _exit.readers.discard(self)
        if self._finalizer is not None:
            self._finalizer()
        self._upstream = self._recipe = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        length = self._described().get("length")
        if length is None:
            raise TypeError(
                "len: the number of tuples of a pass is not known: the reader would have to read its data to count "
                "them. open_files(..., index=True) does so once, and stores the number"
            )
        if length < 0:
            raise TypeError("len: a pass of this reader has no end")
        return int(length)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        from ._repr import reader_repr

        return reader_repr(self)

    def _repr_html_(self) -> str:
        """Return a description for notebooks. As `repr`, it reads nothing."""
        from ._html import reader_html

        return reader_html(self)

    @validate(count=integer(1, "tuple"))
    def preview(self, count: int = 5) -> Preview:
        """Return the first tuples of the first pass, read by a second reader. This reader does not change.

        The same chain of readers is made once more, reads, and is closed. So the tuples are the first ones that a new
        reader delivers that is made by the same calls: they are of pass 0, wherever this reader is. The chain is made
        without `double_buffer`, on the CPU, with one thread for files and one for each `map`.

        Parameters
        ----------
        count : int
            The largest number of tuples, at least 1. There are fewer if the pass has fewer.

        Returns
        -------
        pyfeed.typing.Preview
            Its attribute ``tuples`` is the list of tuples. Printed, it is a table. In a notebook, the table has
            pictures for images: for arrays of uint8 with the shape of an image, and for bytes of a JPEG, PNG, GIF or
            WebP file. All text from files is escaped.

        Raises
        ------
        UnsupportedError
            The chain reads a queue, a named pipe or something else that can be read only once; or it was not made in
            Python.
        StateError
            This reader is closed.

        Notes
        -----
        All that the chain does is done once more, as far as the tuples need it: `shuffle` reads its first block, and
        the functions of `map`, `from_generator` and `register_format` are called. They get the same positions and
        random generators as in pass 0. The function of `from_generator` may be called while a generator of an earlier
        call is active. A read that fails raises its error here. With ``ordered=False``, the order of the tuples
        depends on timing, as always.

        Examples
        --------
        >>> from pyfeed import random_data
        >>> reader = random_data([(), (2, 2)], ["int64", "uint8"], high=9, seed=1, names=["label", "image"])
        >>> reader.preview(2)
        Preview of 2 tuples
           label  image
           int64  uint8 (2, 2)
        0      8  (2, 2) [6, 9, 7, 9]
        1      7  (2, 2) [2, 5, 0, 5]
        """
        from ._preview import read_preview

        return read_preview(self, count)


def _erase(scope: Scope, name: str) -> None:
    try:
        scope.erase(name)
    except (NotFoundError, ForkError):
        pass


@validate(
    capacity=integer(1, "tuple"),
    place=optional(check_place),
    **QUEUE_CHECKS,
    name=optional(text),
    scope=optional(check_scope),
)
def py_array_reader(
    capacity: int,
    shapes: Shapes,
    place: Place | None = None,
    *,
    dtypes: DTypes | None = None,
    bytes_limit: int = 0,
    lod_levels: LoDLevels | None = None,
    names: Sequence[str] | None = None,
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
) -> tuple[Reader, PyArrayFeedQueue]:
    """Make a queue that Python threads push into, and a reader of the queue.

    Parameters
    ----------
    capacity : int
        The largest number of tuples that the queue holds, at least 1. A push to a full queue waits.
    shapes : sequence or dict of shapes
        The shape of each slot. -1 matches any size. A first dimension of -1 is the size of the batch, which must
        be equal in all slots that have one. With a dict, such as ``{"image": (28, 28), "label": ()}``, tuples are
        pushed and delivered as dicts. Its values may be dicts, lists and tuples of shapes again. The names of the
        slots are the keys, with dots between them.
    place : Place, optional
        Where the consumer wants the tuples, by default `CPUPlace`. For a `CUDAPlace`, producers push into pinned
        host memory, and the tuples are copied to the device from there.
    dtypes : sequence or dict, optional
        The dtype of each slot, such as ``"float32"``. The first tuple determines dtypes that are None or not
        given.
    bytes_limit : int
        The largest number of bytes of all tuples that are queued or being written. 0: no limit. A larger tuple is
        refused with `TooLargeError`.
    lod_levels : sequence or dict of int, optional
        The number of levels of ragged offsets (LoD, level of detail) of each slot, by default 0. Slots with
        levels are pushed and delivered as `LoDTensor`.
    names : sequence of str, optional
        The names of the slots, if `shapes` is no dict. A producer may then push dicts with these keys.
    as_dict : bool
        Whether tuples are delivered as dicts, whose keys are the names. A slot without a name is ``"slot0"``.
    name : str, optional
        The name of the queue's variable; that of the reader is ``name + "_reader"``. By default, a unique name.
    scope : Scope, optional
        The scope of the variables, by default the global one. The variable of the reader is erased when the
        `Reader` is gone, that of the queue when the `PyArrayFeedQueue` is gone.

    Returns
    -------
    Reader, PyArrayFeedQueue

    Raises
    ------
    StateError
        The variable `name` contains a queue already, or something else.
    SlotCountError
        `dtypes`, `lod_levels` or `names` do not have an entry for each of `shapes`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import CPUPlace, py_array_reader
    >>> reader, queue = py_array_reader(8, [(-1, 784), (-1,)], CPUPlace(), dtypes=["float32", "int64"])
    >>> queue.push((np.zeros((32, 784), "float32"), np.zeros(32, "int64")))
    >>> image, label = reader.read()
    >>> image.shape
    (32, 784)
    """
    return feed(
        capacity, shapes, place, dtypes, bytes_limit, lod_levels, names, as_dict, name, scope, restartable=False
    )


def feed(
    capacity: int,
    shapes: Shapes,
    place: Place | None = None,
    dtypes: DTypes | None = None,
    bytes_limit: int = 0,
    lod_levels: LoDLevels | None = None,
    names: Sequence[str] | None = None,
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
    *,
    restartable: bool,
    no_order: str = "",
) -> tuple[Reader, PyArrayFeedQueue]:
    """Make a queue and its reader. `no_order` says why the reader's states are refused, if they are."""
    scope = global_scope() if scope is None else scope
    feeder = unique_name._generate_process_wide("py_array_feed_queue") if name is None else name
    queue = PyArrayFeedQueueHolder(scope, feeder).init_once(
        capacity,
        shapes,
        place,
        dtypes=dtypes,
        bytes_limit=bytes_limit,
        lod_levels=lod_levels,
        names=names,
        as_dict=as_dict,
        restartable=restartable,
    )
    weakref.finalize(queue, _erase, scope, feeder).atexit = False
    out = f"{feeder}_reader"
    reason = {"no_order": no_order} if no_order else {}
    scope._create("create_py_array_reader", out, feeder_name=feeder, **reason)
    return Reader._wrap_owned(scope, out, queue, direct=True, structure=queue._structure), queue


@validate(
    function=_arguments.function,
    place=optional(check_place),
    **QUEUE_CHECKS,
    capacity=integer(1, "tuple"),
    name=optional(text),
    scope=optional(check_scope),
)
def from_generator(
    function: Callable[..., Iterable[Any]],
    shapes: Shapes,
    place: Place | None = None,
    *,
    dtypes: DTypes | None = None,
    capacity: int = 8,
    bytes_limit: int = 0,
    lod_levels: LoDLevels | None = None,
    names: Sequence[str] | None = None,
    as_dict: bool = False,
    name: str | None = None,
    scope: Scope | None = None,
) -> Reader:
    """Make a reader of the tuples that a function yields. The function is called again for each pass.

    Parameters
    ----------
    function : callable
        Called once for each pass. It returns an iterable of tuples of arrays; usually it is a generator function.
        If it has a parameter ``start`` without a default, it gets the number of tuples to leave out at the
        beginning of the pass: 0, or what was delivered before a `Reader.load_state_dict`. Otherwise it is called
        without arguments, and those tuples are dropped.
    shapes, place, dtypes, capacity, bytes_limit, lod_levels, names, as_dict, name, scope
        As for `py_array_reader`. `capacity` is the largest number of tuples that the function is ahead of the
        reader.

    Returns
    -------
    Reader

    Raises
    ------
    ArgumentTypeError
        `function` has other required parameters than ``start``.
    StateError, SlotCountError
        As for `py_array_reader`.

    Notes
    -----
    A daemon thread calls the function for the first time when a tuple is requested. A read raises an exception of
    the function itself, after the tuples before it. If the reader is reset or released before the end of a pass,
    the ``close`` method of the iterable is called at its next tuple.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfeed import from_generator
    >>> reader = from_generator(lambda: ((np.full(2, i),) for i in range(3)), [(2,)])
    >>> for epoch in range(2):
    ...     print([x.tolist() for x, in reader])
    [[0, 0], [1, 1], [2, 2]]
    [[0, 0], [1, 1], [2, 2]]
    """
    from ._producing import check_call, requires, start_passes  # not needed for a loop over files

    start = {"start": 0} if requires(function, "start") else {}
    check_call(function, "a function without arguments, or with the argument start", **start)
    name = unique_name._generate_process_wide("py_array_feed_queue") if name is None else name
    reader, queue = feed(
        capacity, shapes, place, dtypes, bytes_limit, lod_levels, names, as_dict, name, scope, restartable=True
    )
    start_passes(reader, queue, function)
    slots = {"shapes": shapes, "dtypes": dtypes, "lod_levels": lod_levels, "names": names, "as_dict": as_dict}
    reader._recipe = Recipe("from_generator", {**slots, "bytes_limit": bytes_limit}, function=function)
    return reader


def check_on_error(upstream: Reader, on_error: str) -> None:
    """Accept a value of `on_error` for a map above a reader."""
    if on_error not in ("raise", "skip"):
        _arguments.refuse("on_error", '"raise" or "skip"', on_error, InvalidArgument)
    if on_error == "skip" and "virtual_shards" in _details_of_division(upstream.stats()):
        raise InvalidArgument(
            'on_error: expected "raise" above a reader that was opened with a rank, found "skip": '
            "the processes would not have the same number of tuples"
        )


def _details_of_division(stats: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of the reader below that has divided records among processes; an empty mapping: none has."""
    if "virtual_shards" in stats.get("details", {}):
        details: Mapping[str, Any] = stats["details"]
        return details
    return next(filter(None, map(_details_of_division, stats.get("below", ()))), {})


def _division(stats: Mapping[str, Any]) -> tuple[int, int]:
    details = _details_of_division(stats)
    return details.get("rank", 0), details.get("world", 1)
