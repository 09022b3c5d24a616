"""The three example programs from the data feeding design of PaddlePaddle Fluid. listings.cpp has them in C++.

    python examples/recognize_digits_files/write_files.py digits
    python examples/listings/listings.py has_next_reset digits batches

Each program reads the training set twice and writes every batch to a file: the number of images, the images and the
labels. All programs write the same file. A process runs only one of them, since it has one staging buffer for each
place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyfeed.program import Executor, Program, layers, program_guard
from pyfeed.program.kernels import kernel

import pyfeed

PASSES = 2


def has_next_reset(files: str) -> None:
    """Run a loop that detects the end of each pass with has_next, and counts the passes itself."""
    startup_program, main_program = Program(), Program()
    with program_guard(main_program, startup_program):
        multiple_reader = layers.open_files(files)
        batch_reader = layers.batch(multiple_reader, 32)
        double_buffer_reader = layers.double_buffer(batch_reader)

        required_pass_num = layers.fill_constant([], "int64", PASSES)
        not_completed = layers.fill_constant([], "bool", True)
        pass_count = layers.fill_constant([], "int64", 0)
        with layers.While(not_completed).block():
            has_next = layers.has_next(double_buffer_reader)
            branch = layers.IfElse(has_next)
            with branch.true_block():
                batch_data = layers.read_file(double_buffer_reader)
                layers.call("train", batch_data)
            with branch.false_block():
                layers.reset(double_buffer_reader)
                layers.increment(pass_count)
                layers.less_than(pass_count, required_pass_num, cond=not_completed)

    executor = Executor()
    executor.run(startup_program)
    executor.run(main_program)


def multi_pass(files: str) -> None:
    """Run a loop over a multi_pass reader, which begins the next pass itself."""
    startup_program, main_program = Program(), Program()
    with program_guard(main_program, startup_program):
        multiple_reader = layers.open_files(files)
        batch_reader = layers.batch(multiple_reader, 32)
        multi_pass_reader = layers.multi_pass(batch_reader, PASSES)
        double_buffer_reader = layers.double_buffer(multi_pass_reader)

        not_completed = layers.fill_constant([], "bool", True)
        with layers.While(not_completed).block():
            batch_data = layers.read_file(double_buffer_reader)
            layers.call("train", batch_data)
            layers.has_next(double_buffer_reader, out=not_completed)

    executor = Executor()
    executor.run(startup_program)
    executor.run(main_program)


def staging(files: str) -> None:
    """Feed and stage batches: two batches are in the staging buffer while one is used for training."""
    buffer_size = 2

    main_program = Program()
    with program_guard(main_program):
        image = layers.data("image", [64], "float32")
        label = layers.data("label", [-1], "int64")

        # One more than the warm-up stages, since the main program stages a batch before it takes one out.
        stage = layers.staging([image, label], capacity=buffer_size + 1)
        stage_program = main_program.clone()

        image, label = layers.unstaging(stage)
        layers.call("train", [image, label])

    executor = Executor()
    train_reader = pyfeed.open_files(files).batch(32)

    def feed(batch: Any) -> dict[str, Any]:
        return dict(zip(("image", "label"), batch, strict=True))

    # Warm-up: fills the staging buffer. The first pass below continues with the next batch.
    for _ in range(buffer_size):
        executor.run(stage_program, feed=feed(train_reader.read()))

    for _ in range(PASSES):
        for batch in train_reader:
            executor.run(main_program, feed=feed(batch))

    for _ in range(buffer_size):  # take out the last staged batches
        executor.run(main_program)


LISTINGS: dict[str, Callable[[str], None]] = {f.__name__: f for f in (has_next_reset, multi_pass, staging)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("listing", choices=LISTINGS)
    parser.add_argument("folder", type=Path, help="that write_files.py has filled")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()

    with args.out.open("wb") as out:

        @kernel
        def train(image: Any, label: Any) -> None:
            for part in np.int64(len(label)), image, label:
                out.write(part.tobytes())

        LISTINGS[args.listing](str(args.folder / "train-*.recordio"))


if __name__ == "__main__":
    main()
