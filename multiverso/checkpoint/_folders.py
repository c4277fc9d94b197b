"""Finds checkpoints in a folder."""

from __future__ import annotations

from typing import Any

from multiverso._native import checkpoint_calls
from multiverso._native.places import StrPath


def saved_in(directory: StrPath) -> list[Any]:
    """Return the checkpoints in a folder, in the order of saving; none if the folder is missing.

    Each is a `Path`; if the folder is an address, a str.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder, mv.session():
    ...     table = mv.ArrayTable(2, name="w")
    ...     mv.save(folder, step=10)
    ...     mv.save(folder, step=20)
    ...     [path.name for path in mv.checkpoint.saved_in(folder)]
    ['000001-step-10', '000002-step-20']

    """
    return checkpoint_calls.saved_in(directory)


def latest(directory: StrPath) -> Any:
    """Return the checkpoint that was saved last in a folder, or None.

    Only the names in the folder are read; loading the checkpoint verifies its contents. If the
    folder is an address, so is the result.

    Examples
    --------
    >>> import tempfile
    >>> import multiverso as mv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(mv.checkpoint.latest(folder))
    None

    """
    found = saved_in(directory)
    return found[-1] if found else None
