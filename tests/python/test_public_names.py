"""The names in the package's public modules."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import pyfeed
from pyfeed import errors

from .public_modules import FRAMEWORK_MODULES, PUBLIC_MODULES
from .support import Process

ROOT_NAMES = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Executor",
    "LoDTensor",
    "Program",
    "PyArrayFeedQueue",
    "PyArrayFeedQueueHolder",
    "Reader",
    "Scope",
    "__version__",
    "cuda",
    "default_main_program",
    "diagnostics",
    "errors",
    "formats",
    "from_dataset",
    "from_generator",
    "get_cmake_dir",
    "get_include",
    "get_library_dir",
    "global_scope",
    "layers",
    "list_files",
    "program",
    "py_array_reader",
    "random_data",
    "shared",
    "staging",
    "typing",
    "unique_name",
    "open_arrow",
    "open_csv",
    "open_files",
    "open_idx",
    "open_jsonl",
    "open_mds",
    "open_npy",
    "open_npz",
    "open_parquet",
    "open_raw",
    "open_recordio",
    "open_tar",
    "open_tfrecord",
    "open_tokens",
    "open_writer",
]


def test_the_root_has_these_names_only() -> None:
    assert pyfeed.__all__ == sorted(ROOT_NAMES) == dir(pyfeed)
    assert len([name for name in pyfeed.__all__ if not name.startswith(("open_", "__"))]) <= 30
    for name in ROOT_NAMES:
        assert getattr(pyfeed, name) is not None


def test_modules_without_an_underscore_are_public() -> None:
    found = {pyfeed.__name__}
    for module in pkgutil.walk_packages(pyfeed.__path__, "pyfeed."):
        if not module.name.rpartition(".")[2].startswith("_"):
            found.add(module.name)
    assert found == {module.__name__ for module in PUBLIC_MODULES} | FRAMEWORK_MODULES.keys()


@pytest.mark.parametrize("module", FRAMEWORK_MODULES)
def test_a_module_for_a_framework_has_these_names_only(module: str) -> None:
    """This environment has no framework, so the test reads the source."""
    tree = ast.parse((Path(str(pyfeed.__file__)).parent / f"{module.partition('.')[2]}.py").read_text())
    (names,) = [ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and "__all__" in ast.dump(n)]
    assert tuple(names) == FRAMEWORK_MODULES[module]
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {name for name in defined if not name.startswith("_")} <= set(names)


@pytest.mark.parametrize("module", PUBLIC_MODULES, ids=lambda module: module.__name__)
def test_all_is_sorted_and_has_nothing_private(module: ModuleType) -> None:
    names = list(module.__all__)
    assert names == sorted(set(names))
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []
    for name in names:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("module", PUBLIC_MODULES, ids=lambda module: module.__name__)
def test_all_has_each_function_and_class_of_the_module(module: ModuleType) -> None:
    """All functions and classes that a public module defines without a leading underscore are in its __all__."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {name for name in defined if not name.startswith("_")} <= set(module.__all__)


def test_a_name_is_in_one_module_besides_the_root() -> None:
    modules: dict[str, list[str]] = {}
    for module in PUBLIC_MODULES[1:]:
        for name in module.__all__:
            modules.setdefault(name, []).append(module.__name__)
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert twice == {}


def test_import_star() -> None:
    out, err = Process(
        """
before = set(dir())
from pyfeed import *
import pyfeed
names = sorted(set(dir()) - before - {"before", "pyfeed"})
print(names == pyfeed.__all__)
print(layers is pyfeed.program.layers, Program is pyfeed.program.Program)
""",
        preamble="",
    ).end()
    assert (out, err) == (["True", "True True"], "")


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_say_where_they_are(name: str) -> None:
    kind = getattr(errors, name)
    assert (kind.__module__, kind.__qualname__) == ("pyfeed.errors", name)
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_each_public_module_can_be_imported_first() -> None:
    for module in PUBLIC_MODULES:
        if module.__name__ == "pyfeed":
            continue
        assert importlib.import_module(module.__name__) is module
    first = [m.__name__ for m in PUBLIC_MODULES]
    process = Process(
        f"""
import subprocess, sys
for name in {first!r}:
    done = subprocess.run([sys.executable, "-c", f"import {{name}}"], capture_output=True, text=True)
    print(name, done.returncode, done.stderr)
""",
        preamble="",
    )
    out, err = process.end()
    assert (out, err) == ([f"{name} 0 " for name in first], "")
