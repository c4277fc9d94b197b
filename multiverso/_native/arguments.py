"""Checks of the plain values that users pass: integers, numbers, flags, choices, names.

Each check returns the value in the form that the library takes, or raises TypeError or ValueError
with "expected ..., received ...".
"""

import math
import numbers
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np


def integer(value: Any, what: str, least: int, bits: int = 63) -> int:
    """Return an integer from `least` to ``2**bits - 1``; raise TypeError for bools and floats."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        msg = f"{what}: expected an int, received {value!r} of type {type(value).__name__}"
        raise TypeError(msg)
    number = operator.index(value)
    if not least <= number < 2**bits:
        msg = f"{what}: expected {least} to 2**{bits}-1, received {number}"
        raise ValueError(msg)
    return number


def finite(value: Any, what: str, expected: str = "a finite number") -> float:
    """Return a finite number as a float; raise TypeError for bools."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        msg = f"{what}: expected {expected}, received {value!r}"
        raise TypeError(msg)
    try:
        number = float(value)
    except OverflowError:  # An int is beyond the range of a float.
        number = math.inf
    if not math.isfinite(number):
        msg = f"{what}: expected {expected}, received {value!r}"
        raise ValueError(msg)
    return number


def flag(value: Any, what: str) -> bool:
    """Return a bool, also of NumPy's type; raise TypeError for anything else."""
    if not isinstance(value, bool | np.bool_):
        msg = f"{what}: expected True or False, received {value!r}"
        raise TypeError(msg)
    return bool(value)


def choice(value: Any, what: str, choices: Iterable[str]) -> str:
    """Return one of `choices`; raise TypeError unless `value` is a str, ValueError for others."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        msg = f"{what}: expected one of {', '.join(map(repr, known))}, received {value!r}"
        raise ValueError(msg) if isinstance(value, str) else TypeError(msg)
    return value


def text(value: Any, what: str) -> str:
    """Return a str that C can hold; raise an error if `value` is empty or contains NUL."""
    if not isinstance(value, str):
        msg = f"{what}: expected a str, received {value!r}"
        raise TypeError(msg)
    if not value or "\0" in value:
        msg = f"{what}: expected one or more characters, none of them NUL, received {value!r}"
        raise ValueError(msg)
    return value
