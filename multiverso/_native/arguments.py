"""Checks of the arguments that are single values: integers, numbers, flags, choices, names.

Each check returns the value in the form that the library takes, or raises TypeError or ValueError
with "WHAT: expected ..., received ...". The parameter `what` is the name of the argument.
"""

import functools
import inspect
import math
import numbers
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from multiverso._native import capi

#: The most bytes in the name of a table or a session, in UTF-8.
MAX_NAME_BYTES: Final = 63

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")

#: The library accepts at most a year. A longer time is cut to a year, which no job notices.
_MAX_SECONDS: Final = 365 * 24 * 3600.0


def integer(value: Any, what: str, least: int, bits: int = 63) -> int:
    """Return an int from `least` to ``2**bits - 1``; raise TypeError for a bool or another type."""
    given, value = value, _plain(value)
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        value = given
        msg = f"{what}: expected an int, received {value!r} of type {type(value).__name__}"
        if isinstance(value, list | tuple) and len(value) == 1:
            msg += f"; write {value[0]!r}"
        elif isinstance(value, float) and value.is_integer():
            msg += f"; write {int(value)}"
        raise TypeError(msg)
    number = operator.index(value)
    if not least <= number < 2**bits:
        raise ValueError(f"{what}: expected {least} to 2**{bits}-1, received {number}")
    return number


def finite(value: Any, what: str, expected: str = "a finite number") -> float:
    """Return a finite number as a float; raise TypeError for bools and other types."""
    plain = _plain(value)
    if isinstance(plain, bool | np.bool_) or not isinstance(plain, numbers.Real):
        raise TypeError(f"{what}: expected {expected}, received {value!r}")
    try:
        number = float(plain)
    except OverflowError:  # `value` is an int or a fraction beyond the range of a float.
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{what}: expected {expected}, received {value!r}")
    return number


def between(value: Any, what: str, least: float, most: float = math.inf) -> float:
    """Return a finite number from `least` to `most` as a float; raise as `finite` for others."""
    expected = (
        f"a number >= {least:g}" if most == math.inf else f"a number from {least:g} to {most:g}"
    )
    number = finite(value, what, expected)
    if not least <= number <= most:
        raise ValueError(f"{what}: expected {expected}, received {value!r}")
    return number


def _plain(value: Any) -> Any:
    """Return the content of an array without dimensions, None for other arrays, else the value."""
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(value, type):
        return value
    if tuple(shape) != ():
        return None
    scalar = np.asarray(value.item() if hasattr(value, "item") else value.numpy())
    # The scalars of bfloat16 are no numbers for Python.
    return float(scalar) if scalar.dtype.kind == "V" else scalar.item()


def seconds(value: Any, what: str, advice: str = "") -> float:
    """Return a number of seconds above 0 as a float; more than a year is cut to a year."""
    expected = f"a finite number of seconds above 0{advice}"
    number = finite(value, what, expected)
    if number <= 0:
        raise ValueError(f"{what}: expected {expected}, received {value!r}")
    return min(number, _MAX_SECONDS)


def limit(value: Any, what: str) -> float | None:
    """Return a number of seconds as `seconds` does, or None, which means a wait without a limit."""
    return None if value is None else seconds(value, what, ", or None for no limit")


def milliseconds(limit: float | None) -> int:
    """Return a `limit` for the library."""
    return capi.MV_NO_LIMIT if limit is None else math.ceil(limit * 1000)


def flag(value: Any, what: str, advice: str = "") -> bool:
    """Return a bool or a NumPy bool as a bool; raise TypeError, with advice, for anything else."""
    if not isinstance(value, bool | np.bool_):
        # The value may be a long list that the caller meant as another argument.
        raise TypeError(f"{what}: expected True or False, received {reprlib.repr(value)}{advice}")
    return bool(value)


def several(values: Any, what: str, one: type[Any] | tuple[type[Any], ...] = (str, bytes)) -> Any:
    """Return an iterable; raise TypeError for a single item, which may be iterable itself."""
    if isinstance(values, one) or not hasattr(values, "__iter__"):
        one_text = reprlib.repr(values)
        msg = f"{what}: expected several, received {one_text}; for one, write [{one_text}]"
        raise TypeError(msg)
    return values


def choice(
    value: Any, what: str, choices: Iterable[str], former: Mapping[str, str] | None = None
) -> str:
    """Return one of `choices`; the message about one of `former` says what to write instead."""
    allowed = tuple(choices)
    if not isinstance(value, str) or value not in allowed:
        msg = f"{what}: expected one of {', '.join(map(repr, allowed))}, received {value!r}"
        if not isinstance(value, str):
            raise TypeError(msg)
        if former and value in former:
            msg += f"; {former[value]}"
        else:
            msg += suggestion(value, allowed)
        raise ValueError(msg)
    return value


def suggestion(name: str, allowed: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """Return "; did you mean 'X'?" for a similar allowed name or that of an alias, else ""."""
    names = tuple(allowed)
    alias = (aliases or {}).get(name, "")
    import difflib  # It is here, because it would delay the start of every rank.

    similar = [alias] if alias in names else difflib.get_close_matches(name.lower(), names, 1)
    return f"; did you mean {similar[0]!r}?" if similar else ""


def suggests_names(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the TypeError about an unknown argument suggest a name, as Python does from 3.13 on."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in names:
                msg = f"{function.__name__}: expected no argument {name!r}"
                raise TypeError(msg + suggestion(name, names))
        return function(*args, **kwargs)

    return call


def takes_arguments_of(
    model: Callable[_P, _T],
) -> Callable[[Callable[[_T], _R]], Callable[_P, _R]]:
    """Let a function of the result of `model` take the arguments of `model` instead."""

    def decorate(function: Callable[[_T], _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return function(model(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        shown = inspect.signature(model).replace(return_annotation=returned)
        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return decorate


def text(value: Any, what: str) -> str:
    """Return a str that is neither empty nor contains NUL, which would end it in C."""
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a str, received {value!r}")
    if not value or "\0" in value:
        msg = f"{what}: expected one or more characters, none of them NUL, received {value!r}"
        raise ValueError(msg)
    return value


def name(value: Any, what: str = "name") -> str:
    """Return the name of a table or a session, which the library stores in 64 bytes."""
    checked = text(value, what)
    try:
        length = len(checked.encode())
    except UnicodeEncodeError as error:
        msg = f"{what}: expected characters that UTF-8 has, received {value!r}"
        raise ValueError(msg) from error
    if length > MAX_NAME_BYTES:
        raise ValueError(
            f"{what}: expected at most {MAX_NAME_BYTES} bytes in UTF-8, received {length} bytes: "
            f"{value!r}; shorten it so that it still differs from other names"
        )
    return checked
