"""A Sphinx extension that resolves the links of pages, docstrings and signatures.

- A link of a page to a file that is not a page, such as an example, leads to the repository.
- A name in a docstring, such as `Reader.batch`, leads to its entry in any public module.
- The name of a C type in a C++ signature leads to the C reference.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.c import CDomain
from sphinx.domains.python import ObjectEntry, PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import ExtensionMetadata

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# Files outside this folder that pages of the site include.
INCLUDED = {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")

Reference = addnodes.pending_xref

# Words that describe types in docstrings and are not names.
TYPE_WORDS = {"array", "arrays", "array_like", "callable", "dtype", "iterable", "iterator", "mapping", "path", "Path"}
TYPE_WORDS |= {"Any", "Sequence", "pytree", "sequence", "sequences", "shape", "shapes", "them"}

# Modules whose names are in docstrings, and that the site does not document.
OTHER_MODULES = {*sys.stdlib_module_names, "jax", "matplotlib", "npt", "numpy", "torch"}


def site_links(text: str, folder: Path, page_folder: Path, repository: str) -> str:
    """Change links that are relative to `folder` into links of a page in `page_folder`."""

    def replace(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        page = INCLUDED.get(target)
        if page is not None or target.is_relative_to(DOCS):
            return os.path.relpath(DOCS / page if page else target, page_folder) + (found[2] or "")
        if not target.exists():
            return found[0]  # Sphinx warns of it
        kind = "tree" if target.is_dir() else "blob"
        return f"{repository}/{kind}/main/{target.relative_to(ROOT).as_posix()}{found[2] or ''}"

    return LINK.sub(replace, text)


def read_source(app: Sphinx, docname: str, content: list[str]) -> None:
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".md":
        content[0] = site_links(content[0], path.parent, path.parent, app.config.repository)


def read_include(app: Sphinx, relative_path: Path, docname: str, content: list[str]) -> None:
    folder = (DOCS / relative_path).resolve().parent
    content[0] = site_links(content[0], folder, Path(app.env.doc2path(docname)).parent, app.config.repository)


def find_python(objects: Mapping[str, ObjectEntry], target: str, module: str, cls: str) -> str | None:
    """Find the full name of a public object: in the class or module of the reference, or anywhere if it is unique."""
    for place in (f"{module}.{cls}", module, "pyfeed.program", "pyfeed", "pyfeed.errors"):
        if f"{place}.{target}" in objects:
            return f"{place}.{target}"
    found = [name for name, entry in objects.items() if name.endswith(f".{target}") and not entry.aliased]
    return found[0] if len(found) == 1 else None


class FullNames(SphinxPostTransform):
    """Gives references to Python objects their full names, before Sphinx resolves them."""

    default_priority = 5

    def run(self, **kwargs: object) -> None:
        objects = cast(PythonDomain, self.env.get_domain("py")).objects
        for node in self.document.findall(addnodes.pending_xref):
            if node.get("refdomain") == "py" and node["reftarget"] not in {*objects, *TYPE_WORDS}:
                name = find_python(objects, node["reftarget"], node.get("py:module") or "", node.get("py:class") or "")
                if name:
                    node["reftarget"], node["refspecific"] = name, False


def parameters(node: nodes.Node) -> set[str]:
    """The parameters of the functions and classes whose description contains a node."""
    names = set()
    while node is not None:
        if isinstance(node, addnodes.desc):
            for parameter in node.findall(addnodes.desc_parameter):
                names |= set(re.findall(r"^\W*(\w+)", parameter.astext()))
        node = node.parent
    return names


def resolve_python(app: Sphinx, env: BuildEnvironment, node: Reference, text: nodes.Element) -> nodes.Node | None:
    """Resolve the path of a page; leave parameters, words about types and names of other packages as plain text."""
    target = node["reftarget"]
    page = re.fullmatch(r"docs/(\w+)\.md", target)
    if page and page[1] in env.all_docs:
        return make_refnode(app.builder, node["refdoc"], page[1], "", text)
    first = target.split(".")[0]
    known = first in OTHER_MODULES or hasattr(builtins, first) or target in TYPE_WORDS
    if known or " " in target or target in parameters(node):
        return text
    return None


def resolve(app: Sphinx, env: BuildEnvironment, node: Reference, text: nodes.Element) -> nodes.Node | None:
    """Resolve a reference that Sphinx cannot resolve. None makes Sphinx warn about it."""
    domain, target = node.get("refdomain"), node.get("reftarget", "")
    if domain == "py":
        return resolve_python(app, env, node, text)
    if domain == "cpp" and target.startswith("pf_"):
        c = cast(CDomain, env.get_domain("c"))
        found = c.resolve_any_xref(env, node["refdoc"], app.builder, target, node, text)
        return found[0][1] if found else None
    return None


def plain_properties(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Add an empty first line, in which napoleon looks for the type of a property before a colon."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def type_attributes(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Move the type of each attribute from the end of its description, where napoleon writes it, to its signature."""

    def replace(found: re.Match[str]) -> str:
        plain = re.sub(r":py:\w+:|[`*]", "", found[3])
        return f"{found[1]}   :type: {plain}\n{found[2]}"

    attribute = r"(\.\. attribute:: \w+\n)((?:(?:   .*)?\n)*?)   :type: (.*)\n"
    text = re.sub(attribute, replace, "\n".join(lines))
    lines[:] = text.split("\n")


def skip_fields(app: Sphinx, what: str, name: str, value: object, skip: bool, options: object) -> bool | None:
    """Skip the fields of a NamedTuple, which the section Attributes of its docstring describes."""
    return True if type(value).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_config_value("repository", "", "env")
    app.connect("source-read", read_source)
    app.connect("include-read", read_include)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", plain_properties, priority=100)
    app.connect("autodoc-process-docstring", type_attributes, priority=900)
    app.connect("autodoc-skip-member", skip_fields)
    app.add_post_transform(FullNames)
    return {"version": "1", "parallel_read_safe": True}
