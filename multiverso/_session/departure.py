"""What is known about the end of a session at SIGTERM, and what its end needs of the session."""

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakMethod, ref

from multiverso._native.capi import MV_Session
from multiverso._native.places import StrPath
from multiverso._session.options import SessionOptions


class Departure:
    """What a session knows about its end at SIGTERM."""

    def __init__(self) -> None:
        # What the program has passed to its last `check_leaving`, which it may have called itself.
        self.last_step: int | None = None
        self.before: Callable[[], object] | None = None
        self.is_checked = False
        self.has_failed = False  # Whether a save, or what precedes it, has: it is not tried again.
        # What adapters do before this rank leaves: they add the deltas since their last syncs.
        self.last_calls: list[WeakMethod[Callable[[], None]]] = []

    def add_last_call(self, call: Callable[[], None]) -> None:
        """Let a method be called before this rank leaves, as long as its object lives."""
        self.last_calls[:] = [each for each in self.last_calls if each() is not None]
        self.last_calls.append(WeakMethod(call))

    def make_last_calls(self) -> None:
        """Do what adapters do before this rank leaves."""
        for reference in self.last_calls:
            if (call := reference()) is not None:
                call()


class Leaver(Protocol):
    """A session, as `notice` and `leaving` see it, which the file with its class imports."""

    options: SessionOptions
    handle: MV_Session
    closed: bool
    forked: bool
    companions: dict[str, list[Any]]
    created: dict[int, ref[Any]]
    departure: Departure

    def features(self) -> set[str]:
        """Return what the session uses."""

    def is_master_worker(self) -> bool:
        """Return whether this is the first remaining worker."""

    def save(
        self, directory: StrPath, step: Any, keep: Any, background: Any, incremental: Any
    ) -> None:
        """Save all tables."""

    def wait_for_save(self) -> None:
        """Wait for what is saved in the background."""

    def close(self) -> None:
        """End the session with all ranks."""

    def leave(self) -> None:
        """End this rank's part in a session that continues."""
