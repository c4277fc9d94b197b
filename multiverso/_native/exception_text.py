"""Why this rank gives up, in one line for the other ranks to read."""

import traceback
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).parents[1])

#: Longer texts say no more to a reader of another rank's message.
_LIMIT = 300


def describe(error: BaseException) -> str:
    """Return ``"ValueError: bad batch (train.py:31)"`` for an exception.

    The place is the innermost line that does not belong to Multiverso, looked for in the
    traceback and then, since a traceback begins where the exception is caught, in its callers.
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
