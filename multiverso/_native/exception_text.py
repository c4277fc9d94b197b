"""Describes an exception in one line, which other ranks report as the reason why a rank left."""

import traceback
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).parents[1])

#: The greatest number of characters in a description.
_LIMIT = 300


def describe(error: BaseException) -> str:
    """Return a description such as ``"ValueError: bad batch (train.py:31)"``.

    The place is the innermost line outside Multiverso. The traceback is searched first and then the
    callers of this function, because a traceback starts where the exception is caught.
    """
    text = "".join(traceback.format_exception_only(error)[-1:]).strip()
    if len(text) > _LIMIT:
        text = text[: _LIMIT - 3] + "..."
    place = _place(error.__traceback__)
    return f"{text} ({place})" if place else text


def _place(trace: TracebackType | None) -> str | None:
    inner = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)][::-1]
    outer = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
    for file, line in inner + outer:
        if not file.startswith((_PACKAGE, "<frozen")):
            return f"{Path(file).name}:{line}"
    return None
