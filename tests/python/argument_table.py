"""Tables of all public functions and methods: their arguments, and the kinds of values that an argument accepts."""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyfeed
from pyfeed import _options

from .public_modules import PUBLIC_MODULES, WITH_PREFIX

ADVERSARIAL: dict[str, Any] = {
    "none": None,
    "object": object(),
    "bytes": b"x",
    "str": "no such thing",
    "list": [object()],
    "dict": {1: object()},
    "fraction": 2.5,
    "nan": math.nan,
    "negative": -3,
    "huge": 10**30,
    "true": True,
}

# The functions and their arguments. New functions and arguments must be added to this table and to the next.
ROWS = """
CPUPlace
CUDAPinnedPlace
CUDAPlace device
CancelToken
CancelToken.cancel
cuda.DeviceArray.numpy
cuda.DeviceArray.release stream
cuda.DeviceArray.synchronize timeout
cuda.DeviceArray.use stream
Executor place
Executor.run program scope feed fetch timeout cancel
Kernel.close
LoDTensor data lod
LoDTensor.bytes_list
LoDTensor.from_bytes items
LoDTensor.from_lengths data lengths
LoDTensor.from_sequences sequences
LoDTensor.merge tensors
LoDTensor.recursive_sequence_lengths
LoDTensor.sequences
LoDTensor.split num_parts
Program
Program.clone
Program.from_bytes data
Program.from_json text
Program.load path
Program.save path
Program.to_bytes
Program.to_graphviz
Program.to_json
Program.to_mermaid
Program.variable name
PyArrayFeedQueue.capacity
PyArrayFeedQueue.close pass_id
PyArrayFeedQueue.fail exception pass_id
PyArrayFeedQueue.is_empty
PyArrayFeedQueue.is_full
PyArrayFeedQueue.pop timeout
PyArrayFeedQueue.expect num_producers
PyArrayFeedQueue.produce function num_threads
PyArrayFeedQueue.producer
PyArrayFeedQueue.push arrays copy timeout pass_id
PyArrayFeedQueue.reopen
PyArrayFeedQueue.shutdown
PyArrayFeedQueue.size
PyArrayFeedQueue.reserve rows shapes lod timeout pass_id
PyArrayFeedQueue.stats
PyArrayFeedQueue.wait_pass after timeout
PyArrayFeedQueueHolder scope name
PyArrayFeedQueueHolder.feeder
PyArrayFeedQueueHolder.init_once capacity shapes place dtypes bytes_limit lod_levels names as_dict restartable
Reader.batch batch_size drop_last ragged
Reader.close
Reader.current_pass
Reader.double_buffer place depth
Reader.feeder
Reader.get_state
Reader.has_next timeout
Reader.in_variable scope name as_dict
Reader.load_state_dict state strict
Reader.map function num_threads shapes dtypes lod_levels names num_workers method cell_bytes
    as_dict capacity ordered with_position rng seed on_error
Reader.multi_pass pass_num
Reader.preview count
Reader.read timeout
Reader.reset
Reader.set_state state strict
Reader.shard rank world even
Reader.shuffle buffer_size seed
Reader.split_batches rank world even
Reader.state_dict
Reader.stats
Reader.zip others strict
Scope parent
Scope.create_batch_reader out reader batch_size drop_last ragged
Scope.create_py_array_reader out feeder_name
Scope.erase name
Scope.get_tensor name
Scope.kind name
Scope.read reader outs timeout
Scope.set_tensor name array
Scope.var name
ScopeVariable scope name
ScopeVariable.get_tensor
ScopeVariable.set_tensor array
SharedFeedQueue shapes place dtypes ring_cells cell_bytes lod_levels names as_dict name scope
SharedFeedQueue.capacity
SharedFeedQueue.close pass_id
SharedFeedQueue.report_exit pid exit_status
SharedFeedQueue.expect num_workers
SharedFeedQueue.fail exception pass_id
SharedFeedQueue.is_empty
SharedFeedQueue.is_full
SharedFeedQueue.pop timeout
SharedFeedQueue.producer
SharedFeedQueue.push arrays copy timeout pass_id
SharedFeedQueue.reopen
SharedFeedQueue.shutdown
SharedFeedQueue.size
SharedFeedQueue.reserve rows shapes lod timeout pass_id
SharedFeedQueue.start target args num_workers method daemon persistent
SharedFeedQueue.stats
SharedFeedQueue.wait_pass after timeout
StagingBuffer.bytes_limit
StagingBuffer.capacity
StagingBuffer.clear
StagingBuffer.get timeout
StagingBuffer.put arrays timeout
StagingBuffer.size
StagingBuffer.stats
Trace.chrome
Trace.plot ax
Trace.stop
Trace.table
Writer.abort
Writer.close
Writer.write arrays
default_main_program
default_startup_program
list_formats
from_dataset dataset batch_size shuffle sampler drop_last collate_fn shapes dtypes names as_dict num_threads num_workers
    method cell_bytes capacity rank world virtual_shards even on_error scope
from_generator function shapes place dtypes capacity bytes_limit lod_levels names as_dict name scope
get_buffer place capacity bytes_limit
get_cmake_dir
get_include
get_library_dir
global_scope
kernel function
list_kernels
list_files filenames format
load_kernels path
memory_stats
open_arrow filenames columns default num_threads ordered interleave shuffle_files shuffle_records rank world
    virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes
    lod_levels names
open_csv filenames delimiter quote comment header columns column_dtypes missing num_threads ordered interleave
    shuffle_files shuffle_records rank world virtual_shards even index index_dir on_corrupt verify_first compression io
    as_dict name scope shapes dtypes lod_levels names
open_files filenames format shapes dtypes lod_levels names num_threads ordered interleave shuffle_files shuffle_records
    rank world virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name scope
    options
open_idx filenames num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards even index
    index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_jsonl filenames columns default column_dtypes num_threads ordered interleave shuffle_files shuffle_records rank
    world virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes
    lod_levels names
open_mds filenames columns num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards even
    index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_npy filenames instances num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards even
    index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_npz filenames arrays instances num_threads ordered interleave shuffle_files shuffle_records rank world
    virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes
    lod_levels names
open_parquet filenames columns default where num_threads ordered interleave shuffle_files shuffle_records rank world
    virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes
    lod_levels names
open_raw filenames shapes dtypes names byte_order header_bytes num_threads ordered interleave shuffle_files
    shuffle_records rank world virtual_shards even index index_dir on_corrupt verify_first compression io as_dict name
    scope
open_recordio filenames records num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards
    even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_tar filenames fields end num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards
    even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_tfrecord filenames features num_threads ordered interleave shuffle_files shuffle_records rank world virtual_shards
    even index index_dir on_corrupt verify_first compression io as_dict name scope shapes dtypes lod_levels names
open_tokens filenames length stride targets documents last dtype output_dtype layout num_threads ordered interleave
    shuffle_files shuffle_records rank world virtual_shards even index index_dir on_corrupt verify_first compression io
    as_dict name scope
open_writer filename format shapes dtypes lod_levels names options
program_guard main startup
py_array_reader capacity shapes place dtypes bytes_limit lod_levels names as_dict name scope
random_data shapes dtypes low high seed count names as_dict name scope
register_format tag suffixes shapes dtypes lod_levels names
register_kernel name function
trace file max_events
layers.IfElse cond
layers.IfElse.false_block
layers.IfElse.true_block
layers.Print input message summarize first_n
layers.While cond
layers.While.block
layers.assign x out
layers.batch reader batch_size drop_last ragged
layers.call kernel inputs outputs attributes
layers.create_global_var shape value dtype name
layers.data name shape dtype lod_level append_batch_size
layers.double_buffer reader place depth
layers.equal x y cond
layers.fill_constant shape dtype value out
layers.greater_equal x y cond
layers.greater_than x y cond
layers.has_next reader out
layers.increment x step in_place
layers.less_equal x y cond
layers.less_than x y cond
layers.load_reader state reader strict
layers.logical_and x y out
layers.logical_not x out
layers.logical_or x y out
layers.multi_pass reader pass_num
layers.not_equal x y cond
layers.open_files filenames format shapes dtypes lod_levels names num_threads ordered interleave shuffle_files
    shuffle_records rank world virtual_shards even index index_dir on_corrupt verify_first compression io options
layers.py_array_reader capacity shapes place dtypes bytes_limit lod_levels names name scope
layers.random_data shapes dtypes low high seed count names
layers.read_file reader names
layers.reset reader
layers.save_reader reader out
layers.shard reader rank world even
layers.shuffle reader buffer_size seed
layers.split_batches reader rank world even
layers.staging input capacity bytes_limit
layers.unstaging stage
layers.variable name shape dtype lod_level persistable
layers.zip readers strict
cuda.available
cuda.reason
cuda.device_count
cuda.memory_info device
cuda.device_name device
unique_name.generate key
unique_name.guard
"""

# The kinds of ADVERSARIAL that an argument accepts. The key is the name of the argument, or function.argument if the
# function is an exception.
MAY_BE_TABLE = """
batch_size buffer_size bytes_limit capacity depth device first_n header_bytes interleave lod_level max_events:
num_parts num_producers num_threads num_workers pass_num pid rank ring_cells seed summarize world:
count after shuffle_files shuffle_records virtual_shards cell_bytes rows pass_id map.capacity: none
preview.count:
shuffle from_dataset.batch_size from_dataset.capacity from_dataset.rank from_dataset.world: none
open_files.rank open_arrow.rank open_csv.rank open_idx.rank open_jsonl.rank open_mds.rank open_npy.rank: none
open_npz.rank open_parquet.rank open_raw.rank open_recordio.rank open_tar.rank open_tfrecord.rank: none
open_tokens.rank: none
open_files.world open_arrow.world open_csv.world open_idx.world open_jsonl.world open_mds.world: none
open_npy.world open_npz.world open_parquet.world open_raw.world open_recordio.world open_tar.world: none
open_tfrecord.world open_tokens.world: none
length stride: none
exit_status: negative
timeout: none fraction huge
low high: fraction negative huge
step value: fraction nan negative huge true

append_batch_size as_dict copy daemon drop_last in_place index ordered persistable persistent ragged restartable: true
strict targets: true
rng verify_first with_position: true
map.as_dict: none true
header: none true

byte_order compression delimiter end documents feeder_name filename filenames instances io key message name: str
last layout: str
on_corrupt on_error out path records tag text even: str
shard.even from_dataset.even: none str
open_files.even open_arrow.even open_csv.even open_idx.even open_jsonl.even open_mds.even open_npy.even: none str
open_npz.even open_parquet.even open_raw.even open_recordio.even open_tar.even open_tfrecord.even: none str
open_tokens.even: none str
comment format index_dir quote trace.file: none str
open_files.name open_arrow.name open_csv.name open_idx.name open_jsonl.name open_mds.name open_npy.name: none str
open_npz.name open_parquet.name open_raw.name open_recordio.name open_tar.name open_tfrecord.name: none str
open_tokens.name random_data.name py_array_reader.name from_generator.name SharedFeedQueue.name: none str
create_global_var.name PyArrayFeedQueueHolder.name: none str
names open_npz.arrays ax: none
method outs suffixes:
missing default: none str fraction nan negative huge

dims lengths sequences shape tensors:
dtype dtypes lod lod_levels output_dtype shapes variable.shape: none
open_raw.shapes open_raw.dtypes random_data.shapes py_array_reader.shapes from_generator.shapes SharedFeedQueue.shapes:
init_once.shapes:
column_dtypes columns features fields where: none

args arrays: list
array: bytes str fraction nan negative huge true
load_state_dict.state set_state.state:
items: bytes str
dataset: list
from_bytes.data: bytes
exception function main others target:
collate_fn from_dataset.scope: none
sampler: none list
kernel.function: str
cancel feed parent place program scope startup stream: none
get_buffer.place in_variable.scope PyArrayFeedQueueHolder.scope ScopeVariable.scope use.stream:

cond fetch input inputs kernel outputs reader readers stage state x y: str
assign.out fill_constant.out has_next.out logical_and.out logical_or.out logical_not.out read_file.names: none str
save_reader.out: none str
less_than.cond less_equal.cond greater_than.cond greater_equal.cond equal.cond not_equal.cond: none str
attributes: none
"""
MAY_BE: dict[str, set[str]] = {}
for line in filter(None, MAY_BE_TABLE.splitlines()):
    arguments, _, kinds = line.partition(":")
    for argument in arguments.split():
        MAY_BE[argument] = set(kinds.split())
# Arguments that are checked only when they are used: by a format, or when a tensor is pushed.
ANYTHING = {"open_files.options", "open_writer.options", "LoDTensor.data", "from_lengths.data"}
# Classes whose objects only functions create.
NOT_CALLED = {
    "DeviceArray",
    "Kernel",
    "Preview",
    "PyArrayFeedQueue",
    "Reader",
    "StagingBuffer",
    "Trace",
    "Writer",
    "Variable",
}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function, constructor and method, with its name."""
    for module in PUBLIC_MODULES:
        prefix = WITH_PREFIX.get(module, "")
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type):
                yield from members(f"{prefix}{name}", value)
            elif callable(value) and name != "Shape":  # Shape is an alias of a type
                yield f"{prefix}{name}", value


def members(name: str, kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the constructor and the methods of a class, except for exceptions, tuples, dicts and protocols."""
    if issubclass(kind, (BaseException, tuple, dict)) or getattr(kind, "_is_protocol", False):
        return
    if kind.__name__ not in NOT_CALLED:
        yield name, kind
    for method in sorted({n for base in kind.__mro__ for n in vars(base) if not n.startswith("_")}):
        value = inspect.getattr_static(kind, method)
        if isinstance(value, (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType)):
            yield f"{name}.{method}", getattr(kind, method)


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function without self and cls, but with the keywords that it passes on."""
    every = {n: p for n, p in inspect.signature(function).parameters.items() if n not in ("self", "cls")}
    handed_on = every.pop("reading", None)
    if handed_on is not None:
        with_slots = "ReadOptionsWithSlots" in handed_on.annotation
        kind = _options.ReadOptionsWithSlots if with_slots else _options.ReadOptions
        for name in kind.__annotations__:
            every[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
    return every


def rows() -> dict[str, str]:
    """Return the rows of `ROWS` by function."""
    joined = ROWS.strip().replace("\n    ", " ")
    return dict(row.partition(" ")[::2] for row in joined.splitlines())


def may_be(function: str, argument: str) -> set[str]:
    """Return the kinds of `ADVERSARIAL` that an argument accepts."""
    own = f"{function.rpartition('.')[2]}.{argument}"
    return set(ADVERSARIAL) if own in ANYTHING else MAY_BE[own if own in MAY_BE else argument]


def refused(what: str, call: Callable[[], Any], *words: str) -> str:
    """Return a description of the failure if a call is not refused by an error with these words, or ""."""
    try:
        result = call()
    except BaseException as error:
        text = str(error)
        if isinstance(error, pyfeed.errors.Error) and all(
            re.search(rf"\b{w}\b", text, re.IGNORECASE) for w in (*words, "expected", "found")
        ):
            return ""
        return f"{what}: {type(error).__name__}: {text}"
    return f"{what}: expected an error, found the result {result!r}"


def faults(name: str, function: Callable[..., Any], right: Mapping[str, Any]) -> Iterator[str]:
    """Call a function with wrong arguments; for each call yield a description of the failure, or "" if it is refused.

    `right` has valid values of the required arguments.
    """
    every = parameters(function)
    by_position = [n for n, p in every.items() if p.kind is p.POSITIONAL_ONLY]
    required = {
        n: right[n]
        for n, p in every.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }

    def call(**given: Any) -> Any:
        first = [given.pop(n) for n in by_position if n in given]
        return function(*first, **given)

    for argument, parameter in every.items():
        for kind in ADVERSARIAL.keys() - may_be(name, argument):
            wrong = partial(call, **{**required, argument: ADVERSARIAL[kind]})
            if parameter.kind is parameter.VAR_POSITIONAL:
                wrong = partial(function, *required.values(), ADVERSARIAL[kind])
            yield refused(f"{name}({argument}={kind})", wrong, argument)
    own = name.rpartition(".")[2]
    kinds = {p.kind for p in every.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for unknown in ("no_such_keyword", "self"):
            yield refused(f"{name}({unknown}=1)", partial(call, **{**required, unknown: 1}), unknown, own)
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield refused(f"{name}(too many)", partial(function, *[1] * (len(every) + 1)), own)
    for missing in [n for n in required if n not in by_position[:-1]]:
        others = {n: v for n, v in required.items() if n != missing}
        yield refused(f"{name}(without {missing})", partial(call, **others), missing, own)
