"""What is written is so: docstrings, stubs, the README."""

from __future__ import annotations

import ast
import doctest
import inspect
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyfeed
from pyfeed import _native, typing

from .public_modules import PUBLIC_MODULES, WITH_PREFIX
from .support import feed, run_file

ROOT = Path(__file__).parents[2]
PACKAGE = Path(str(pyfeed.__file__)).parent


def documented() -> Iterator[tuple[str, Any]]:
    """Every public name, and the public members of classes and modules."""
    for module in PUBLIC_MODULES:
        yield module.__name__, module
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, (str, ModuleType)) or thing is typing.Shape:
                continue
            yield WITH_PREFIX.get(module, "") + name, thing
            if not isinstance(thing, type) or issubclass(thing, BaseException):
                continue
            for member in sorted({m for c in thing.__mro__ if c.__module__.startswith("pyfeed") for m in vars(c)}):
                value = getattr(thing, member)
                if member.startswith("_") or inspect.ismemberdescriptor(value):
                    continue
                if inspect.isdatadescriptor(value) or (callable(value) and _of_pyfeed(value)):
                    yield f"{WITH_PREFIX.get(module, '')}{name}.{member}", value


def _of_pyfeed(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "pyfeed").startswith("pyfeed")


EVERYTHING = dict(documented())


def test_all_names_are_there() -> None:
    assert len(EVERYTHING) > 60
    assert "PyArrayFeedQueue.push" in EVERYTHING
    assert "Reader.batch" in EVERYTHING


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_public_name_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(EVERYTHING[name])
    assert text
    assert re.match(r"[A-Z`'\"]|pyfeed ", text)
    assert text == inspect.cleandoc(text)
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("name", [n for n, thing in EVERYTHING.items() if ">>>" in (thing.__doc__ or "")])
def test_examples_in_docstrings(name: str) -> None:
    text = inspect.getdoc(EVERYTHING[name]) or ""
    test = doctest.DocTestParser().get_doctest(text, {"py_array_reader": pyfeed.py_array_reader}, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(said)
    test.globs.clear()


def test_native_signatures_can_be_asked_for() -> None:
    for name, thing in EVERYTHING.items():
        if callable(thing) and not isinstance(thing, type):
            inspect.signature(thing)
            assert name


# ---- The stub ----

STUB = ast.parse((PACKAGE / "_native.pyi").read_text())


def members(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def typed_dicts() -> dict[str, ast.ClassDef]:
    classes = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
    return {node.name: node for node in classes if "TypedDict" in map(ast.unparse, node.bases)}


def test_the_stub_says_what_the_module_has() -> None:
    stub = members(STUB.body)
    has = {name for name in vars(_native) if not name.startswith("__") or name == "__version__"}
    assert set(stub) - set(typed_dicts()) == has
    for name in has:
        thing, node = getattr(_native, name), stub[name]
        if not isinstance(thing, type):
            continue
        assert isinstance(node, ast.ClassDef)
        inherited = {"__new__", "__doc__", "__module__", "__iter__", "__next__", "__weakref__", "__dict__"}
        assert set(members(node.body)) - inherited == set(vars(thing)) - inherited


def test_the_stub_says_what_dicts_hold() -> None:
    _, queue = feed()
    buffer = pyfeed.staging.get_buffer(pyfeed.CPUPlace(), 2)
    for node, stats in zip(
        typed_dicts().values(), (pyfeed.diagnostics.memory_stats(), queue.stats(), buffer.stats()), strict=True
    ):
        types = {
            field: ast.unparse(line.annotation)
            for field, line in members(node.body).items()
            if isinstance(line, ast.AnnAssign)
        }
        assert set(types) == set(stats)
        for field, value in stats.items():
            assert type(value).__name__ in types[field].split(" | "), field


def test_signatures_of_the_stub_are_those_of_the_docstrings() -> None:
    for class_name in ("Buffer", "Queue", "Reader", "Scope", "Writer"):
        node = members(STUB.body)[class_name]
        assert isinstance(node, ast.ClassDef)
        for name, function in members(node.body).items():
            if name.startswith("_") or not isinstance(function, ast.FunctionDef) or function.decorator_list:
                continue
            signature = inspect.signature(getattr(getattr(_native, class_name), name))
            names = [p.name for p in signature.parameters.values() if p.name != "self"]
            arguments = function.args
            stub_names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
            assert names == stub_names[1:], name


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_folders_for_those_who_build_against_it() -> None:
    assert Path(pyfeed.get_include(), "pyfeed.h").exists()
    assert Path(pyfeed.get_include(), "pyfeed.hpp").exists()
    assert Path(pyfeed.get_library_dir(), "libpyfeed.so.0").exists()


# ---- The README and the other pages ----

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def every(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, language))
        if not re.search(r"^(import |from pyfeed\.)(jax|ray|torch)\b", block, re.MULTILINE)  # tests/adapters run these
    ]


def promised(block: str) -> list[str]:
    """What a block says that it prints: in a comment behind each print, or below it."""
    lines = [line.strip() for line in block.splitlines()]
    said = []
    for line, below in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        if not line.startswith("print("):
            continue
        _, behind, text = line.rpartition("  # ")
        assert behind or below.startswith("# "), f"what does it print? {line}"
        said.append(text if behind else below.removeprefix("# "))
    return said


@pytest.mark.parametrize("block", every("python"))
def test_the_python_of_a_page_runs(block: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(block)
    quiet = ["ignore::ResourceWarning"] if "import webdataset" in block else []  # it does not close its files
    assert run_file(file, *quiet, PYFEED_CUDA="host") == promised(block)  # so that pages may feed devices


def test_pages_have_examples_and_what_they_link_to() -> None:
    assert len(every("python")) > 10
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
        for link, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
            assert link or anchor in anchors, f"{page.name}: {anchor}"


def test_every_operator_is_on_its_page() -> None:
    with pytest.raises(pyfeed.errors.NotFoundError) as refused:
        pyfeed.Program.from_json('{"version": 1, "blocks": [{"parent": -1, "ops": [{"type": "none"}]}]}')
    there = re.search(r"operator: expected one of (.*), found", str(refused.value))
    assert there
    table = (ROOT / "docs" / "program.md").read_text().partition("\n## Operators\n")[2].partition("\n## ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == sorted(there[1].split(", "))


@pytest.mark.compiler
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_the_c_and_cpp_of_the_pages_compile(language: str, tmp_path: Path) -> None:
    compiler = {"c": ["cc", "-std=c11"], "cpp": ["c++", "-std=c++17"]}[language]
    flags = ["-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "capi")]
    assert every(language)
    if language == "cpp":  # precompiled, because most of the time would be spent on the headers
        header = tmp_path / "all.hpp"
        header.write_text("#include <pyfeed.hpp>\n")
        done = subprocess.run([*compiler, *flags, str(header)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        flags += ["-include", str(header)]
    for block in every(language):
        file = tmp_path / f"block.{language}"
        file.write_text(block.values[0])
        command = [*compiler, *flags, "-fsyntax-only", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{block.id}: {done.stderr}"
