"""Writes handwritten digits to files, from which train.cpp learns without Python.

    pip install pyarrayfeed scikit-learn
    DIR=$(python -c 'import pyfeed; print(pyfeed.get_cmake_dir())')
    cmake -S examples/recognize_digits_files -B build/recognize_digits_files -Dpyfeed_DIR="$DIR"
    cmake --build build/recognize_digits_files
    python examples/recognize_digits_files/write_files.py digits
    build/recognize_digits_files/train digits

NumPy saves the arrays of scikit-learn, one row for each image. ``python -m pyfeed convert`` then converts the training
set to the form that a large data set would have: several files of records, shuffled once, compressed, and protected
by checksums. The test set stays an npz file.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def command(*words: object) -> None:
    """Print and run a ``python -m pyfeed`` command."""
    line = ["-m", "pyfeed", *map(str, words)]
    print("$", shlex.join(["python", *line]), flush=True)
    subprocess.run([sys.executable, *line], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    train_image, test_image, train_label, test_label = train_test_split(
        (digits.data / 16).astype(np.float32),
        digits.target.astype(np.int64),
        test_size=0.2,
        stratify=digits.target,
        random_state=0,
    )
    np.savez(folder / "train.npz", image=train_image, label=train_label)
    np.savez(folder / "test.npz", image=test_image, label=test_label)

    for old in folder.glob("train-*.recordio"):
        old.unlink()  # an earlier run may have written more files
    command(
        *("convert", folder / "train.npz"),
        *("-o", folder / "train.recordio", "--to-option", "compression=snappy"),
        *("--shard-records", 250, "--shuffle", 2000),
    )
    command("verify", folder / "train-*.recordio")


if __name__ == "__main__":
    main()
