"""Prints what ranks print, with a tag before each line."""

import contextlib
import os
from collections.abc import Callable
from typing import Final

#: The greatest numbers of bytes of a line, and of a read.
_MAX_LINE: Final = 1 << 16
_READ: Final = 1 << 16


def tag(name: str) -> Callable[[bytes], bytes]:
    """Return a function that puts a name before a line."""
    return f"[{name}] ".encode().__add__


class TaggedOutput:
    """The pipes from the ranks of a launcher, which has one thread and so never waits for them."""

    def __init__(self) -> None:
        self._pipes: dict[int, int] = {}  # the ends to read from, by the ends to write to
        self._streams: dict[int, tuple[Callable[[bytes], bytes], int, bytearray]] = {}

    @property
    def descriptors(self) -> list[int]:
        """The pipes to wait for."""
        return list(self._streams)

    def open(self) -> int:
        """Return a pipe for a process to write to; `add` says what becomes of what it writes."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._pipes[write] = read
        return write

    def add(self, pipe: int, mark: Callable[[bytes], bytes], target: int) -> None:
        """Write each line from a pipe of `open` that `mark` returns to the descriptor `target`."""
        os.close(pipe)  # The process has it.
        self._streams[self._pipes.pop(pipe)] = (mark, target, bytearray())

    def copy(self, *, is_last: bool = False) -> None:
        """Copy what has arrived; the last time also lines without an end."""
        for pipe, (mark, target, line) in list(self._streams.items()):
            is_open = True
            with contextlib.suppress(BlockingIOError):
                while is_open and (is_last or len(line) < _MAX_LINE):
                    part = os.read(pipe, _READ)
                    line += part
                    is_open = bool(part)
            is_over = is_last or not is_open
            # A progress bar ends its lines with a carriage return.
            lines = bytes(line).splitlines(keepends=True)
            line.clear()
            if lines and not lines[-1].endswith(b"\n"):
                if is_over or len(lines[-1]) >= _MAX_LINE:
                    lines[-1] += b"\n"
                else:
                    line += lines.pop()
            if not _write(target, b"".join(map(mark, lines))) or is_over:
                del self._streams[pipe]
                os.close(pipe)


def _write(target: int, text: bytes) -> bool:
    """Write all of a text; return whether anybody reads it."""
    try:
        while text:
            text = text[os.write(target, text) :]
    except OSError:
        return False
    return True
