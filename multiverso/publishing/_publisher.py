"""The job's side: hands what the session publishes to a thread, which writes it to a folder."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiverso import initializers
from multiverso._native import supported
from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso._native.remote import Job, Sender
from multiverso.errors import StateError
from multiverso.publishing._encoding import NAMES, Encoder, RowsEncoder, dense_encoder
from multiverso.publishing._format import Tensor
from multiverso.publishing._writer import Place, Writer
from multiverso.readers import View, attach
from multiverso.readers._memory import MemoryTable, OutdatedError
from multiverso.tables import MatrixTable

if TYPE_CHECKING:
    from multiverso._session import Session


class Options(NamedTuple):
    """What the program wants of a publication; see `multiverso.publish`."""

    rounds: bool
    full_every: int
    keep: int


class _Failed(Job):
    """A version that could not be made, and which the other nodes count."""

    version = 0
    tables: dict[str, tuple[MemoryTable, Encoder]]

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer
        self.tables = {}

    def do(self) -> None:
        """Count it, and let the next publication be full."""
        self._writer.count()
        self._writer.restart()


class _Version(_Failed):
    """A version that is to be written, with the tables that it has by name.

    `ranges` has the rows that may have changed, of the tables with an initializer by their numbers.
    """

    def __init__(
        self,
        writer: Writer,
        version: int,
        step: int,
        options: Options,
        tables: dict[str, tuple[MemoryTable, Encoder]],
        ranges: dict[int, NDArray[np.int64]],
    ) -> None:
        super().__init__(writer)
        self.version, self.step, self.options = version, step, options
        self.tables, self.ranges = tables, ranges

    def do(self) -> None:
        """Write it."""
        self._writer.count()  # The other nodes do, too, whatever becomes of it here.
        try:
            _write(self, self._writer)
        except BaseException:
            # Parts of the copies are newer than what was written, so the next one is full.
            self._writer.restart()
            raise


class Publisher:
    """Writes this node's rows of a session's versions to the folder `path`, in their order."""

    def __init__(self, session: Session, path: str) -> None:
        self.path = path
        described = read_description(checked.MV_SessionStats, session.handle)
        number, timeout = f"{described['session']:016x}", session.options.timeout
        self._writer = Writer(path, Place(number, session.node, session.num_nodes, timeout))
        self._encoders: dict[int, Encoder] = {}
        self._seen: dict[int, int] = {}  # versions of lazy tables, for their lists of changes
        self._view: View | None = None
        weakref.finalize(self, self._writer.close)
        try:
            self._sender = Sender(f"a publication to {self._writer.name}", timeout)
        except BaseException:
            self._writer.close()
            raise

    def make_room(self, session: Session) -> None:
        """Wait until all versions before the last are written: the next call drops one."""
        here = _tables(session).keys()
        # An interrupt may have ended a call that has published, so the session itself is asked.
        last_version = 0 if self._view is None else self._view.version
        while (jobs := self._sender.jobs) and (
            jobs[0].version < last_version
            or not here >= {live._id for live, _ in jobs[0].tables.values()}
        ):
            self._sender.wait()

    def prepare(self, session: Session) -> dict[int, int]:
        """Raise what earlier publications have raised; return the versions of the lazy tables."""
        self._sender.check()
        return {key: self._changed(key, table)[1] for key, table in _lazy(session).items()}

    def start(
        self, session: Session, version: int, step: int, seen: dict[int, int], options: Options
    ) -> None:
        """Write a version, which the session has just published, in the background."""
        item: Job = _Failed(self._writer)
        try:
            item = self._job(session, version, step, options)
            self._sender.put(item)
            self._seen = seen
        except BaseException as error:
            if session.num_nodes > 1:  # The next call tells the other nodes.
                self._sender.failure = error
            self._sender.put(item)
            raise

    def _job(self, session: Session, version: int, step: int, options: Options) -> _Version:
        if self._view is None:
            self._view = attach(os.getpid())
        objects = _tables(session)
        shown: dict[str, Any] = self._view.tables
        tables = {
            name: (live, self._encoder(live, objects.get(live._id), options))
            for name, live in shown.items()
            if live.is_published
        }
        here = {live._id for live, _ in tables.values()}
        self._encoders = {key: one for key, one in self._encoders.items() if key in here}
        # What changes during this call is listed again in the next one, from `seen` on.
        ranges = {key: self._changed(key, table)[0] for key, table in _lazy(session).items()}
        return _Version(self._writer, version, step, options, tables, ranges)

    def restart(self) -> None:
        """Let the next publication be full, because this one has failed on some rank."""
        self._writer.restart()

    def close(self) -> None:
        """Wait for the last publication, and release the folder."""
        try:
            self._sender.check(waits=True)
        finally:
            self._sender.end()
            self._writer.close()

    def _changed(self, key: int, table: MatrixTable) -> tuple[NDArray[np.int64], int]:
        return table._list_changes(self._seen.get(key, 0))

    def _encoder(self, live: MemoryTable, table: Any, options: Options) -> Encoder:
        stored = NAMES[live._code]
        if options.rounds and stored == "F32":
            stored = "BF16"
        encoder = self._encoders.get(live._id)
        if encoder is None or encoder.stored != stored:
            if live.is_hash or _is_lazy(table):
                encoder = RowsEncoder(stored, live.dtype, _initial(table))
                self._seen.pop(live._id, None)  # All rows that have ever changed are listed.
            else:
                place = self._writer.place
                encoder = dense_encoder(table)(stored, place.node, place.nodes)
            self._encoders[live._id] = encoder
        return encoder


def _write(job: _Version, writer: Writer) -> None:
    is_full = writer.next_is_full(job.options.full_every)
    for live, encoder in job.tables.values():
        if isinstance(encoder, RowsEncoder) and live._id in job.ranges:
            encoder.candidates.append(job.ranges[live._id])
    records: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for name, (live, encoder) in job.tables.items():
        try:
            record, encoded = encoder.encode(name, live, job.version, is_full)
        except OutdatedError:
            msg = f"{writer.name}: the session has published more since version {job.version}"
            raise StateError(msg) from None
        records.append(record)
        tensors.update(encoded)
    writer.write(job.step, is_full, records, tensors, job.options.keep)


def require_supported(session: Session) -> None:
    """Raise StateError if the session cannot publish to a folder. All ranks find the same."""
    lazy = ["lazy rows"] if _lazy(session) else []
    supported.check("publish to a folder", *lazy, *session.features())


def _tables(session: Session) -> dict[int, Any]:
    """Return the open tables of a session by their numbers."""
    # A copy is made without Python collecting garbage, which may have tables, in the middle.
    found = {number: reference() for number, reference in session.created.copy().items()}
    return {number: table for number, table in found.items() if table is not None}


def _is_lazy(table: Any) -> bool:
    return isinstance(table, MatrixTable) and table.initializer is not None


def _lazy(session: Session) -> dict[int, MatrixTable]:
    return {key: table for key, table in _tables(session).items() if _is_lazy(table)}


def _initial(table: Any) -> float | None:
    """Return the initial value of each element, or None if there is not one for all."""
    match getattr(table, "initializer", None):
        case initializers.Zeros():
            return 0
        case initializers.Constant(value=value):
            return value
    return None
