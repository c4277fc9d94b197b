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
    """Return 128 + N for an end by signal N, as a shell does; Popen has -N.

    After SIGTERM, the code of a rank that has failed stays: 143 would say that it has saved.
    """
    code = code if code >= 0 else 128 - code
    if not received or (received[0] == signal.SIGTERM and code):
        return code
    return 128 + received[0]
