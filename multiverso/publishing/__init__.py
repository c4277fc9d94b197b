"""Publishing a session's tables to other processes: in shared memory, and through a folder.

`publish` marks a version, which readers on this machine get with `multiverso.attach`. With ``to=``
it also writes the version to a folder, for readers on any machine that sees it, which `follow` it.
"""

import contextlib
import os
import threading
from typing import Any, Literal

from multiverso import _session
from multiverso._native import arguments, places
from multiverso._session.leaving import CLOSED_FIRST
from multiverso.publishing._following import follow
from multiverso.publishing._tables import (
    FollowedArray as FollowedArray,
    FollowedRows as FollowedRows,
    FollowedTable as FollowedTable,
)
from multiverso.readers import View

__all__ = ["follow", "publish"]

# The former name of the views of folders.
FollowedView = View


@arguments.suggests_names
def publish(
    step: int = 0,
    *,
    to: str | os.PathLike[str] | None = None,
    dtype: Literal["bfloat16"] | None = None,
    full_every: int = 10,
    keep: int = 3,
) -> int:
    """Show all tables, as they are now, to readers as one version. Collective over all ranks.

    Readers on this machine get the tables with `View.cut`. The first two calls copy all tables to
    shared memory, which they keep; later ones copy what has changed since the call before the last
    one. So a job that publishes uses up to three times the memory of its tables.

    With `to`, a thread of one rank on each node also writes what has changed to a folder while the
    workers continue, and `follow` reads it on any machine. It keeps one more copy of the tables. A
    call waits until the publication before the last one has been written.

    Parameters
    ----------
    step : int, optional
        A number for the readers, such as the batch, 0 or more.
    to : path, optional
        A folder that all nodes see, for this job alone; with the package fsspec, also an address
        such as "s3://bucket/folder".
    dtype : {"bfloat16", None}, optional
        "bfloat16" rounds float32 in the folder, so that most values do not differ after a step.
    full_every : int, optional
        Every so many publications, all values are written, for readers that come late.
    keep : int, optional
        How many publications stay readable in the folder.

    Returns
    -------
    int
        The version in the session: 1, 2, ... The folder has numbers of its own, which
        the next job continues.

    Raises
    ------
    StateError
        If no session is open, or the session has no name; with `to`, if its options exclude that
        (docs/supported.md), or another job publishes to the folder.
    PublicationError, CheckpointIOError
        With `to`, on the rank that writes, if the folder cannot be used, or an earlier publication
        could not be written, as on a full disk. The other ranks get a `MismatchError`, and the next
        one is full.
    MemoryError
        On all ranks, if there is not enough memory. Readers keep the last version.
    MismatchError, OperationTimeout, PeerLostError, AbortedError
        If not all ranks make the call with the same step, or a publication takes too long.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.ArrayTable(10)
    ...     mv.publish(step=100)
    1

    """
    session = _session.current()
    publishers = session.companions.setdefault(CLOSED_FIRST, [])
    step = arguments.integer(step, "step", 0)
    rounds = dtype is not None and arguments.choice(dtype, "dtype", ("bfloat16",)) is not None
    full_every = arguments.integer(full_every, "full_every", 1)
    keep = arguments.integer(keep, "keep", 1)
    path = None if to is None else _path(to)
    if path is None and not publishers:
        return session.publish(step)
    # The import is here, because most programs do not publish to a folder.
    from multiverso.publishing._publisher import Options, Publisher, require_supported

    options = Options(rounds, full_every, keep)
    if path is not None:
        require_supported(session)
    # A session without a name refuses to publish, so nothing may be written before that.
    if session.local_rank > 0 or not session.options.name:
        return session.publish(step)
    with _turn:
        seen: dict[int, int] = {}
        publisher = None
        try:
            publisher = next((one for one in publishers if one.path == path), None)
            if publisher is None and path is not None:
                publisher = Publisher(session, path)
                publishers.append(publisher)
            for one in publishers:
                one.make_room(session)
            if publisher is not None:
                seen = publisher.prepare(session)
        except BaseException:
            if session.size > 1:  # The others get a MismatchError, because of the other step.
                with contextlib.suppress(Exception):
                    session.publish(step + 1)
            _restart(publishers)
            raise
        try:
            version = session.publish(step)
        except BaseException:
            _restart(publishers)
            raise
        if publisher is not None:
            publisher.start(session, version, step, seen, options)
        return version


#: Held by a rank that publishes, of whose threads only one may. The same thread may take it again,
#: in case an exception has kept it from being released.
_turn = threading.RLock()


def _path(to: str | os.PathLike[str]) -> str:
    """Return the same text for the same folder."""
    place = places.path_or_address(to, "to")
    return place if places.is_address(place) else os.path.realpath(place)


def _restart(publishers: list[Any]) -> None:
    """Let the next publications be full on all nodes, because one of them has failed."""
    for publisher in publishers:
        publisher.restart()
