"""Every public name has an entry in the reference of the built site. `make docs` runs this after the build."""

from __future__ import annotations

import inspect
import re
import zlib
from pathlib import Path
from types import ModuleType
from typing import is_typeddict

import pyfeed_worker
import pytest

from tests.python.public_modules import FRAMEWORK_MODULES, PUBLIC_MODULES

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/docs"


def read_entries() -> dict[str, set[str]]:
    """Read the names that have an entry, by domain (py, c, cpp), from the inventory that Sphinx writes."""
    compressed = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries: dict[str, set[str]] = {}
    for line in zlib.decompress(compressed).decode().splitlines():
        found = re.match(r"(.+?)\s+(\w+):\w+\s+-?\d+\s", line)
        assert found, line
        entries.setdefault(found[2], set()).add(found[1])
    return entries


ENTRIES = read_entries()


# ---- Python ----

PUBLIC = {f"{module.__name__}.{name}": getattr(module, name) for module in PUBLIC_MODULES for name in module.__all__}
CLASSES = {name: thing for name, thing in PUBLIC.items() if isinstance(thing, type)}


@pytest.mark.parametrize("module", PUBLIC_MODULES, ids=lambda module: module.__name__)
def test_every_public_name_of_python(module: ModuleType) -> None:
    assert module.__name__ in ENTRIES["py"]
    assert [name for name in module.__all__ if f"{module.__name__}.{name}" not in ENTRIES["py"]] == []


@pytest.mark.parametrize("module", FRAMEWORK_MODULES)
def test_every_public_name_of_a_module_for_a_framework(module: str) -> None:
    assert {module, *(f"{module}.{name}" for name in FRAMEWORK_MODULES[module])} <= ENTRIES["py"]


def test_every_public_name_for_workers() -> None:
    names = [*pyfeed_worker.__all__, *(f"Producer.{name}" for name in vars(pyfeed_worker.Producer) if name[0] != "_")]
    assert [name for name in names if f"pyfeed_worker.{name}" not in ENTRIES["py"]] == []


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_member(name: str) -> None:
    """A member may have its entry in a public base class, or under another public name of the class."""
    cls = CLASSES[name]
    owners = [owner for owner, other in CLASSES.items() if other in cls.__mro__]
    if is_typeddict(cls):  # its __mro__ does not have the TypedDicts that it extends
        keys = cls.__annotations__.items()
        owners = [o for o, other in CLASSES.items() if is_typeddict(other) and other.__annotations__.items() <= keys]
    missing = []
    for base in cls.__mro__:
        if not base.__module__.startswith("pyfeed"):
            continue
        for member in sorted({*vars(base), *inspect.get_annotations(base)}):
            if not member.startswith("_") and not any(f"{owner}.{member}" in ENTRIES["py"] for owner in owners):
                missing.append(member)
    assert missing == []


# ---- C ----

HEADER = (ROOT / "capi/pyfeed.h").read_text()
WORKER_HEADER = (ROOT / "python/pyfeed_worker/native/pyfeed_worker.h").read_text()


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        pytest.param(r"^PF_API [^;(]*?\b(pf_\w+)\(", 80, id="functions"),
        pytest.param(r"^\} (pf_\w+);", 10, id="structs"),
        pytest.param(r"^typedef [^;{]*?\b(pf_\w+)\)?(?:\([^;]*\))?;", 4, id="types"),
        pytest.param(r"^#define (PF_(?!API)\w+)", 30, id="constants"),
        pytest.param(r"\b(PF_\w+) = -?\d+", 40, id="enumerators"),
    ],
)
def test_every_declaration_of_c(pattern: str, at_least: int) -> None:
    declared = re.findall(pattern, HEADER, re.MULTILINE)
    assert len(declared) >= at_least
    assert [name for name in declared if name not in ENTRIES["c"]] == []


def test_every_function_for_workers() -> None:
    declared = re.findall(r"^\w[^;(]*?\b(pfw_\w+)\(", WORKER_HEADER, re.MULTILINE)
    assert len(declared) > 10
    assert [name for name in declared if name not in ENTRIES["c"]] == []


# ---- C++ ----


def declared_outside_detail(header: Path) -> list[str]:
    """List the qualified names of the classes and functions of a header, except those in detail namespaces.

    The contents of namespaces are not indented. So a declaration at the beginning of a line is not in a class.
    """
    opened: list[str] = []  # for each open brace: the name of a namespace, or ""
    found = []
    for line in re.sub(r"//.*|\"(\\.|[^\"\n])*\"|'(\\.|[^'\n])+'", "", header.read_text()).splitlines():
        declared = re.match(r"(?:class|struct|enum class) (?:\[\[\w+\]\] )?(\w+)\b(?! *<)[^;]*$", line)
        declared = declared or re.match(r"PYFEED_(?:ERROR_CLASS|LAYER)\((\w+)[,)]", line)
        declared = declared or re.match(r"(?:inline|constexpr) [\w:<>&*, ]+ [&*]*(\w+)\(", line)
        if declared and "detail" not in opened:
            found.append("::".join([*filter(None, opened), declared[1]]))
        space = re.match(r"(?:inline )?namespace (\w+)", line)
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                opened.append(space[1] if space else "")
            else:
                opened.pop()
    assert opened == []
    return found


def test_every_class_and_function_of_cpp() -> None:
    headers = sorted((ROOT / "capi/pyfeed").glob("*.hpp"))
    declared = [name for header in headers for name in declared_outside_detail(header)]
    assert len(declared) > 100
    assert [name for name in declared if name not in ENTRIES["cpp"]] == []


def test_every_header_of_cpp_has_a_page() -> None:
    """Two headers declare nothing outside detail."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference/cpp").glob("*.rst"))
    headers = {header.name for header in (ROOT / "capi/pyfeed").glob("*.hpp")}
    assert {name for name in headers if f"capi/pyfeed/{name}" not in pages} == {"failure.hpp", "json_view.hpp"}


# ---- The site ----


def test_every_section_of_the_header_has_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference/c").glob("*.rst"))
    sections = re.findall(r"^/\* -{4} (.*?) -+ \*/$", HEADER, re.MULTILINE)
    assert [title for title in sections if f":section: {title}\n" not in pages] == []


def test_the_search_index_is_there() -> None:
    assert "PyArrayFeedQueue" in (SITE / "searchindex.js").read_text()
