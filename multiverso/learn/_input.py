"""Checks of the input of users, and the error that the checks raise."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._native import places
from multiverso._native.arguments import several

#: The greatest number of characters of another error's message in an InputError.
_MAX_REASON: Final = 300


class InputError(ValueError):
    """A model, a data file or an option cannot be used; the message gives the reason.

    `MPIManager.train` raises InputError on all ranks: before training starts, unless only training
    can reveal the cause.

    Examples
    --------
    >>> from multiverso.learn import Data, InputError
    >>> try:
    ...     Data(batch_size=0)
    ... except InputError as error:
    ...     print("batch_size" in str(error))
    True

    """


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if the message is empty."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, lines), "") or type(error).__name__


@contextlib.contextmanager
def as_input_error(problem: str = "", *types: type[Exception]) -> Iterator[None]:
    """Turn an exception of `types`, by default of any, into an InputError about `problem`."""
    types = types or (Exception,)
    try:
        yield
    except types as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        if len(reason) > _MAX_REASON:  # Keras' errors may contain the whole configuration.
            reason = reason[: _MAX_REASON - 3] + "..."
        raise InputError(f"{problem}: {reason}" if problem else reason) from error


def names_of(files: Any, what: str) -> list[str]:
    """Return the names of files as a list; raise TypeError for one name, which has characters."""
    names = several(files, what, (str, bytes, os.PathLike))
    return [os.fsdecode(name) if isinstance(name, bytes) else str(name) for name in names]


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the content of a UTF-8 text file; raise InputError if it cannot be read."""
    with as_input_error(f"cannot read {path} as text in UTF-8", OSError, ValueError):
        return Path(places.path(path, "file")).read_text("utf-8")
