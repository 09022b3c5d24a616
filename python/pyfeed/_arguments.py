"""Checks of the arguments of public functions.

`validate` declares the checks of a function. They run before the function does anything else. A check gets the name and
the value of an argument. It returns the value in the form that the function works with, or raises an error that says
what was expected and what was found.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from .errors import ArgumentTypeError, Error, InvalidArgument

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[str, Any], Any]

_MOST = 2**63 - 1
_MOST_SHOWN = 200


def format_value(value: object) -> str:
    """Return the repr of a value for an error message: in one line, and cut if it is long."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:
        return f"an object of {type(value)}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..., of {type(value)}"


def refuse(
    name: str, expected: str, value: object, kind: type[Error] = ArgumentTypeError, slot: int | None = None
) -> NoReturn:
    """Raise the error for a wrong argument: by default the error for a wrong type."""
    error = kind(f"{name}: expected {expected}, found {format_value(value)}")
    error.slot = slot
    raise error from None


# ---- Checks ----------------------------------------------------------------------------------


def anything(name: str, value: Any) -> Any:
    """Accept any value. It is checked where it is used, if at all."""
    return value


def optional(check: Check) -> Check:
    """Return a check that accepts None, and all that another check accepts."""

    def checked(name: str, value: Any) -> Any:
        return None if value is None else check(name, value)

    return checked


def index(name: str, value: Any, expected: str, slot: int | None = None) -> int:
    """Accept an integer, but no bool, and return it as an int."""
    if isinstance(value, (bool, np.bool_)):
        refuse(name, expected, value, slot=slot)
    try:
        return operator.index(value)
    except TypeError:
        refuse(name, expected, value, slot=slot)


def number(name: str, value: Any, least: int, unit: str = "", most: int = _MOST) -> int:
    """Accept an integer from `least` to `most`, but no bool."""
    n = index(name, value, "an integer")
    if least <= n <= most:
        return n
    if n < least and most == _MOST:
        refuse(name, f"at least {least}{unit and ' ' + unit}", n, InvalidArgument)
    refuse(name, f"{_bound(least)} to {_bound(most)}", n, InvalidArgument)


def _bound(n: int) -> str:
    """Return a bound for an error message, in which large bounds are written as powers of two."""
    exponent = abs(n).bit_length()
    bounds = {2 ** (exponent - 1): f"2^{exponent - 1}", 2**exponent - 1: f"2^{exponent} - 1"} if exponent > 13 else {}
    return "-" * (n < 0 and abs(n) in bounds) + bounds.get(abs(n), str(n))


def pass_id(name: str, value: Any) -> int:
    """Accept the number of a pass."""
    return number(name, value, 0)


def integer(least: int, unit: str = "", most: int = _MOST) -> Check:
    """Return `number` with these bounds, as a check."""
    return lambda name, value: number(name, value, least, unit, most)


def seconds(name: str, value: Any) -> float:
    """Accept a time to wait, in seconds. It may be infinite."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, bytearray)):
            raise TypeError
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        refuse(name, "None or seconds", value)
    return x if x >= 0 else refuse(name, "None or seconds, at least 0", value, InvalidArgument)


def real(name: str, value: Any) -> float:
    """Accept a finite number, but no bool."""
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
    """Accept True and False of Python and NumPy. Other values are refused, although they have a truth value."""
    if not isinstance(value, (bool, np.bool_)):
        refuse(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any) -> str:
    """Accept text that C can represent: UTF-8 without a zero byte."""
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
    """Accept the name of a file: all that `os.fsencode` accepts, except zero bytes."""
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


def start_method(name: str, value: Any) -> str:
    """Accept a start method of multiprocessing."""
    if value not in ("spawn", "forkserver", "fork"):
        refuse(name, "spawn, forkserver or fork", value, InvalidArgument)
    return str(value)


def instance(kind: type | tuple[type, ...], expected: str) -> Check:
    """Return a check that accepts objects of a class."""

    def checked(name: str, value: Any) -> Any:
        return value if isinstance(value, kind) else refuse(name, expected, value)

    return checked


def function(name: str, value: Any) -> Any:
    """Accept a callable."""
    if isinstance(value, Generator) and not callable(value):
        made_by = getattr(value, "__name__", "")
        hint = f"pass {made_by}, not {made_by}()" if made_by.isidentifier() else "pass a function that returns it"
        raise ArgumentTypeError(f"{name}: expected a function, found {format_value(value)}: {hint}") from None
    return value if callable(value) else refuse(name, "a function", value)


def mapping(name: str, value: Any) -> Any:
    """Accept a mapping whose keys are str."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping", value)
    for key in value:
        if not isinstance(key, str):
            refuse(name, "a mapping whose keys are str", key)
    return value


def items(name: str, value: Any, expected: str) -> list[Any]:
    """Return the elements of an ordered iterable. Text and bytes are single values, and dicts and sets are refused."""
    if not isinstance(value, Iterable) or isinstance(
        value, (str, bytes, bytearray, memoryview, Mapping, set, frozenset)
    ):
        refuse(name, expected, value)
    try:
        return list(value)
    except TypeError:  # such as an array without dimensions
        refuse(name, expected, value)


def each(check: Check, expected: str) -> Check:
    """Return a check that accepts a sequence, if another check accepts each element."""

    def checked(name: str, value: Any) -> list[Any]:
        return [check(f"{name}[{i}]", element) for i, element in enumerate(items(name, value, expected))]

    return checked


names = each(text, "a sequence of str")


# ---- Calls -----------------------------------------------------------------------------------


def validate(**checks: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of a function.

    Parameters
    ----------
    **checks
        The checks, by the names of arguments. The check of an argument such as ``*others`` is applied to each
        element. A check whose name is no argument of the function is that of a keyword which the function passes
        on by ``**reading``. All other keywords are refused, unless there is a check with the name of the ``**``
        argument itself, such as ``options``.

    Notes
    -----
    Unknown keywords, and too few or too many arguments, raise `ArgumentTypeError`, which names the function. A
    function without checks, such as one that is called for each record, is called at once. Its arguments are
    compared with its signature only after the call has failed with a `TypeError`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own: Callable[..., Any] = getattr(function, "__wrapped__", function)  # below contextlib.contextmanager
        known: _Signature | None = None  # made by the first call: making all of them at import took 3 ms

        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal known
            signature = known = known or _Signature.of(own, checks)
            signature.match(len(args), kwargs)
            given = [checks[n](n, x) if n in checks else x for n, x in zip(signature.positions(), args, strict=False)]
            named = {n: checks[n](n, x) if n in checks else x for n, x in kwargs.items()}
            return function(*given, **named)  # type: ignore[arg-type]

        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                # Without a further frame, this call itself has failed, not code inside of the function.
                if error.__traceback__ is None or error.__traceback__.tb_next is None:
                    _Signature.of(own, checks).match(len(args), kwargs)
                raise

        return functools.wraps(function)(called if own is function and not checks else checked)

    return decorate


class _Signature:
    """The arguments of a function."""

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
        self.own = int(positional[:1] in (("self",), ("cls",)))  # 1 for a method
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
        """Return the names of the arguments by position."""
        return itertools.chain(self.positional, itertools.repeat(self.more or ""))

    def match(self, count: int, keywords: Collection[str]) -> None:
        """Check the number of positional arguments, and the names of the keyword arguments."""
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

        close = [n for n in (_TF_DATA.get(name),) if n in self.keywords]
        close = close or difflib.get_close_matches(name, self.keywords, 1)
        expected = f"one of the arguments {', '.join(self.keywords)}" if self.keywords else "no keyword"
        self._refuse(f"expected {expected}, found {name!r}" + (f": did you mean {close[0]!r}?" if close else ""))


_TF_DATA = {"drop_remainder": "drop_last", "num_parallel_calls": "num_threads", "cycle_length": "interleave"}
_MORE, _KEYWORDS = 4, 8  # flags of a code object: the function has *args, **kwargs


def refuse_call(
    function: str,
    names: tuple[str, ...],
    positional: int,
    unnamed: int,
    required: int,
    count: int,
    keywords: tuple[str, ...],
) -> NoReturn:
    """Raise the error for a wrong call of a C function, whose first `required` arguments are required."""
    signature = _Signature(
        function, names[:positional], names[positional:], frozenset(names[:required]), unnamed=unnamed
    )
    signature.match(count, keywords)
    raise ArgumentTypeError(f"{function}: expected other arguments, found {count} and {keywords}")
