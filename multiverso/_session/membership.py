"""The workers that have joined an elastic session and left it, and a thread that watches them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from multiverso._native import supported
from multiverso.errors import MultiversoError

if TYPE_CHECKING:
    from multiverso._session.session import Session

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


def membership_of(session: Session) -> Membership:
    """Return the current membership; see `Session.membership`."""
    supported.check("membership", *session.options.features())
    # The ranks that have left are read first: each of them had joined before the next line counts.
    left = session.lost_ranks()
    joined = tuple(range(session.size))
    return Membership(len(joined) + len(left), joined, left)


def watch(session: Session, callback: Any) -> None:
    """Call a function after changes; see `Session.on_membership`."""
    if not callable(callback):
        msg = f"callback: expected a function, received {callback!r}"
        raise TypeError(msg)
    seen = membership_of(session)
    threading.Thread(
        target=_watch, args=(session, callback, seen), name="multiverso: membership", daemon=True
    ).start()


def _watch(session: Session, callback: Callable[[Membership], None], seen: Membership) -> None:
    while not session.ended.wait(_INTERVAL):
        try:
            current = membership_of(session)
        except MultiversoError:  # The session has ended meanwhile.
            return
        if current.version == seen.version:
            continue
        seen = current
        try:
            callback(current)
        except Exception:
            _log.exception("the callback of Session.on_membership failed")
