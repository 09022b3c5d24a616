"""TensorFlow: tf.data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness import NotSupported
from workloads.batches import MAX_IN_FLIGHT, NUMBERS, Arrays, Batches
from workloads.files import Batch, Files
from workloads.interruption import slow, slow_item
from workloads.resume import Pipeline, Prepared, Records, Rows
from workloads.training import BATCH, Passes, Training, endless


def batches(workload: Batches) -> Iterator[Arrays]:
    """Interleaved generators, one for each producer: https://www.tensorflow.org/guide/data_performance."""
    if workload.processes:
        raise NotSupported(
            "it runs Python generators only in the process that made the dataset, even with the tf.data service"
        )
    import tensorflow as tf

    signature = tf.TensorSpec((workload.size,), tf.uint8), tf.TensorSpec((NUMBERS,), tf.float64)

    def produced(producer: Any) -> Any:
        return tf.data.Dataset.from_generator(workload.fresh_batches, args=(producer,), output_signature=signature)

    made = tf.data.Dataset.range(workload.producers).interleave(
        produced, cycle_length=workload.producers, num_parallel_calls=workload.producers, deterministic=False
    )
    found: Iterator[Arrays] = made.prefetch(MAX_IN_FLIGHT).as_numpy_iterator()
    return found


def cold_start(folder: str, workload: Any, shuffle: bool) -> Any:
    """`TFRecordDataset`, parsed in batches: https://www.tensorflow.org/guide/data_performance#vectorizing_mapping."""
    import tensorflow as tf

    spec = {"x": tf.io.FixedLenFeature([workload.floats], tf.float32)}
    data = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{folder}/tfrecord/*.tfrecord"))
    if shuffle:
        data = data.shuffle(workload.buffer)
    data = data.batch(workload.batch).map(lambda x: tf.io.parse_example(x, spec), tf.data.AUTOTUNE)
    return data.prefetch(tf.data.AUTOTUNE), lambda batch: batch["x"].numpy()


def interruption_generator() -> Callable[[], object]:
    import tensorflow as tf

    iterator = iter(tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec((32, 20), tf.float32)))
    return lambda: next(iterator)


def interruption_map() -> Callable[[], object]:
    import tensorflow as tf

    data = tf.data.Dataset.range(1000).map(lambda i: tf.numpy_function(slow_item, [i], tf.float32), 2)
    iterator = iter(data.prefetch(2))
    return lambda: next(iterator)


def interruption_files(fifo: str) -> Callable[[], object]:
    import tensorflow as tf

    iterator = iter(tf.data.TFRecordDataset([fifo]).shuffle(100).batch(10))
    return lambda: next(iterator)


def files(workload: Files) -> Callable[[], Iterator[Batch]]:
    """tf.data: files are interleaved, shuffled, batched, parsed one batch at a time, and prefetched.

    https://www.tensorflow.org/guide/data_performance: parallel interleave, vectorized mapping, prefetch, AUTOTUNE, and
    non-deterministic order.
    """
    if workload.format in ("recordio", "tar"):
        raise NotSupported("it has no reader for such files")
    import tensorflow as tf

    auto = tf.data.AUTOTUNE
    paths = tf.data.Dataset.from_tensor_slices(list(workload.paths)).shuffle(len(workload.paths))
    spec = {"image": tf.io.FixedLenFeature([784], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}

    def read(path: Any) -> Any:
        if workload.format in ("tfrecord", "example"):
            return tf.data.TFRecordDataset(path, buffer_size=8 << 20)
        if workload.format == "csv":
            return tf.data.TextLineDataset(path, buffer_size=8 << 20).skip(1)
        return tf.data.FixedLengthRecordDataset(path, workload.size, header, buffer_size=8 << 20)

    def parse(batch: Any) -> tuple[Any, ...]:
        if workload.format == "example":
            parsed = tf.io.parse_example(batch, spec)
            return parsed["image"], parsed["label"]
        if workload.format == "csv":
            return (tf.stack(tf.io.decode_csv(batch, [0.0] * workload.shape[0]), axis=1),)
        return (tf.reshape(tf.io.decode_raw(batch, workload.dtype), (-1, *workload.shape)),)

    header = 128 if workload.format in ("npy", "rows") else 0  # the header that np.save writes
    if workload.format == "npy":
        data = tf.data.FixedLengthRecordDataset(paths, workload.size, header, buffer_size=workload.size + header)
    elif len(workload.paths) == 1:
        data = read(workload.paths[0])
    else:
        data = paths.interleave(read, cycle_length=len(workload.paths), num_parallel_calls=auto, deterministic=False)
    data = data.shuffle(workload.block).batch(workload.batch)
    data = data.map(parse, num_parallel_calls=auto, deterministic=False).prefetch(auto)
    options = tf.data.Options()
    options.threading.private_threadpool_size = workload.cores
    data = data.with_options(options)
    return lambda: iter(data.as_numpy_iterator())


def training(workload: Training, parallel: int | None) -> Passes:
    """Dataset.map of a numpy_function, batched and prefetched: https://www.tensorflow.org/guide/data_performance.

    Parameters
    ----------
    workload : Training
    parallel : int or None
        The number of parallel calls; None: AUTOTUNE.
    """
    import tensorflow as tf

    def instance(index: Any) -> tuple[Any, Any]:
        image, label = tf.numpy_function(workload.instance, [index], (tf.float32, tf.int64))
        return tf.ensure_shape(image, workload.shape), tf.ensure_shape(label, ())

    calls = parallel or tf.data.AUTOTUNE
    made = tf.data.Dataset.range(workload.count).repeat().map(instance, num_parallel_calls=calls)
    batches = made.batch(BATCH, drop_remainder=True, num_parallel_calls=tf.data.AUTOTUNE)
    return endless(workload, batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator())


def resume(workload: Records) -> Prepared:
    """`tf.train.Checkpoint` of the iterator: https://www.tensorflow.org/guide/data#iterator_checkpointing.

    With `experimental_symbolic_checkpoint`, the checkpoint was as large, and took three times as long to restore.
    """
    import tensorflow as tf

    paths = workload.tfrecord()
    tf.constant(0)  # starts the runtime

    def parse(batch: Any) -> Any:
        return tf.ensure_shape(tf.io.decode_raw(batch, tf.uint8, fixed_length=workload.size), (None, workload.size))

    def make() -> Pipeline:
        data = tf.data.TFRecordDataset(paths, buffer_size=8 << 20).shuffle(workload.buffer, seed=workload.seed)
        data = data.batch(workload.batch).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        return _Resumable(iter(data), workload)

    return make


class _Resumable:
    def __init__(self, iterator: Any, workload: Records) -> None:
        import tensorflow as tf

        self._iterator = iterator
        self._checkpoint = tf.train.Checkpoint(iterator=iterator)
        self._path = workload.state

    def next_batch(self) -> Rows:
        rows: Rows = next(self._iterator).numpy()
        return rows

    def take(self) -> None:
        self._checkpoint.write(self._path)

    def load(self, state: None) -> None:
        self._checkpoint.read(self._path).assert_consumed()
