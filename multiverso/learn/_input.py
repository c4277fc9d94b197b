"""Checks of the input of users, and the error that the checks raise."""

import contextlib
import math
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._native.arguments import flag, several

#: The greatest number of characters of another error's message in an InputError.
_MAX_REASON: Final = 300


class InputError(ValueError):
    """A model, a data file or an option cannot be used; the message gives the reason.

    `MPIManager.train` raises InputError on all ranks: before training starts, unless only training
    can reveal the cause.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if the message is empty."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), "") or type(error).__name__


@contextlib.contextmanager
def as_input_error(problem: str, *types: type[Exception]) -> Iterator[None]:
    """Turn an exception of `types`, by default of any, into an InputError about `problem`."""
    types = types or (Exception,)
    try:
        yield
    except types as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        if len(reason) > _MAX_REASON:  # Keras' errors may contain the whole configuration.
            reason = reason[: _MAX_REASON - 3] + "..."
        raise InputError(f"{problem}: {reason}") from error


def checked_integer(name: str, value: Any, minimum: int) -> int:
    """Return `value` as an int; raise InputError unless it is an integer >= `minimum`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < minimum:
        raise InputError(f"{name}: expected an integer >= {minimum}, received {value!r}")
    return int(value)


def checked_number(name: str, value: Any, maximum: float = math.inf) -> float:
    """Return `value` as a float; raise InputError unless it is a number from 0 to `maximum`."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) <= maximum:
        bounds = ">= 0" if maximum == math.inf else f"from 0 to {maximum:g}"
        raise InputError(f"{name}: expected a number {bounds}, received {value!r}")
    return float(value)


def checked_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool; raise InputError unless it is one."""
    try:
        return flag(value, name)
    except TypeError as error:
        raise InputError(str(error)) from None


def checked_names(name: str, value: Any) -> list[str]:
    """Return the names of files as a list; raise InputError for one name, which has characters."""
    try:
        return [str(item) for item in several(value, name, (str, bytes, os.PathLike))]
    except TypeError as error:
        raise InputError(str(error)) from None


def checked_seconds(name: str, value: Any) -> float:
    """Return `value` as a float; raise InputError unless it is above 0 and at most a year."""
    seconds = checked_number(name, value, 365 * 24 * 3600.0)
    if seconds == 0:
        raise InputError(f"{name}: expected a number of seconds above 0, received {value!r}")
    return seconds


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the content of a UTF-8 text file; raise InputError if it cannot be read."""
    with as_input_error(f"cannot read {path}", OSError):
        data = Path(path).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is not a text file in UTF-8") from error
