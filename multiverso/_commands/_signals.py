"""The signals that stop the job of a command, and the exit code of the command."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

#: The signals that stop a job and prevent a restart.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Yield a list to which the signals that stop the job are appended when they arrive."""
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in _SIGNALS
    }
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def exit_code(code: int, received: list[int]) -> int:
    """Return the exit code of the command for that of the job, which is -N for an end by signal N.

    As in a shell, it is 128 + N then. After Ctrl-C it always is. After SIGTERM the code of the job
    counts, because it says whether the ranks have saved.
    """
    if received and received[0] != signal.SIGTERM:
        return 128 + received[0]
    return code if code >= 0 else 128 - code
