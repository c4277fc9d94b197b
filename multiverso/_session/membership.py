"""The workers that have joined an elastic session and left it, and a thread that watches them."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from multiverso.errors import MultiversoError

_log = logging.getLogger("multiverso")

#: Seconds between two looks at the membership.
_INTERVAL: Final = 0.1


class Membership(NamedTuple):
    """The workers of an elastic session at one moment.

    Attributes
    ----------
    version : int
        The number of events so far: how many workers have joined plus how many have left.
    joined : tuple of int
        The ids of the workers that have ever joined, in ascending order.
    left : tuple of int
        The ids of those that have shut down, left or died since, in ascending order.

    Examples
    --------
    >>> from multiverso.api import Membership
    >>> Membership(version=3, joined=(0, 1), left=(0,)).workers
    (1,)

    """

    version: int
    joined: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def workers(self) -> tuple[int, ...]:
        """The ids of the workers that take part now, in ascending order."""
        left = set(self.left)
        return tuple(worker for worker in self.joined if worker not in left)


def watch(look: Callable[[], Membership], ended: threading.Event, callback: Any) -> None:
    """Call a function with what `look` returns, whenever that has changed, until the event."""
    if not callable(callback):
        raise TypeError(f"callback: expected a function, received {callback!r}")
    seen = look()

    def run() -> None:
        nonlocal seen
        while not ended.wait(_INTERVAL):
            try:
                before, seen = seen, look()
            except MultiversoError:  # The session has ended meanwhile.
                return
            if seen.version != before.version:
                try:
                    callback(seen)
                except Exception:
                    _log.exception("the callback of Session.on_membership failed")

    threading.Thread(target=run, name="multiverso: membership", daemon=True).start()
