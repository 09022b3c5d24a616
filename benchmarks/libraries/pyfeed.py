"""pyfeed."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, NUMBERS, Arrays, Batches
from workloads.files import FEATURES, Batch, Files
from workloads.interruption import array, push_until_interrupted, slow, slow_item
from workloads.resume import Pipeline, Prepared, Records, Stateful
from workloads.training import AHEAD, BATCH, Image, Label, Passes, Training, endless, stacked


def batches_push(workload: Batches) -> Iterator[Arrays]:
    """``queue.produce``, or ``producer.push`` in processes. A batch is copied once, so producers reuse their arrays."""
    if workload.processes:
        return _from_processes(workload, _push_shared)
    reader, queue = _queue(workload)
    queue.produce(workload.reused_batches, num_threads=workload.producers)
    return iter(reader)


def batches_lent(workload: Batches) -> Iterator[Arrays]:
    """``push(arrays, copy=False)``: batches are lent, without a copy."""
    if workload.processes:
        raise NotSupported("a reference cannot be passed from one process to another")
    return _from_threads(workload, _push_lent)


def batches_slot(workload: Batches) -> Iterator[Arrays]:
    """``with queue.reserve() as arrays``: batches are written into the memory that the consumer reads."""
    if workload.sent:
        raise NotSupported("a batch must be made in the slot, so a finished batch cannot be sent without a copy")
    return _from_processes(workload, _fill_shared) if workload.processes else _from_threads(workload, _fill)


def _queue(workload: Batches) -> tuple[Any, Any]:
    import pyfeed

    return pyfeed.py_array_reader(MAX_IN_FLIGHT, [(workload.size,), (NUMBERS,)], dtypes=["uint8", "float64"])


def _from_threads(workload: Batches, produce: Any) -> Iterator[Arrays]:
    reader, queue = _queue(workload)
    for producer in range(workload.producers):
        threading.Thread(target=produce, args=(queue, workload, producer), daemon=True).start()
    return iter(reader)


def _push_lent(queue: Any, workload: Batches, producer: int) -> None:
    for arrays in workload.fresh_batches(producer):
        queue.push(arrays, copy=False)
        del arrays  # so that the next batch can reuse the memory


def _fill(queue: Any, workload: Batches, producer: int) -> None:
    for i in workload.numbers(producer):
        with queue.reserve() as arrays:
            workload.fill(arrays, i)
        del arrays  # so that the next batch can reuse the memory


def _from_processes(workload: Batches, target: Any) -> Iterator[Arrays]:
    import pyfeed

    queue = pyfeed.shared.SharedFeedQueue(
        [(workload.size,), (NUMBERS,)], dtypes=["uint8", "float64"], ring_cells=MAX_IN_FLIGHT
    )
    queue.start(target, (workload,), num_workers=workload.producers)
    return iter(queue)


def _push_shared(producer: Any, worker: int, workload: Batches) -> None:
    for arrays in workload.reused_batches(worker):
        producer.push(arrays)


def _fill_shared(producer: Any, worker: int, workload: Batches) -> None:
    for i in workload.numbers(worker):
        with producer.reserve() as arrays:
            workload.fill(arrays, i)


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    import pyfeed

    files = f"{folder}/tfrecord/*.tfrecord"
    reader = pyfeed.open_tfrecord(files, features={"x": {"dtype": "float32", "shape": [workload.floats]}})
    if shuffle:
        reader = reader.shuffle(workload.buffer, seed=1)
    return reader.batch(workload.batch), lambda batch: batch[0]


def interruption_pop() -> Callable[[], object]:
    _, queue = _queue_of_arrays()
    return queue.pop  # type: ignore[no-any-return]


def interruption_push() -> Callable[[], object]:
    _, queue = _queue_of_arrays()
    queue.push((array(),))
    return lambda: queue.push((array(),))


def interruption_lent_push() -> Callable[[], object]:
    _, queue = _queue_of_arrays()
    queue.push((array(),))
    return lambda: queue.push((array(),), copy=False)


def interruption_slot() -> Callable[[], object]:
    _, queue = _queue_of_arrays()
    queue.push((array(),))
    return lambda: queue.reserve().__enter__()


def interruption_wait_pass() -> Callable[[], object]:
    _, queue = _queue_of_arrays()
    return lambda: queue.wait_pass(0)


def interruption_batch() -> Callable[[], object]:
    reader, queue = _queue_of_arrays()
    queue.push((array(),))
    return reader.shuffle(4).batch(2).read  # type: ignore[no-any-return]


def interruption_double_buffer() -> Callable[[], object]:
    reader, _ = _queue_of_arrays()
    return reader.double_buffer().read  # type: ignore[no-any-return]


def interruption_generator() -> Callable[[], object]:
    import pyfeed

    reader = pyfeed.from_generator(lambda: ((x,) for x in slow()), [(32, 20)])
    return lambda: next(reader)


def interruption_map() -> Callable[[], object]:
    import pyfeed

    reader = pyfeed.random_data([(32, 20)], count=100).map(lambda x: slow_item(0), num_threads=2)
    return lambda: next(reader)


def interruption_files(fifo: str) -> Callable[[], object]:
    import pyfeed

    reader = pyfeed.open_tfrecord(fifo, features={"x": {"dtype": "float32", "shape": [20]}}).shuffle(100).batch(10)
    return lambda: next(reader)


def interruption_opening(fifo: str) -> Callable[[], object]:
    import pyfeed

    return lambda: pyfeed.open_tfrecord(fifo, features={"x": {"dtype": "float32", "shape": [20]}}).read()


def interruption_executor() -> Callable[[], object]:
    from pyfeed.program import Executor, Program, layers, program_guard

    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, _queue_kept = layers.py_array_reader(1, [(32, 20)], dtypes=["float32"])
        layers.read_file(reader)
    executor = Executor()
    executor.run(startup)
    return lambda: executor.run(main)


def interruption_workers(item: Any = slow_item) -> Callable[[], object]:
    queue, _ = _shared(_worker, item)
    return queue.pop  # type: ignore[no-any-return]


def interruption_workers_chain(item: Any = slow_item) -> Callable[[], object]:
    queue, _ = _shared(_worker, item)
    return queue.reader.shuffle(4).batch(2).double_buffer().read  # type: ignore[no-any-return]


def interruption_worker_push() -> Callable[[], object]:
    queue, processes = _shared(_pushing_worker)

    def join() -> None:
        processes[0].join()
        queue.close()

    return join


def _queue_of_arrays() -> tuple[Any, Any]:
    import pyfeed

    return pyfeed.py_array_reader(1, [(32, 20)], dtypes=["float32"])


def _shared(work: Callable[..., None], *args: Any) -> tuple[Any, Any]:
    import pyfeed

    queue = pyfeed.shared.SharedFeedQueue([(32, 20)], dtypes=["float32"])
    return queue, queue.start(work, args, num_workers=2)


def _worker(producer: Any, worker: int, item: Any) -> None:
    while True:
        producer.push((item(worker),))


def _pushing_worker(producer: Any, worker: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # by default, workers of `start` ignore SIGINT
    push_until_interrupted(lambda: producer.push((array(),)))


def files(
    workload: Files, double_buffer: int, ordered: bool = True, extra_threads: int = 0
) -> Callable[[], Iterator[Batch]]:
    """`open_files`, `Reader.shuffle`, `Reader.batch`, and `Reader.double_buffer`, which prefetches.

    Files with one instance each are shuffled as files, as ``docs/readers.md`` recommends.
    """
    import pyfeed

    if workload.content or workload.format in ("mds", "tokens"):
        return _tables(workload, double_buffer)
    options: dict[str, dict[str, Any]] = {
        "example": {"features": FEATURES},
        "npy": {"instances": "file"},
        "recordio": {"records": "bytes"},
        "raw": {"shapes": [workload.shape], "dtypes": [workload.dtype]},
        "csv": {"shapes": [workload.shape], "dtypes": [workload.dtype]},
    }
    files = options.get(workload.format, {}) | {"num_threads": workload.cores + extra_threads, "ordered": ordered}
    if workload.format == "npy":
        reader = pyfeed.open_files(workload.paths, shuffle_files=1, **files)
    else:
        reader = pyfeed.open_files(workload.paths, **files).shuffle(workload.block)
    reader = reader.batch(workload.batch)
    if double_buffer:
        reader = reader.double_buffer(depth=double_buffer)

    def begin() -> Iterator[Batch]:
        reader.reset()
        if workload.format in ("tfrecord", "recordio"):
            return ((records.data.reshape(-1, workload.size),) for (records,) in reader)
        if workload.format == "tar":
            return ((records.data.reshape(-1, workload.size), label) for records, label in reader)
        return iter(reader)

    return begin


def _tables(workload: Files, double_buffer: int) -> Callable[[], Iterator[Batch]]:
    """`open_parquet`, `open_arrow`, `open_jsonl`, `open_mds` or `open_tokens`, then as the other formats."""
    import pyfeed

    open_files = getattr(pyfeed, f"open_{workload.kind}", None)
    if open_files is None:
        raise NotSupported("this build of pyfeed has no reader for such files")
    reading = {"num_threads": workload.cores}
    if workload.format == "tokens":
        reader = open_files(workload.paths, workload.shape[0], **reading)
    elif workload.format == "mds":
        reader = open_files(os.path.dirname(workload.paths[0]), **reading)
    elif workload.content == "numbers":
        reader = open_files(workload.paths, **reading)
    else:
        fields = ["text", "label"] if workload.content == "text" else ["tokens"]
        reader = open_files(workload.paths, columns=fields, **reading)
    reader = reader.shuffle(workload.block).batch(workload.batch)
    if double_buffer:
        reader = reader.double_buffer(depth=double_buffer)

    def begin() -> Iterator[Batch]:
        reader.reset()
        if workload.format == "mds":
            return ((records.data.reshape(-1, workload.size), label) for records, label in reader)
        if workload.content in ("tokens", "text"):
            return ((first.data, first.lod[0], *others) for first, *others in reader)
        return iter(reader)

    return begin


def training_workers(workload: Training, workers: int) -> Passes:
    """A `SharedFeedQueue` with persistent workers, which write reserved tuples row by row."""
    queue = _ring(workload, AHEAD)
    queue.start(_train, (workload, workers), num_workers=workers, persistent=True)
    begun = False

    def one() -> Iterator[tuple[Image, Label]]:
        nonlocal begun
        if begun:
            queue.reopen()
        begun = True
        return iter(queue)

    return one


def _ring(workload: Training, slots: int) -> Any:
    import pyfeed

    return pyfeed.shared.SharedFeedQueue(
        [(BATCH, *workload.shape), (BATCH,)], dtypes=["float32", "int64"], ring_cells=slots
    )


def _train(producer: Any, worker: int, workload: Training, workers: int) -> None:
    for batch in range(worker, workload.steps, workers):
        with producer.reserve() as (images, labels):
            workload.fill(images, labels, batch)


def training_workers_endless(workload: Training, workers: int) -> Passes:
    """A `SharedFeedQueue` for each worker, read in turn. Each queue has one pass, which never ends."""
    queues = [_ring(workload, AHEAD // workers) for _ in range(workers)]
    for worker, queue in enumerate(queues):
        queue.start(_train_on, (workload, worker, workers))
    return lambda: (queues[batch % workers].pop() for batch in range(workload.steps))


def _train_on(producer: Any, _: int, workload: Training, worker: int, workers: int) -> None:
    for batch in itertools.cycle(range(workload.steps)):
        if batch % workers == worker:
            with producer.reserve() as (images, labels):
                workload.fill(images, labels, batch)


def training_map(workload: Training, threads: int) -> Passes:
    """Files, with `Reader.map` below `Reader.batch`, and `multi_pass`, which continues into the next pass."""
    import pyfeed

    reader = pyfeed.open_files(str(workload.path)).zip(pyfeed.open_files(str(workload.labels))).multi_pass(0)
    shapes, dtypes = [workload.shape, ()], ["float32", "int64"]
    reader = reader.map(workload.preprocessed, num_threads=threads, shapes=shapes, dtypes=dtypes).batch(BATCH)
    return endless(workload, iter(reader.double_buffer(depth=AHEAD)))


def training_map_batches(workload: Training, threads: int) -> Passes:
    """Files, with `Reader.map` above `Reader.batch`, which makes fewer calls."""
    import pyfeed

    reader = (
        pyfeed.open_files(str(workload.path)).zip(pyfeed.open_files(str(workload.labels))).multi_pass(0).batch(BATCH)
    )

    def preprocessed(stored: Any, indices: Label) -> tuple[Image, Label]:
        return stacked(list(map(workload.preprocessed, stored, indices)))

    shapes, dtypes = [(BATCH, *workload.shape), (BATCH,)], ["float32", "int64"]
    reader = reader.map(preprocessed, num_threads=threads, shapes=shapes, dtypes=dtypes, capacity=AHEAD)
    return endless(workload, iter(reader))


def resume(workload: Records) -> Prepared:
    """`open_files` of TFRecord, `Reader.shuffle`, `Reader.batch` and `Reader.double_buffer`; `Reader.state_dict`."""
    import pyfeed

    paths = workload.tfrecord()

    def make() -> Pipeline:
        reader = pyfeed.open_files(paths).shuffle(workload.buffer, seed=workload.seed)
        return _Resumable(reader.batch(workload.batch).double_buffer(), workload)

    return make


class _Resumable(Stateful):
    def __init__(self, reader: Any, workload: Records) -> None:
        super().__init__(reader, lambda batch: batch[0].data.reshape(-1, workload.size))
        self.take_text = reader._get_state  # the JSON text, which C and C++ get
