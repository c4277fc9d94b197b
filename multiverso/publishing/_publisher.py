"""The job's side: hands what the session publishes to a thread, which writes it to a folder."""

from __future__ import annotations

import os
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from multiverso import initializers
from multiverso._native import supported
from multiverso._native.library import checked
from multiverso._native.node_calls import read_description
from multiverso._native.threads import End, Thread
from multiverso.errors import OperationTimeout, StateError
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


class _Job(NamedTuple):
    """A version that is to be written, with the tables that it has by name."""

    version: int
    step: int
    options: Options
    tables: dict[str, tuple[MemoryTable, Encoder]]
    #: Ranges of rows that may have changed, of the tables with an initializer by their numbers.
    ranges: dict[int, NDArray[np.int64]]
    end: End


#: Stands for the version of a job that could not be made.
_FAILED: Final = "failed"
_Item: TypeAlias = _Job | Literal["failed"] | None


class Publisher:
    """Writes this node's rows of a session's versions to the folder `path`, in their order."""

    def __init__(self, session: Session, path: str) -> None:
        self.path = path
        described = read_description(checked.MV_SessionStats, session.handle)
        number = f"{described['session']:016x}"
        self._timeout = session.options.timeout
        self._writer = Writer(path, Place(number, session.node, session.num_nodes, self._timeout))
        self._encoders: dict[int, Encoder] = {}
        self._seen: dict[int, int] = {}  # versions of lazy tables, for their lists of changes
        self._view: View | None = None
        self._failure: BaseException | None = None  # which no call has raised yet
        self._jobs: list[_Job] = []  # that are not known to have ended
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        # The thread keeps nothing alive, and ends with this object, also if the session fails. The
        # interpreter does not wait for it.
        weakref.finalize(self, self._queue.put, None)
        weakref.finalize(self, self._writer.close)
        try:
            Thread(_run, self._queue, self._writer).start()
        except BaseException:
            self._writer.close()
            raise

    def make_room(self, session: Session) -> None:
        """Wait until all versions before the last are written: the next call drops one."""
        here = _tables(session).keys()
        # An interrupt may have ended a call that has published, so the session itself is asked.
        last_version = 0 if self._view is None else self._view.version
        while self._jobs and (
            self._jobs[0].version < last_version
            or not here >= {live._id for live, _ in self._jobs[0].tables.values()}
        ):
            self._wait()

    def prepare(self, session: Session) -> dict[int, int]:
        """Raise what earlier publications have raised; return the versions of the lazy tables."""
        while self._jobs and self._jobs[0].end.has_come:
            self._wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return {key: self._changed(key, table)[1] for key, table in _lazy(session).items()}

    def start(
        self, session: Session, version: int, step: int, seen: dict[int, int], options: Options
    ) -> None:
        """Write a version, which the session has just published, in the background."""
        item: _Item = _FAILED
        try:
            item = self._job(session, version, step, options)
            self._hand_over(item)
            self._seen = seen
        except BaseException as error:
            if session.num_nodes > 1:  # The next call tells the other nodes.
                self._failure = error
            self._hand_over(item)
            raise

    def _hand_over(self, item: _Item) -> None:
        """Give a job to the thread; a second time, after an interrupt, has no effect."""
        if isinstance(item, _Job) and all(item is not job for job in self._jobs):
            self._jobs.append(item)
        self._queue.put(item)

    def _job(self, session: Session, version: int, step: int, options: Options) -> _Job:
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
        return _Job(version, step, options, tables, ranges, End())

    def restart(self) -> None:
        """Let the next publication be full, because this one has failed on some rank."""
        self._writer.restart()

    def close(self) -> None:
        """Wait for the last publication, and release the folder."""
        try:
            while self._jobs:
                self._wait()
            if self._failure is not None:
                raise self._failure
        finally:
            self._queue.put(None)
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

    def _wait(self) -> None:
        """Wait for the first job; keep its failure for the next call with this folder."""
        end = self._jobs[0].end
        if not end.wait(self._timeout):
            limit = f"{self._timeout:g} s; timeout= sets the limit"
            msg = f"a publication to {self._writer.name} took longer than {limit}"
            raise OperationTimeout(msg)
        self._failure = end.error or self._failure
        del self._jobs[0]


def _run(queue: SimpleQueue[_Item], writer: Writer) -> None:
    """Write what is put into the queue, until None comes."""
    while (job := queue.get()) is not None:
        if job != _FAILED and job.end.has_come:
            continue
        writer.count()  # The other nodes count this version, too, whatever becomes of it here.
        if job == _FAILED:
            writer.restart()
            continue
        try:
            _write(job, writer)
        except BaseException as error:
            # Parts of the copies are newer than what was written, so the next one is full.
            writer.restart()
            job.end.set(error)
        else:
            job.end.set()
        del job  # It keeps memory of the session.


def _write(job: _Job, writer: Writer) -> None:
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
    found = {number: reference() for number, (reference, _) in tuple(session.created.items())}
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
