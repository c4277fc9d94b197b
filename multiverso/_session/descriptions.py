"""The functions that describe the session of this process, and those of its membership."""

from __future__ import annotations

from collections.abc import Callable

from multiverso._session.membership import Membership
from multiverso._session.process import current, find
from multiverso._session.session import Session


def current_session() -> Session:
    """Return the open session.

    Raises
    ------
    StateError, ForkedError
        If no session is open, or this is a forked child of a process that has one.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     mv.api.current_session() is session
    True

    """
    return current()


def lost_ranks() -> tuple[int, ...]:
    """Return the result of `Session.lost_ranks`, which replaces this function."""
    return current().lost_ranks()


def leave() -> None:
    """Call `Session.leave`, which replaces this function."""
    current().leave()


def membership() -> Membership:
    """Return the result of `Session.membership`, which replaces this function."""
    return current().membership()


def on_membership(callback: Callable[[Membership], None]) -> None:
    """Call `Session.on_membership`, which replaces this function."""
    current().on_membership(callback)


def is_initialized() -> bool:
    """Return whether a session is open in this process.

    Examples
    --------
    >>> import multiverso as mv
    >>> mv.is_initialized()
    False

    """
    return find() is not None


def rank() -> int:
    """Return the rank of this process in the session, from 0.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.rank()
    0

    """
    return current().rank


def size() -> int:
    """Return the number of ranks in the session; if elastic, of those that have ever joined.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.size()
    1

    """
    return current().size


def num_workers() -> int:
    """Return the number of ranks that train; in an elastic session, their current number.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mine = range(10)[mv.worker_id() :: mv.num_workers()]
    ...     len(mine)
    10

    """
    return current().num_workers


def num_servers() -> int:
    """Return the number of ranks that keep a part of the tables.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     session.num_servers
    1

    """
    return current().num_servers


def workers_num() -> int:
    """Return `num_workers`; older scripts use this name."""
    return num_workers()


def servers_num() -> int:
    """Return `num_servers`; older scripts use this name."""
    return num_servers()


def worker_id() -> int:
    """Return the index of this worker, from 0 in rank order; -1 on a rank that is not a worker.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     mv.worker_id()
    0

    """
    return current().worker_id


def server_id() -> int:
    """Return the index of this server, from 0 in rank order; -1 on a rank that is not a server.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     session.server_id
    0

    """
    return current().server_id


def is_master_worker() -> bool:
    """Return whether this is the master: its initial values are used; it usually prints and saves.

    The master is worker 0, or the first remaining worker if the session continues without worker 0.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session():
    ...     if mv.is_master_worker():
    ...         print("written once")
    written once

    """
    return current().is_master_worker()
