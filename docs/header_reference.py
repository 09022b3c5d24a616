"""A Sphinx extension that makes the reference of C and C++ headers from their declarations and comments.

- ``.. c-header:: FILE`` writes the declarations of a C header. With the option ``:section:`` it writes those below the
  section comment with this title.
- ``.. cpp-header:: FILE`` writes the public classes and functions of a C++ header.
- ``.. header-rules:: FILE`` writes the comment at the top of a header.

Each declaration becomes a directive of Sphinx's C or C++ domain, with the comment of the declaration. libclang parses
the headers.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path

from clang.cindex import AccessSpecifier, Cursor, CursorKind, Index, TranslationUnit
from comment_markup import Markup, marked, strip_comment
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.domains.c import CDomain
from sphinx.domains.cpp import CPPDomain
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^/\* -{4} (.*?) -+ \*/$", re.MULTILINE)
FREE_COMMENT = re.compile(r"^/\*(?! -{4}|\*)(?:(?!\*/).)*\*/$(?=\n\n)", re.MULTILINE | re.DOTALL)
C_HEADERS = [ROOT / "capi/pyfeed.h", ROOT / "python/pyfeed_worker/native/pyfeed_worker.h"]
MACRO_COMMENT = re.compile(r"/\*\*(?:(?!\*/).)*\*/\n#define $", re.DOTALL)


class Header:
    """The text of a header and the cursors of its own declarations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = path.read_bytes()

    @cached_property
    def unit(self) -> TranslationUnit:
        """The parsed header."""
        language = ["-x", "c++", "-std=c++17"] if self.path.suffix == ".hpp" else ["-x", "c", "-std=c11"]
        arguments = [*language, "-fparse-all-comments", "-isystem", compiler_headers(), f"-I{ROOT / 'capi'}"]
        options = TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | TranslationUnit.PARSE_SKIP_FUNCTION_BODIES
        unit = Index.create().parse(str(self.path), arguments, options=options)
        if unit.diagnostics:  # a declaration could be missing
            raise ExtensionError("\n".join(map(str, unit.diagnostics)))
        return unit

    def own(self, parent: Cursor) -> list[Cursor]:
        """The declarations in `parent` that are in this header, in their order."""
        found = [c for c in parent.get_children() if c.location.file and Path(c.location.file.name) == self.path]
        return sorted(found, key=lambda c: int(c.location.offset))

    def sections(self) -> dict[str, tuple[int, int]]:
        """The byte offsets of the begin and end of each section, by its title. The first section begins at 0."""
        text = self.bytes.decode()
        found = [(len(text[: m.start()].encode()), m[1]) for m in SECTION.finditer(text)]
        bounds = [0, *(begin for begin, _ in found[1:]), len(self.bytes)]
        return {title: (bounds[i], bounds[i + 1]) for i, (_, title) in enumerate(found)}

    def free_comments(self) -> list[tuple[int, str]]:
        """The byte offset and words of each comment of no declaration, except the comment at the top."""
        text = self.bytes.decode()
        comments = [m for m in FREE_COMMENT.finditer(text) if m.start() > 0]
        return [(len(text[: m.start()].encode()), strip_comment(m[0])) for m in comments]

    def macros(self) -> dict[str, tuple[list[str], str]]:
        """The parameters and the text of each macro with parameters, by its name."""
        found = re.finditer(r"^#define (\w+)\(([\w, ]+)\)((?:.*\\\n)*.*)", self.bytes.decode(), re.MULTILINE)
        return {m[1]: (m[2].split(", "), m[3].replace("\\\n", " ")) for m in found}


@cache
def compiler_headers() -> str:
    """The directory of ``stddef.h`` and similar headers. libclang's wheel has none, so they are the C compiler's."""
    done = subprocess.run(["cc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@cache
def header(path: Path) -> Header:
    return Header(path)


def source(cursor: Cursor) -> str:
    """The text of a declaration and its body. A macro that makes a declaration is expanded."""
    extent = cursor.extent
    file = header(Path(extent.start.file.name))
    text = file.bytes[extent.start.offset : extent.end.offset].decode()
    name, _, rest = text.partition("(")
    if name not in file.macros():
        return text
    parameters, text = file.macros()[name]
    for parameter, argument in zip(parameters, re.split(r",\s*", rest.partition(")")[0]), strict=True):
        text = re.sub(rf"(?<!#)\b{parameter}\b", argument, text)
    return text


def declaration(cursor: Cursor) -> str:
    """The text of a declaration without its body, initialisers of members and attributes."""
    return " ".join(re.sub(r"\bPF_API\b|\[\[.*?\]\]", "", head(source(cursor))).split())


def head(text: str) -> str:
    """Cut a function's body, or the initialisers of a constructor's members, off its declaration."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth or c not in ";{:":
            continue
        initialisers = c == ":" and text[i - 1 : i].isspace() and text[i + 1 : i + 2] != ":"
        if c == ";" or ("(" in text[:i] and (c == "{" or initialisers)):
            return text[:i]
    return text


def comment(cursor: Cursor) -> str:
    """The words of the comment above a declaration, or behind it."""
    raw = cursor.raw_comment
    if raw is None:
        behind = header(Path(cursor.extent.end.file.name)).bytes[cursor.extent.end.offset :].partition(b"\n")[0]
        raw = (re.match(r"[;,]\s*(//.*)|", behind.decode()) or [""])[1] or ""
    return strip_comment(raw)


def sentence(words: str) -> str:
    """The words behind a field or enumerator as a sentence."""
    first = re.match(r"[a-z]+(?=[ ,:;]|$)", words)
    if first:
        words = words[0].upper() + words[1:]
    return words + "." if words and words[-1] not in ".:" else words


class Reference(SphinxDirective):
    """The base class of the directives."""

    required_arguments = 1
    domain = ""

    def run(self) -> list[nodes.Node]:
        path = ROOT / self.arguments[0]
        self.env.note_dependency(str(path))
        self.env.note_dependency(__file__)
        self.header = header(path)
        self.markup = Markup(self.link)
        self.last = ""
        self.line = 0
        self.content = StringList()
        self.generate()
        return self.parse_content_to_nodes()

    def generate(self) -> None:
        raise NotImplementedError

    def link(self, text: str) -> str:
        """Words of a comment, with links for the names in them."""
        if self.header.path.suffix == ".hpp":
            return marked(text, CPP_CODE, cpp_link)
        return marked(text, C_CODE, lambda found: c_link(found[0]))

    def write(self, lines: Iterable[str], depth: int = 0) -> None:
        """Add lines of reStructuredText. Warnings about them name the line of the header."""
        for line in lines:
            self.content.append("   " * depth + line, str(self.header.path), self.line)

    def directive(self, kind: str, signature: str, words: str, depth: int = 0, *, listed: bool = True) -> None:
        """Add an entry. It is in the contents at the side of the page only if it is `listed`."""
        kind = kind if ":" in kind else f"{self.domain}:{kind}"
        self.write(["", f".. {kind}:: {signature}", *([] if listed else ["   :no-contents-entry:"]), ""], depth)
        self.write(self.markup.render(words), depth + 1)


# ---- C --------------------------------------------------------------------------------------

C_KINDS = {
    CursorKind.FUNCTION_DECL: "func",
    CursorKind.STRUCT_DECL: "struct",
    CursorKind.TYPEDEF_DECL: "type",
    CursorKind.MACRO_DEFINITION: "macro",
}
C_NAME = re.compile(r"(?<![\w*])(?:pfw?|PFW?)_\w*[a-zA-Z0-9](?:\.[a-z]\w*\w)?(?![\w*])")
# Code in a comment: the path of a page, JSON, a field, a call, a name of the library, a name with underscores.
C_CODE = re.compile(
    r"\bdocs/\w+\.md\b|\{\"[^{}]*(?:\{[^{}]*\}[^{}]*)?\}|\w+->\w+\*?|\b\w{2,}\(\w*\)|"
    rf"{C_NAME.pattern}|(?<![\w*/\"])[a-z]\w*_\w*[a-z0-9](?![\w*/])"
)


@cache
def c_roles() -> dict[str, str]:
    """The role of the C domain for each name that can be linked."""
    roles: dict[str, str] = {}
    for cursor in [c for path in C_HEADERS for c in header(path).own(header(path).unit.cursor)]:
        role = C_KINDS.get(cursor.kind)
        if role and roles.get(cursor.spelling) != "struct":
            roles[cursor.spelling] = role
        for child in cursor.get_children():
            if child.kind == CursorKind.ENUM_CONSTANT_DECL:
                roles[child.spelling] = "enumerator"
            elif child.kind == CursorKind.FIELD_DECL:
                roles[f"{cursor.spelling}.{child.spelling}"] = "member"
    return roles


def c_link(name: str) -> str:
    if name.endswith(".md"):
        return f":doc:`{name} </{name.removeprefix('docs/').removesuffix('.md')}>`"
    role = c_roles().get(name)
    return f":c:{role}:`{name}`" if role else f"``{name}``"


class CHeader(Reference):
    """``.. c-header:: FILE``: every function, type and constant of a section, or of the whole header."""

    domain = "c"
    option_spec = {"section": directives.unchanged_required}  # noqa: RUF012

    def generate(self) -> None:
        section = self.options.get("section")
        begin, end = self.header.sections()[section] if section else (0, len(self.header.bytes))
        declarations = [(int(c.location.offset), c) for c in self.header.own(self.header.unit.cursor) if c.spelling]
        own = [each for each in [*declarations, *self.header.free_comments()] if begin < each[0] < end]
        for offset, thing in sorted(own, key=lambda each: each[0]):
            self.line = self.header.bytes[:offset].count(b"\n")
            if isinstance(thing, str):
                self.write(["", *self.markup.render(thing)])
            else:
                self.declare(thing)

    def declare(self, cursor: Cursor) -> None:
        words = comment(cursor)
        kind = cursor.kind
        if kind == CursorKind.FUNCTION_DECL:
            self.directive("function", declaration(cursor), words)
        elif kind == CursorKind.STRUCT_DECL:
            self.directive("struct", cursor.spelling, words)
            for field in cursor.get_children():
                if field.kind == CursorKind.FIELD_DECL:
                    self.directive("member", self.member(field), sentence(comment(field)), 1, listed=False)
        elif kind == CursorKind.ENUM_DECL:
            # C's domain has no anonymous enum: the comment stands above the enumerators.
            self.write(["", *self.markup.render(words)])
            for child in cursor.get_children():
                self.directive("enumerator", f"{child.spelling} = {child.enum_value}", sentence(comment(child)))
        elif kind == CursorKind.TYPEDEF_DECL:
            if c_roles()[cursor.spelling] != "struct":
                self.directive("type", declaration(cursor).removeprefix("typedef "), words)
        elif kind == CursorKind.MACRO_DEFINITION:
            self.macro(cursor)

    def member(self, field: Cursor) -> str:
        """The declaration of one field, which may share its type with others: ``uint64_t put, got;``."""
        text = declaration(field)
        return f"{field.type.spelling} {field.spelling}" if "," in text and "(" not in text else text

    def macro(self, cursor: Cursor) -> None:
        """A constant that has a comment, which clang attaches to no macro."""
        found = MACRO_COMMENT.search(self.header.bytes[: cursor.extent.start.offset].decode())
        if not found:
            return
        name, _, value = source(cursor).partition(" ")
        words = strip_comment(found[0].removesuffix("\n#define "))
        of_struct = words.startswith("\\since")
        if of_struct:  # its comment has no other words
            struct = re.sub(r"_(INIT|SIZE_V1)$", "", name).lower()
            what = (
                f"Initialises a {struct}" if name.endswith("_INIT") else f"The size of a {struct} in its first release"
            )
            words = f"{what}. {words}"
        if re.fullmatch(r"[\w\"().\- ]+", value):
            words = f"`{value}`. {words}"
        self.directive("macro", name, words, listed=not of_struct)


# ---- C++ ------------------------------------------------------------------------------------

CPP_KINDS = {
    CursorKind.CXX_METHOD: "function",
    CursorKind.CONSTRUCTOR: "function",
    CursorKind.CONVERSION_FUNCTION: "function",
    CursorKind.FUNCTION_DECL: "function",
    CursorKind.FUNCTION_TEMPLATE: "function",
    CursorKind.FIELD_DECL: "member",
    CursorKind.VAR_DECL: "member",
    CursorKind.TYPE_ALIAS_DECL: "type",
    CursorKind.TYPE_ALIAS_TEMPLATE_DECL: "type",
}
CLASSES = {CursorKind.CLASS_DECL: "class", CursorKind.STRUCT_DECL: "struct", CursorKind.CLASS_TEMPLATE: "class"}
CPP_CODE = re.compile(
    rf"\b[A-Za-z]\w*(?:::\w+)+|(?P<c>{C_CODE.pattern})|\b(?:[A-Z]\w*[A-Z]\w*|\w+\(\))",
)


@cache
def cpp_names() -> dict[str, str]:
    """The qualified names of public classes and their members, by the names that comments use for them."""
    names: dict[str, str] = {}
    for path in sorted((ROOT / "capi/pyfeed").glob("*.hpp")):
        file = header(path)
        spaces = [(file.unit.cursor, "")]
        for space, prefix in spaces:
            for cursor in file.own(space):
                full = f"{prefix}{cursor.spelling}"
                if cursor.kind == CursorKind.NAMESPACE and cursor.spelling != "detail":
                    spaces.append((cursor, f"{full}::"))
                elif cursor.kind in CLASSES and cursor.is_definition():
                    every = [full, *(f"{full}::{m.spelling}" for m in members(cursor) if m.kind in CPP_KINDS)]
                    names |= {name: name for name in every} | {name.removeprefix("pyfeed::"): name for name in every}
    return names


def cpp_link(found: re.Match[str]) -> str | None:
    name = found[0]
    if found["c"]:
        return c_link(found[0])
    if name in cpp_names() and name != "LoD":  # in comments, this is the term
        return f":cpp:any:`{name} <{cpp_names()[name]}>`"
    return f"``{name}``" if "::" in name or name.endswith("()") else None


def members(cursor: Cursor) -> Iterator[Cursor]:
    """The public members of a class, and of its bases in ``detail`` namespaces, which have no entry."""
    for child in cursor.get_children():
        if child.access_specifier in (AccessSpecifier.PRIVATE, AccessSpecifier.PROTECTED):
            continue
        base = child.referenced if child.kind == CursorKind.CXX_BASE_SPECIFIER else None
        definition = base.get_definition() if base is not None and base.semantic_parent.spelling == "detail" else None
        if definition is not None:
            yield from (m for m in members(definition) if m.kind != CursorKind.CONSTRUCTOR)
        yield child


def is_class(cursor: Cursor) -> bool:
    """Whether a class has an entry: if it is defined, or is a template that only specialisations define."""
    name = re.escape(cursor.spelling.partition("<")[0])
    specialisation = re.search(rf"\b{name} ?<", source(cursor).partition("{")[0])
    only_declared = cursor.kind == CursorKind.CLASS_TEMPLATE and cursor.get_definition() is None
    return not specialisation and (cursor.is_definition() or only_declared)


class CppHeader(Reference):
    """``.. cpp-header:: FILE``: every public class and function outside namespaces called ``detail``."""

    domain = "cpp"

    def generate(self) -> None:
        self.write([f"``#include <{self.header.path.relative_to(ROOT / 'capi')}>``", ""])
        self.walk(self.header.own(self.header.unit.cursor), "", 0)

    def walk(self, cursors: Iterable[Cursor], prefix: str, depth: int) -> None:
        words, made_by = "", ""
        for cursor in cursors:
            if cursor.kind == CursorKind.MACRO_DEFINITION:
                self.macro(cursor)
                continue
            if cursor.semantic_parent != cursor.lexical_parent:  # a member that is defined outside its class
                continue
            self.line = cursor.location.line
            # A comment above several calls of one macro describes all of them.
            maker = self.maker(cursor)
            words = comment(cursor) or (words if maker and maker == made_by else "")
            made_by = maker
            status = re.search(r"detail::ErrorOf<(\w+)>", source(cursor)) if maker else None
            if status:
                words = f"The error of {status[1]}" + (f": {words}" if words else ".")
            if cursor.kind == CursorKind.NAMESPACE and cursor.spelling != "detail":
                self.walk(self.header.own(cursor), f"{prefix}{cursor.spelling}::", depth)
            elif cursor.kind in CLASSES and is_class(cursor):
                self.directive(CLASSES[cursor.kind], self.class_signature(cursor, prefix), words, depth)
                self.walk(members(cursor), "", depth + 1)
            elif cursor.kind == CursorKind.ENUM_DECL:
                self.enum(cursor, prefix, depth)
            elif cursor.kind in CPP_KINDS:
                self.member(cursor, words, prefix, depth)

    def maker(self, cursor: Cursor) -> str:
        """The name of the macro that makes a declaration, or an empty string."""
        name = self.header.bytes[cursor.extent.start.offset :].partition(b"(")[0].decode()
        return name if name in self.header.macros() else ""

    def macro(self, cursor: Cursor) -> None:
        """Add an entry for a macro that has a comment and is not undefined at the end of the header."""
        text = self.header.bytes.decode()
        found = re.search(rf"((?://.*\n)+)#define ({cursor.spelling}\([^)]*\))", text)
        if found and f"#undef {cursor.spelling}" not in text:
            self.line = cursor.location.line
            self.directive("c:macro", found[2], strip_comment(found[1]))

    def enum(self, cursor: Cursor, prefix: str, depth: int) -> None:
        named = not cursor.is_anonymous() and "unnamed" not in cursor.spelling
        if named:
            scoped = "enum-class" if cursor.is_scoped_enum() else "enum"
            self.directive(scoped, prefix + cursor.spelling, comment(cursor), depth)
        for child in cursor.get_children():
            if child.kind == CursorKind.ENUM_CONSTANT_DECL:
                name = ("" if named else prefix) + child.spelling
                self.directive("enumerator", name, sentence(comment(child)), depth + named, listed=not named)

    def class_signature(self, cursor: Cursor, prefix: str) -> str:
        text = " ".join(source(cursor).partition("{")[0].split())
        text = re.sub(r"\b(class|struct)\s+(?=\w+\s*(final\b|:|<|$))", "", re.sub(r"\[\[.*?\]\]", "", text))
        text = re.sub(r": public detail::ErrorOf<\w+>", ": public Error", text)
        text = re.sub(r" ?: (public |private )?detail::.*", "", text)
        return re.sub(rf"\b{re.escape(cursor.spelling)}\b", prefix + cursor.spelling, text, count=1)

    def member(self, cursor: Cursor, words: str, prefix: str, depth: int) -> None:
        text = declaration(cursor)
        if "= delete" in text or cursor.spelling.startswith("operator=") or "~" in text:
            return
        if cursor.kind in (CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPE_ALIAS_TEMPLATE_DECL):
            text = re.sub(r"\busing ", "", text)
        text = re.sub(r"^((?:template ?<.*?> ?)?)(?:inline |friend |constexpr )+", r"\1", without_conditions(text))
        if prefix:
            name = re.escape(cursor.spelling.partition("<")[0])
            text = re.sub(rf"(?<![\w:]){name}(?=\s*(\(|=|\[|;|\{{|$))", lambda m: prefix + m[0], text, count=1)
        words = sentence(words) if cursor.kind == CursorKind.FIELD_DECL else words
        # The contents list the first of several overloads, and neither constructors nor fields.
        listed = cursor.kind not in (CursorKind.FIELD_DECL, CursorKind.CONSTRUCTOR) and cursor.spelling != self.last
        self.last = cursor.spelling
        self.directive(CPP_KINDS[cursor.kind], text.strip(), words, depth, listed=listed)


def without_conditions(text: str) -> str:
    """Remove template parameters such as ``class = std::enable_if_t<...>``, which only restrict the others."""
    while (begin := text.find(", class = std::enable_if_t<")) >= 0:
        depth, end = 0, begin + 1
        while depth or text[end] not in ",>":
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        text = text[:begin] + text[end:]
    return text


# ---- Both -----------------------------------------------------------------------------------


class HeaderRules(Reference):
    """``.. header-rules:: FILE``: the comment at the top of a header."""

    def generate(self) -> None:
        found = re.match(r"/\*.*?\*/|(?://[^\n]*\n)+", self.header.bytes.decode(), re.DOTALL)
        words = strip_comment(found[0]) if found else ""
        self.write(self.markup.render(words))


class QuietCDomain(CDomain):
    """The C domain without an object for each parameter: these would fill the results of a search."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        return (each for each in super().get_objects() if not each[2].endswith("Param"))


class QuietCPPDomain(CPPDomain):
    """The C++ domain without an object for each parameter."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        return (each for each in super().get_objects() if not each[2].endswith("Param"))


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_domain(QuietCDomain, override=True)
    app.add_domain(QuietCPPDomain, override=True)
    app.add_directive("c-header", CHeader)
    app.add_directive("cpp-header", CppHeader)
    app.add_directive("header-rules", HeaderRules)
    return {"version": "1", "parallel_read_safe": True}
