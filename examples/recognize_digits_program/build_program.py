"""Builds two programs that train a small network; train.cpp runs them without Python.

    pip install pyarrayfeed scikit-learn
    DIR=$(python -c 'import pyfeed; print(pyfeed.get_cmake_dir())')
    cmake -S examples/recognize_digits_program -B build/recognize_digits_program -Dpyfeed_DIR="$DIR"
    cmake --build build/recognize_digits_program
    python examples/recognize_digits_files/write_files.py digits
    python examples/recognize_digits_program/build_program.py digits
    build/recognize_digits_program/train digits

The script writes two programs into the folder. startup.pb makes the readers and the parameters, and runs once. main.pb
is the training loop. Beside each program the script writes a JSON form for reading and a Mermaid diagram. The programs
contain the paths of the files as they are given here.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from pyfeed.program import Program, Variable, default_startup_program, layers, program_guard

SIZES = {"lower_weight": 64 * 128, "lower_bias": 128, "upper_weight": 128 * 10, "upper_bias": 10}


def training(folder: Path, passes: int, seed: int) -> None:
    """Add the operators that train for a number of passes over the files, and then test."""
    files = layers.open_files(folder / "train-*.recordio")
    batches = layers.double_buffer(layers.batch(layers.shuffle(files, 1000, seed), 32))
    test_set = layers.batch(layers.open_files(folder / "test.npz"), 1 << 20)  # the whole set in one batch
    values, state = parameters(seed)
    loss = layers.create_global_var([], math.log(10), "float32", "loss")  # the loss of random guesses

    pass_count = layers.fill_constant([], "int64", 0, out="pass")
    required = layers.fill_constant([], "int64", passes, out="passes")
    next_report = layers.fill_constant([], "int64", 10, out="next_report")
    not_completed = layers.less_than(pass_count, required, cond="not_completed")
    with layers.While(not_completed).block():
        branch = layers.IfElse(layers.has_next(batches))
        with branch.true_block():
            image, label = layers.read_file(batches, ["image", "label"])
            rates = {"rate": 0.01, "decay": 0.002}
            layers.call("digits_learn", [image, label, loss, *state], [loss, *state], rates)
        with branch.false_block():
            layers.reset(batches)
            layers.increment(pass_count)
            layers.less_than(pass_count, required, cond=not_completed)
            with layers.IfElse(layers.equal(pass_count, next_report)).true_block():
                layers.Print([pass_count, loss])
                layers.increment(next_report, 10)

    image, label = layers.read_file(test_set, ["image", "label"])
    layers.call("digits_accuracy", [image, label, *values], "accuracy")


def parameters(seed: int) -> tuple[list[Variable], list[Variable]]:
    """Declare the parameters.

    Returns
    -------
    values : list of Variable
        The parameters themselves.
    state : list of Variable
        Everything that training updates: each parameter with its two moments (Adam), and the number of steps.
    """
    values, state = [], []
    for name, size in SIZES.items():
        values.append(layers.variable(name, [size], "float32", persistable=True))
        moments = [layers.variable(f"{name}.{m}", [size], "float32", persistable=True) for m in ("mean", "square")]
        state += [values[-1], *moments]
    state.append(layers.variable("steps", [], "int64", persistable=True))
    with program_guard(default_startup_program()):
        layers.call("digits_init", (), state, {"seed": seed})
    return values, state


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="that write_files.py has filled")
    parser.add_argument("--passes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    loop, startup = Program(), Program()
    with program_guard(loop, startup):
        training(args.folder, args.passes, args.seed)
    for name, program in (("startup", startup), ("main", loop)):
        program.save(args.folder / f"{name}.pb")
        program.save(args.folder / f"{name}.json")
        (args.folder / f"{name}.mermaid").write_text(program.to_mermaid())
        print(f"{args.folder / name}.pb: {program!r}")


if __name__ == "__main__":
    main()
