"""Describes an exception in one line: the reason that other ranks receive when this rank fails."""

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from multiverso.errors import MultiversoError

#: The frames that are not the user's: those of Multiverso, and of Python's imports and runpy.
_SKIPPED = (str(Path(__file__).parents[1]) + os.sep, "<frozen ")

#: The greatest number of characters of a description, without the user's line at its end.
_MAX_TEXT = 300


def describe(error: BaseException) -> str:
    """Return a description such as ``"ValueError: bad batch (train.py:31)"``.

    It ends with the innermost line outside Multiverso. The traceback leads only from the frame that
    caught the exception to the one that raised it. If all its frames are inside Multiverso, the
    callers of this function are searched.
    """
    summary = traceback.TracebackException(type(error), error, None, compact=True)
    summary.__notes__ = None  # Otherwise the notes would follow the message, which is last.
    text = list(summary.format_exception_only())[-1].rstrip()
    if isinstance(error, MultiversoError):
        text = text.removesuffix(error.advice)
    text = " ".join(text.split())
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 3] + "..."
    line = _user_line(error.__traceback__)
    return f"{text} ({line})" if line else text


def name_of_file(file: str) -> str:
    """Return the name of a file of code; for a cell of a notebook, "Cell In[3]" as IPython does."""
    # IPython is imported already if it runs this program.
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = None if shell is None else shell.compile.format_code_name(file)
    return file if cell is None else " ".join(cell)


def uncaught_exception() -> BaseException | None:
    """At exit, return the exception that has ended the script, if any, except SystemExit."""
    # At a prompt `sys.last_value` is an older exception, which has ended nothing.
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _user_line(traceback_: TracebackType | None) -> str | None:
    inner = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(traceback_)]
    outer = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
    for file, line in inner[::-1] + outer:
        if not file.startswith(_SKIPPED):
            return f"{Path(name_of_file(file)).name}:{line}"
    return None
