"""Finds checkpoints in a folder."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from multiverso._native.places import StrPath, path

#: The name of a checkpoint's folder: its number in the order of saving, and its step.
_FOLDER_NAME: Final = re.compile(r"(?P<number>[0-9]{6,})-step-(?P<step>[0-9]+)")


def saved_in(directory: StrPath) -> list[Path]:
    """Return the checkpoints in a folder, in the order of saving; none if the folder is missing.

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
    folder = Path(path(directory, "directory"))
    found = []
    names = []
    with contextlib.suppress(FileNotFoundError):  # A file in the place of a folder is an error.
        names = os.listdir(folder)
    for name in names:
        if match := _FOLDER_NAME.fullmatch(name):
            number, step = int(match["number"]), int(match["step"])
            if name == f"{number:06}-step-{step}" and max(number, step) < 2**63:
                found.append((number, folder / name))
    return [checkpoint for _, checkpoint in sorted(found)]


def latest(directory: StrPath) -> Path | None:
    """Return the checkpoint that was saved last in a folder, or None.

    Only the names in the folder are read; loading the checkpoint verifies its contents.

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
