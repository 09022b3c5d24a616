"""The functions that create readers have the parameters in readers/ops/operators.json, made from the operators."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyfeed
from pyfeed import Reader, layers

OPERATORS = {
    each["name"]: each
    for each in json.loads((Path(__file__).parents[2] / "readers/ops/operators.json").read_text("utf-8"))
}

# The parameters that stand for an attribute, if they have other names than the attribute.
STANDS_FOR = {
    "slots": {"shapes", "dtypes", "lod_levels", "names"},
    "slots of create_random_data_generator": {"shapes", "dtypes", "names"},  # random data has no LoD
    "storage": {"compression", "io"},
    "count": {"dataset"},
    "count of create_random_data_generator": {"count"},
    "feeder_name": {"capacity", "shapes", "place", "dtypes", "bytes_limit", "lod_levels", "names"},  # of the queue
}

# The defaults in Python that differ from those in the JSON file.
DEFAULTS: dict[tuple[str, str], Any] = {
    ("create_double_buffer_reader", "place"): None,
    ("create_random_data_generator", "count"): None,
    ("create_map_reader", "seed"): 0,  # None without rng
    ("create_map_reader", "capacity"): None,  # chosen from the number of threads
    ("open_files", "format"): None,
    ("open_files", "index_dir"): None,
    ("open_files", "rank"): None,  # without a rank, records are not divided
    ("open_files", "world"): None,
    ("open_files", "virtual_shards"): None,
    ("open_files", "even"): None,
    ("create_range_reader", "rank"): None,
    ("create_range_reader", "world"): None,
    ("create_range_reader", "virtual_shards"): None,
    ("create_range_reader", "even"): None,
    ("create_shard_reader", "even"): None,  # ""
    ("create_shard_reader", "world"): None,  # with rank="auto"
    ("create_split_batches_reader", "world"): None,
}

# Parameters that are not attributes: the readers below, and the name and the scope of the new reader.
OTHERS = {"self", "reader", "readers", "others", "as_dict", "name", "scope"}
OTHERS_OF = {
    "create_py_array_reader": {"no_order"},  # set by pyfeed.ray.from_dataset
    "create_map_reader": {
        *("function", "num_threads", "num_workers", "method", "cell_bytes", "with_position", "rng", "on_error")
    },
    "create_range_reader": {  # the samples for the numbers, their batches, and who reads them
        *("batch_size", "sampler", "drop_last", "collate_fn", "shapes", "dtypes", "names"),
        *("num_threads", "num_workers", "method", "cell_bytes", "capacity", "on_error"),
    },
}

FUNCTIONS: list[tuple[str, Callable[..., Any]]] = [
    ("open_files", pyfeed.open_files),
    ("open_files", layers.open_files),
    ("create_random_data_generator", pyfeed.random_data),
    ("create_random_data_generator", layers.random_data),
    ("create_range_reader", pyfeed.from_dataset),
    ("create_py_array_reader", layers.py_array_reader),
    ("create_batch_reader", Reader.batch),
    ("create_batch_reader", layers.batch),
    ("create_shuffle_reader", Reader.shuffle),
    ("create_shuffle_reader", layers.shuffle),
    ("create_multi_pass_reader", Reader.multi_pass),
    ("create_multi_pass_reader", layers.multi_pass),
    ("create_double_buffer_reader", Reader.double_buffer),
    ("create_double_buffer_reader", layers.double_buffer),
    ("create_shard_reader", Reader.shard),
    ("create_shard_reader", layers.shard),
    ("create_split_batches_reader", Reader.split_batches),
    ("create_split_batches_reader", layers.split_batches),
    ("create_zip_reader", Reader.zip),
    ("create_zip_reader", layers.zip),
    ("create_map_reader", Reader.map),
]


def label(value: object) -> str:
    return getattr(value, "__qualname__", str(value))


@pytest.mark.parametrize(("operator", "function"), FUNCTIONS, ids=label)
def test_parameters_are_the_attributes(operator: str, function: Callable[..., Any]) -> None:
    attributes = {each["name"]: each for each in OPERATORS[operator]["attributes"]}
    expected = set[str]()
    for name in attributes:
        expected |= STANDS_FOR.get(f"{name} of {operator}") or STANDS_FOR.get(name) or {name}
    parameters = inspect.signature(function).parameters
    others = OTHERS | OTHERS_OF.get(operator, set())
    assert set(parameters) - others == expected - others
    for name in set(attributes) & set(parameters):
        default, attribute = parameters[name].default, attributes[name]
        if default is inspect.Parameter.empty:
            continue  # a required parameter, or a variable number of parameters
        key = operator, name
        assert default == (DEFAULTS[key] if key in DEFAULTS else attribute["default"]), name


def test_all_operators_have_functions() -> None:
    made_by_arguments = {"create_file_reader"}  # open_files(num_threads=0) creates it
    assert {operator for operator, _ in FUNCTIONS} == set(OPERATORS) - made_by_arguments
