"""The session: this rank's membership in the parameter server, from init to shutdown.

A process has at most one session. A session ends with `Session.close`, with its ``with`` block, or
at the exit of the interpreter, which leaves the session without waiting for other ranks.
"""

import atexit
import logging
import math
import os
import sys
import threading
from ctypes import byref, c_int32, c_int64, sizeof
from typing import Any, Final, Protocol, Self

import numpy as np

from multiverso._mpi.communicator import find_communicator, skip_mpi_finalize
from multiverso._native import arrays, capi, checkpoint_calls, library
from multiverso._native.checkpoint_calls import Directory
from multiverso._native.dtypes import CODES, table_dtype
from multiverso._native.exception_text import describe
from multiverso._native.library import lib
from multiverso._session_options import LOSSES, ROLES, SessionOptions
from multiverso.errors import ForkedError, StateError

_log = logging.getLogger("multiverso")

#: Waits outside the main thread return after this many milliseconds, so that they can be aborted.
_WAIT_SLICE_MS: Final = 100

#: All arguments of this function are ctypes objects, for arrays that need no conversion.
_aggregate_fast: Final = library.undeclared("MV_SessionAggregate")
_CODE_ARGUMENTS: Final = {dtype: c_int32(code) for dtype, code in CODES.items()}


class BackgroundExchange(Protocol):
    """An operation on tables of the session that runs in another thread."""

    def wait(self) -> None:
        """Wait until the operation ends, with a deadline."""

    def stop(self) -> None:
        """Request the end of the operation without waiting."""


class Session:
    """A membership in the parameter server, which `multiverso.init` makes.

    It is a context manager: ``with mv.init():`` shuts it down at the end of the block. If
    an exception ends the block, this rank leaves at once and tells the other ranks why.

    Attributes
    ----------
    options : SessionOptions
        The options with which the session was opened.
    rank, size : int
        This rank, and the number of ranks.
    worker_id, server_id : int
        Indices without gaps, in rank order; -1 if this rank is not a worker or not a server.
    num_workers, num_servers : int
        The numbers of workers and servers.
    node, num_nodes, local_rank, local_size : int
        The node of this rank, and the place of this rank on it.
    companions : dict
        Objects that an adapter keeps until the session ends, under the name of the adapter.
    exchanges : set of BackgroundExchange
        The exchanges in flight, which add and remove themselves. Collective calls first wait for
        the exchanges.

    """

    def __init__(self, options: SessionOptions) -> None:
        communicator = find_communicator(options.comm)
        raw = capi.MV_SessionOptions()
        library.call(lib.MV_SessionOptionsInit, byref(raw))
        raw.mode = options.mode
        raw.staleness = options.staleness
        raw.role = ROLES[options.role]
        raw.on_loss = LOSSES[options.on_peer_lost]
        raw.timeout_ms = math.ceil(options.timeout * 1000)
        raw.wait_slice_ms = _WAIT_SLICE_MS
        raw.peer_timeout_ms = math.ceil(options.peer_timeout * 1000)
        if communicator is not None:
            raw.transport = capi.MV_TRANSPORT_MPI
            raw.mpi_comm = communicator.address
        self.options = options
        self.closed = False
        self.forked = False
        self.companions: dict[str, list[Any]] = {}
        self.exchanges: set[BackgroundExchange] = set()
        self._communicator = communicator  # The library uses it until the session closes.
        self._open_blocks = 0
        self.handle = capi.MV_Session()
        try:
            library.enable_signals()
            library.call(lib.MV_SessionOpen, byref(raw), byref(self.handle))
            self._describe()
        except BaseException as error:
            if self.handle:  # A signal arrived just after the session was opened.
                self.leave(describe(error))
            raise
        _log.debug("opened %r", self)

    def _description(self) -> capi.MV_SessionDescription:
        raw = capi.MV_SessionDescription(struct_size=sizeof(capi.MV_SessionDescription))
        library.call(lib.MV_SessionDescribe, self.handle, byref(raw))
        return raw

    def _describe(self) -> None:
        raw = self._description()
        self.rank: int = raw.rank
        self.size: int = raw.size
        self.worker_id: int = raw.worker_id
        self.server_id: int = raw.server_id
        self.num_workers: int = raw.num_workers
        self.num_servers: int = raw.num_servers
        self.node: int = raw.node
        self.num_nodes: int = raw.num_nodes
        self.local_rank: int = raw.local_rank
        self.local_size: int = raw.local_size

    def is_master_worker(self) -> bool:
        """Return whether this is the first remaining worker; see `multiverso.is_master_worker`."""
        if self.options.continues and self.worker_id > 0:
            return bool(self._description().master_rank == self.rank)
        return self.worker_id == 0

    def lost_ranks(self) -> tuple[int, ...]:
        """Return the ranks without which the session continues; see `multiverso.lost_ranks`."""
        ranks = (c_int64 * self.size)()
        count = c_int64()
        library.call(lib.MV_SessionLost, self.handle, ranks, self.size, byref(count))
        return tuple(ranks[: count.value])

    def barrier(self) -> None:
        """Wait for all ranks; see `multiverso.barrier`."""
        self.settle()
        library.call(lib.MV_SessionBarrier, self.handle)

    def finish(self) -> None:
        """Announce the end of this worker's rounds; see `multiverso.finish`."""
        self.settle()
        library.call(lib.MV_SessionFinish, self.handle)

    def aggregate(self, array: Any) -> Any:
        """Sum over the workers, in place; see `multiverso.aggregate`."""
        self.settle()
        if self.options.requires_finite:
            arrays.require_finite(arrays.view_of(array, "array"), "array")
        if type(array) is np.ndarray and array.flags.carray:
            code = _CODE_ARGUMENTS.get(array.dtype)
            if code is not None:
                pinned = arrays.pin(array)
                library.call(_aggregate_fast, self.handle, code, pinned, c_int64(array.size))
                return array
        view = arrays.view_of(array, "array")
        number, known = table_dtype(view.dtype.newbyteorder("="))
        buffer, target = arrays.as_output(view, known, view.shape, "array")
        if buffer is not target:
            np.copyto(buffer, target)
        library.call(lib.MV_SessionAggregate, self.handle, number, arrays.pin(buffer), buffer.size)
        if buffer is not target:
            np.copyto(target, buffer)
        return array

    def save(self, directory: Directory, step: Any, keep: Any, background: Any) -> None:
        """Save all tables; see `multiverso.save`."""
        self.settle()
        raw = checkpoint_calls.save_options(directory, step, keep, background)
        library.call(lib.MV_SessionSave, self.handle, byref(raw))

    def wait_for_save(self) -> None:
        """Wait for the background save; see `multiverso.wait_for_save`."""
        self.settle()
        library.call(lib.MV_SessionSaveWait, self.handle)

    def load(self, directory: Directory, missing_ok: bool) -> Any:
        """Load all tables; see `multiverso.load`."""
        self.settle()
        return checkpoint_calls.load(lib.MV_SessionLoad, self.handle, directory, missing_ok)

    def close(self) -> None:
        """Wait for all ranks to close, and end the session even if the wait fails."""
        try:
            self.settle()
            library.call(lib.MV_SessionClose, self.handle)
        except BaseException as error:
            self._stop_exchanges()
            # An interrupted close leaves the session open. A stale handle makes this a no-op.
            lib.MV_SessionLeave(self.handle, describe(error).encode(errors="replace"))
            raise
        finally:
            self._end()

    def settle(self) -> None:
        """Wait for the exchanges in flight, which must end before the next collective call."""
        for exchange in tuple(self.exchanges):
            exchange.wait()

    def _stop_exchanges(self) -> None:
        for exchange in tuple(self.exchanges):
            exchange.stop()

    def leave(self, reason: str) -> None:
        """End the session on this rank without waiting; waiting ranks receive the reason."""
        self._stop_exchanges()
        lib.MV_SessionLeave(self.handle, reason.encode(errors="replace"))
        self._end()

    def _end(self) -> None:
        self.closed = True
        if lib.MV_HasLostRanks():
            skip_mpi_finalize()
        self._stop_exchanges()
        self.companions.clear()
        self._communicator = None
        _log.debug("ended the session")

    def __enter__(self) -> Self:
        self._open_blocks += 1
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._open_blocks -= 1
        if self._open_blocks or self.closed or self.forked:
            return
        if error is None or isinstance(error, SystemExit) and not error.code:
            self.close()
        else:
            self.leave(f"its script left the session's block: {describe(error)}")

    def __repr__(self) -> str:
        state = "forked" if self.forked else "closed" if self.closed else "open"
        return f"<multiverso.Session rank={self.rank} size={self.size} {state}>"


class _Process:
    """The session of this process, and the lock under which it is opened."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None


_process: Final = _Process()


def current() -> Session:
    """Return the open session; raise StateError if none is open, ForkedError in a forked child."""
    session = _process.session
    if session is None or session.closed:
        closed = "" if session is None else "the session has been shut down; "
        msg = f"{closed}expected an open session: call mv.init() first"
        raise StateError(msg)
    if session.forked:
        raise _forked()
    return session


def find() -> Session | None:
    """Return the open session that this process can use, or None."""
    session = _process.session
    return None if session is None or session.closed or session.forked else session


def is_over() -> bool:
    """Return whether no session has been opened since the last one ended."""
    session = _process.session
    return session is None or session.closed


def open_session(options: SessionOptions) -> tuple[Session, bool]:
    """Return the session with these options, and whether it is new.

    Raises
    ------
    StateError
        If a session with other options is open.

    """
    with _process.lock:
        session = _process.session
        if session is not None and not session.closed:
            if session.forked:
                raise _forked()
            if session.options != options:
                msg = (
                    f"a session is open with other options: expected {session.options}, received "
                    f"{options}. Call mv.shutdown() first"
                )
                raise StateError(msg)
            return session, False
        session = Session(options)
        _process.session = session
        atexit.unregister(_leave_at_exit)
        atexit.register(_leave_at_exit)  # The last registered function runs before MPI_Finalize.
        return session, True


def _forked() -> ForkedError:
    msg = (
        "this process was forked from one with an open session, which only the parent can use; "
        "start it with the 'spawn' method, or fork it before mv.init()"
    )
    return ForkedError(msg)


def _leave_at_exit() -> None:
    session = find()
    if session is None:
        return
    # An uncaught exception sets `sys.last_value`. At a prompt an older exception may have set it.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    reason = "its script ended without mv.shutdown()"
    session.leave(f"{reason}: {describe(error)}" if error is not None else reason)


def _mark_forked() -> None:
    """Mark the session in a forked child, and replace the lock, which may be held for ever."""
    _process.lock = threading.RLock()
    if _process.session is not None:
        _process.session.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
