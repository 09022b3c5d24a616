"""What arguments must be: the one place that checks those of the public functions, before anything else happens.

`takes` declares a function's arguments. A check gets the argument's name and value; it returns the value in the form
that the function works with, or raises an error that says what was expected and what was found.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from ._errors import ArgumentTypeError, Error, InvalidArgument

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[str, Any], Any]

_MOST = 2**63 - 1
_MOST_SHOWN = 200


def shown(value: object) -> str:
    """The value for an error message."""
    try:
        text = repr(value)
    except Exception:
        return f"an object of {type(value)}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..., of {type(value)}"


def refuse(
    name: str, expected: str, value: object, kind: type[Error] = ArgumentTypeError, slot: int | None = None
) -> NoReturn:
    """Raise the error for an argument: of its type, if `kind` does not say otherwise."""
    error = kind(f"{name}: expected {expected}, found {shown(value)}")
    error.slot = slot
    raise error from None


# ---- Checks ----------------------------------------------------------------------------------


def anything(name: str, value: Any) -> Any:
    """Any value at all, or one that is checked where it is used."""
    return value


def optional(check: Check) -> Check:
    """None, or what another check lets pass."""

    def checked(name: str, value: Any) -> Any:
        return None if value is None else check(name, value)

    return checked


def index(name: str, value: Any, expected: str, slot: int | None = None) -> int:
    """The value of an integer. A bool is none."""
    if isinstance(value, (bool, np.bool_)):
        refuse(name, expected, value, slot=slot)
    try:
        return operator.index(value)
    except TypeError:
        refuse(name, expected, value, slot=slot)


def number(name: str, value: Any, least: int, unit: str = "", most: int = _MOST) -> int:
    """An integer of at least so much. A bool is none."""
    n = index(name, value, "an integer")
    if least <= n <= most:
        return n
    if n < least and most == _MOST:
        refuse(name, f"at least {least}{unit and ' ' + unit}", n, InvalidArgument)
    refuse(name, f"{_bound(least)} to {_bound(most)}", n, InvalidArgument)


def _bound(n: int) -> str:
    """A bound for an error message: large ones as powers of two."""
    exponent = abs(n).bit_length()
    bounds = {2 ** (exponent - 1): f"2^{exponent - 1}", 2**exponent - 1: f"2^{exponent} - 1"} if exponent > 13 else {}
    return "-" * (n < 0 and abs(n) in bounds) + bounds.get(abs(n), str(n))


def pass_id(name: str, value: Any) -> int:
    """The number of a pass."""
    return number(name, value, 0)


def integer(least: int, unit: str = "", most: int = _MOST) -> Check:
    """`number`, as a check."""
    return lambda name, value: number(name, value, least, unit, most)


def seconds(name: str, value: Any) -> float:
    """A time to wait, infinite as well."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, bytearray)):
            raise TypeError
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        refuse(name, "None or seconds", value)
    return x if x >= 0 else refuse(name, "None or seconds, at least 0", value, InvalidArgument)


def real(name: str, value: Any) -> float:
    """A finite number. A bool is none."""
    if isinstance(value, (bool, np.bool_, str, bytes, bytearray)):
        refuse(name, "a number", value)
    try:
        x = float(value)
    except OverflowError:
        refuse(name, "a finite number", value, InvalidArgument)
    except (TypeError, ValueError):
        refuse(name, "a number", value)
    if not math.isfinite(x):
        refuse(name, "a finite number", value, InvalidArgument)
    return x


def flag(name: str, value: Any) -> bool:
    """True or False, NumPy's as well; nothing else, of which the truth could be asked."""
    if not isinstance(value, (bool, np.bool_)):
        refuse(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any) -> str:
    """Text that C can have: in UTF-8, without a zero byte."""
    if not isinstance(value, str):
        refuse(name, "a str", value)
    if "\0" in value:
        refuse(name, "text without a zero byte", value, InvalidArgument)
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, "text that UTF-8 can encode", value, InvalidArgument)
    return value


def path(name: str, value: Any) -> str:
    """The name of a file: any bytes but zero, as `os.fsencode` takes them."""
    found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str):
        refuse(name, "a str or path", value)
    if "\0" in found:
        refuse(name, "text without a zero byte", value, InvalidArgument)
    try:
        os.fsencode(found)
    except UnicodeEncodeError:
        refuse(name, f"a name that {sys.getfilesystemencoding()} can encode", value, InvalidArgument)
    return found


def instance(kind: type | tuple[type, ...], expected: str) -> Check:
    """An object of a class."""

    def checked(name: str, value: Any) -> Any:
        return value if isinstance(value, kind) else refuse(name, expected, value)

    return checked


def function(name: str, value: Any) -> Any:
    """What can be called."""
    return value if callable(value) else refuse(name, "a function", value)


def mapping(name: str, value: Any) -> Any:
    """A dict or its like, whose keys are str."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping", value)
    for key in value:
        if not isinstance(key, str):
            refuse(name, "a mapping whose keys are str", key)
    return value


def items(name: str, value: Any, expected: str) -> list[Any]:
    """The elements of what can be gone through in order: no text, which is one thing, and no dict or set."""
    if not isinstance(value, Iterable) or isinstance(
        value, (str, bytes, bytearray, memoryview, Mapping, set, frozenset)
    ):
        refuse(name, expected, value)
    try:
        return list(value)
    except TypeError:  # as of an array without dimensions
        refuse(name, expected, value)


def each(check: Check, expected: str) -> Check:
    """A sequence whose elements all pass a check."""

    def checked(name: str, value: Any) -> list[Any]:
        return [check(f"{name}[{i}]", element) for i, element in enumerate(items(name, value, expected))]

    return checked


names = each(text, "a sequence of str")


# ---- Calls -----------------------------------------------------------------------------------


def takes(**checks: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function's arguments checked.

    Parameters
    ----------
    **checks
        By the names of arguments. Each element of an argument such as ``*others`` is checked. A check that
        has the name of none is that of a keyword which ``**reading`` or the like hands on. No other keywords
        are let through, unless ``**options`` has a check of its own name.

    Notes
    -----
    Unknown keywords, and too few or too many arguments, are pyfeed's errors, which name the function. A
    function without checks, as one that is called for each record, is called at once: only after that has
    failed are its arguments compared with those it has.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own: Callable[..., Any] = getattr(function, "__wrapped__", function)  # of a context manager
        signature = _Signature.of(own, checks)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            signature.match(len(args), kwargs)
            given = [checks[n](n, x) if n in checks else x for n, x in zip(signature.positions(), args, strict=False)]
            named = {n: checks[n](n, x) if n in checks else x for n, x in kwargs.items()}
            return function(*given, **named)  # type: ignore[arg-type]

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is None:  # of this very call
                    signature.match(len(args), kwargs)
                raise

        return called if own is function and not checks else checked

    return decorate


class _Signature:
    """The arguments that a function has."""

    def __init__(
        self,
        function: str,
        positional: tuple[str, ...],
        by_keyword: tuple[str, ...],
        required: frozenset[str],
        *,
        unnamed: int = 0,
        more: str | None = None,
        any_keyword: bool = False,
    ) -> None:
        self.function = function
        self.positional = positional
        self.by_keyword = by_keyword
        self.required = required
        self.more = more
        self.any_keyword = any_keyword
        self.own = int(positional[:1] in (("self",), ("cls",)))  # what a method is called on
        self.keywords = (*positional[max(unnamed, self.own) :], *by_keyword)

    @classmethod
    def of(cls, function: Callable[..., Any], checks: Mapping[str, Check]) -> _Signature:
        code = function.__code__
        names, count = code.co_varnames, code.co_argcount
        positional, by_keyword = names[:count], names[count : count + code.co_kwonlyargcount]
        rest = list(names[count + code.co_kwonlyargcount :])
        more = rest.pop(0) if code.co_flags & _MORE else None
        others = rest[0] if code.co_flags & _KEYWORDS else None
        required = {*positional[: count - len(function.__defaults__ or ())]}
        required |= {*by_keyword} - {*(function.__kwdefaults__ or ())}
        if others is not None:
            by_keyword += tuple(name for name in checks if name not in (*positional, *by_keyword, more, others))
        return cls(
            function.__qualname__.removesuffix(".__new__").removesuffix(".__init__"),
            positional,
            by_keyword,
            frozenset(required),
            unnamed=code.co_posonlyargcount,
            more=more,
            any_keyword=others is not None and others in checks,
        )

    def positions(self) -> Iterable[str]:
        """The names of the arguments by position."""
        return itertools.chain(self.positional, itertools.repeat(self.more or ""))

    def match(self, count: int, keywords: Collection[str]) -> None:
        """Check the number of arguments by position, and the names of the others."""
        if count > len(self.positional) and self.more is None:
            self._too_many(count)
        for name in keywords:
            if name in self.positional[:count] and name in self.keywords:
                self._refuse(f"{name}: expected one value, found two: by position and by keyword")
            if name not in self.keywords and not self.any_keyword:
                self._unknown(name)
        for name in (*self.positional[count:], *self.by_keyword):
            if name in self.required and name not in keywords:
                self._refuse(f"{name}: expected a value, found none")

    def _refuse(self, message: str) -> NoReturn:
        raise ArgumentTypeError(f"{self.function}: {message}") from None

    def _too_many(self, found: int) -> NoReturn:
        names = self.positional[self.own :]
        listed = f" ({', '.join(names)})" if names else ""
        by_keyword = f": give {', '.join(self.by_keyword)} by keyword" if self.by_keyword else ""
        self._refuse(
            f"expected at most {len(names)} positional argument{'s' * (len(names) != 1)}{listed}, "
            f"found {found - self.own}{by_keyword}"
        )

    def _unknown(self, name: str) -> NoReturn:
        import difflib

        close = difflib.get_close_matches(name, self.keywords, 1)
        expected = f"one of the arguments {', '.join(self.keywords)}" if self.keywords else "no keyword"
        self._refuse(f"expected {expected}, found {name!r}" + (f": did you mean {close[0]!r}?" if close else ""))


_MORE, _KEYWORDS = 4, 8  # flags of code: it has *more, **keywords


def refuse_call(
    function: str,
    names: tuple[str, ...],
    positional: int,
    unnamed: int,
    required: int,
    count: int,
    keywords: tuple[str, ...],
) -> NoReturn:
    """Say what is wrong with the call of a function that is written in C. The first arguments are required."""
    signature = _Signature(
        function, names[:positional], names[positional:], frozenset(names[:required]), unnamed=unnamed
    )
    signature.match(count, keywords)
    raise ArgumentTypeError(f"{function}: expected other arguments, found {count} and {keywords}")
