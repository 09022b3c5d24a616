"""Pushes tuples from three threads and reads them. check.sh runs this with only the wheel and NumPy installed."""

import threading

import numpy as np

import pyfeed

ROWS, BATCHES, PRODUCERS = 16, 50, 3

reader, queue = pyfeed.py_array_reader(4, [(-1, 784), (-1,)], pyfeed.CPUPlace(), dtypes=["float32", "int64"])


def produce(worker: int) -> None:
    for i in range(BATCHES):
        number = worker * BATCHES + i
        queue.push((np.full((ROWS, 784), number, np.float32), np.full(ROWS, number)))


def close_after(producers: list[threading.Thread]) -> None:
    for producer in producers:
        producer.join()
    queue.close()


threads = [threading.Thread(target=produce, args=(worker,)) for worker in range(PRODUCERS)]
for thread in threads:
    thread.start()
threading.Thread(target=close_after, args=(threads,)).start()

seen = []
for image, label in reader:
    assert image.shape == (ROWS, 784), image.shape
    assert (image == label[0]).all(), label
    seen.append(int(label[0]))
assert sorted(seen) == list(range(PRODUCERS * BATCHES)), seen

image = label = None
assert pyfeed.diagnostics.memory_stats()["tuples_on_loan"] == 0, pyfeed.diagnostics.memory_stats()
print(f"pyfeed {pyfeed.__version__}: {len(seen)} tuples from {PRODUCERS} threads, each once")
