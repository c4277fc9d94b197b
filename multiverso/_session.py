"""The session: this rank's membership in the parameter server, from init to shutdown.

A process has one at a time. What ends it: `Session.close`, the end of a ``with`` block, or, at
the latest, the end of the interpreter, which leaves without waiting for anyone.
"""

import atexit
import logging
import math
import os
import sys
import threading
from ctypes import byref, c_int32, c_int64, sizeof
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np

from multiverso import _session_options
from multiverso._mpi.communicator import expect_no_end_of_mpi, find_communicator
from multiverso._native import arrays, capi, checkpoint_calls, library
from multiverso._native.exception_text import describe
from multiverso._native.library import lib
from multiverso.errors import ForkedError, StateError

_log = logging.getLogger("multiverso")

#: Longest stretch of a wait without a look at pending signals.
_WAIT_SLICE_MS: Final = 100

_aggregate_right: Final = library.undeclared("MV_SessionAggregate")
_ARGUMENT_OF: Final = {dtype: c_int32(code) for dtype, code in arrays.CODES.items()}


class BackgroundExchange(Protocol):
    """Work on tables of the session in another thread."""

    def wait(self) -> None:
        """Wait for its end, with a deadline."""

    def stop(self) -> None:
        """Let it end soon."""


class Session:
    """A membership in the parameter server. `multiverso.init` makes it.

    It is a context manager: ``with mv.init():`` shuts the session down at the end of the block,
    and if an exception ends the block, leaves at once and tells the other ranks why.

    Attributes
    ----------
    options : Options
        What it was opened with.
    rank, size : int
        This rank, and the number of ranks.
    worker_id, server_id : int
        Dense, in rank order; -1 where the rank's role does not include it.
    num_workers, num_servers : int
        How many there are.
    node, num_nodes, local_rank, local_size : int
        The group of ranks that share memory, and the place in it.
    companions : dict
        What an adapter keeps for as long as the session is open, under the adapter's name. It is
        let go when the session ends.
    exchanges : set of BackgroundExchange
        What works on tables in other threads just now, kept by itself. It is waited for before the
        ranks meet.

    """

    def __init__(self, options: _session_options.Options) -> None:
        communicator = find_communicator(options.comm)
        raw = capi.MV_SessionOptions()
        library.call(lib.MV_SessionOptionsInit, byref(raw))
        raw.mode = options.mode
        raw.staleness = options.staleness
        raw.role = _session_options.ROLES[options.role]
        raw.on_loss = _session_options.LOSSES[options.on_peer_lost]
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
        self._communicator = communicator  # the library uses it until the session is closed
        self._blocks = 0
        self.handle = capi.MV_Session()
        try:
            library.enable_interrupts()
            library.call(lib.MV_SessionOpen, byref(raw), byref(self.handle))
            self._describe()
        except BaseException as error:
            if self.handle:  # interrupted just after it was opened
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
        """Return whether this is the first worker there; see `multiverso.is_master_worker`."""
        if self.options.goes_on and self.worker_id > 0:
            return bool(self._description().master_rank == self.rank)
        return self.worker_id == 0

    def lost_ranks(self) -> tuple[int, ...]:
        """Return the ranks that it goes on without; see `multiverso.lost_ranks`."""
        ranks = (c_int64 * self.size)()
        count = c_int64()
        library.call(lib.MV_SessionLost, self.handle, ranks, self.size, byref(count))
        return tuple(ranks[: count.value])

    def barrier(self) -> None:
        """Wait for all ranks; see `multiverso.barrier`."""
        self.settle()
        library.call(lib.MV_SessionBarrier, self.handle)

    def finish(self) -> None:
        """Join no further rounds; see `multiverso.finish`."""
        self.settle()
        library.call(lib.MV_SessionFinish, self.handle)

    def aggregate(self, array: Any) -> Any:
        """Sum over the workers, in place; see `multiverso.aggregate`."""
        self.settle()
        if self.options.is_checked:
            arrays.require_finite(arrays.view_of(array, "array"), "array")
        if type(array) is np.ndarray and array.flags.carray:
            code = _ARGUMENT_OF.get(array.dtype)
            if code is not None:
                pinned = arrays.pin(array)
                library.call(_aggregate_right, self.handle, code, pinned, c_int64(array.size))
                return array
        view = arrays.view_of(array, "array")
        number, known = arrays.table_dtype(view.dtype.newbyteorder("="))
        buffer, target = arrays.as_output(view, known, view.shape, "array")
        if buffer is not target:
            np.copyto(buffer, target)
        library.call(lib.MV_SessionAggregate, self.handle, number, arrays.pin(buffer), buffer.size)
        if buffer is not target:
            np.copyto(target, buffer)
        return array

    def save(
        self, directory: checkpoint_calls.Directory, step: Any, keep: Any, background: Any
    ) -> None:
        """Save all tables; see `multiverso.save`."""
        raw = checkpoint_calls.save_options(directory, step, keep, background)
        library.call(lib.MV_SessionSave, self.handle, byref(raw))

    def wait_for_save(self) -> None:
        """Wait for the save in the background; see `multiverso.wait_for_save`."""
        library.call(lib.MV_SessionSaveWait, self.handle)

    def load(self, directory: checkpoint_calls.Directory, missing_ok: bool) -> Any:
        """Load all tables; see `multiverso.load`."""
        return checkpoint_calls.load(lib.MV_SessionLoad, self.handle, directory, missing_ok)

    def close(self) -> None:
        """Wait for all ranks to close, and end the session, also if that fails."""
        try:
            self.settle()
            library.call(lib.MV_SessionClose, self.handle)
        except BaseException as error:
            self._stop_exchanges()
            # Interrupted, it is still open; else this is a stale handle, which does no harm.
            lib.MV_SessionLeave(self.handle, describe(error).encode(errors="replace"))
            raise
        finally:
            self._end()

    def settle(self) -> None:
        """Wait for what other threads do with the tables, which belongs before what comes now."""
        for exchange in tuple(self.exchanges):
            exchange.wait()

    def _stop_exchanges(self) -> None:
        for exchange in tuple(self.exchanges):
            exchange.stop()

    def leave(self, reason: str) -> None:
        """End the session on this rank at once; the others learn the reason when they wait."""
        self._stop_exchanges()
        lib.MV_SessionLeave(self.handle, reason.encode(errors="replace"))
        self._end()

    def _end(self) -> None:
        self.closed = True
        if lib.MV_HasLostRanks():
            expect_no_end_of_mpi()
        self._stop_exchanges()
        self.companions.clear()
        self._communicator = None
        _log.debug("ended the session")

    def __enter__(self) -> Self:
        self._blocks += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blocks -= 1
        if self._blocks or self.closed or self.forked:
            return
        if error is None or isinstance(error, SystemExit) and not error.code:
            self.close()
        else:
            self.leave(f"its script left the session's block: {describe(error)}")

    def __repr__(self) -> str:
        state = "forked" if self.forked else "closed" if self.closed else "open"
        return f"<multiverso.Session rank={self.rank} size={self.size} {state}>"


class _Process:
    """The session of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None


_process: Final = _Process()


def current() -> Session:
    """Return the open session; StateError if there is none, ForkedError in a child."""
    session = _process.session
    if session is None or session.closed:
        over = "" if session is None else "the session has been shut down; "
        msg = f"{over}expected an open session: call mv.init() first"
        raise StateError(msg)
    if session.forked:
        raise _forked()
    return session


def find() -> Session | None:
    """Return the open session that this process can use, or None."""
    session = _process.session
    return None if session is None or session.closed or session.forked else session


def is_over() -> bool:
    """Return whether no session has been opened, or the last one has ended."""
    session = _process.session
    return session is None or session.closed


def open_session(options: _session_options.Options) -> tuple[Session, bool]:
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
        atexit.register(_leave_at_exit)  # the last to be registered: called before MPI_Finalize
        return session, True


def _forked() -> ForkedError:
    msg = (
        "this process is a fork of one with an open session, which cannot be used from both; "
        "start it with the 'spawn' method, or fork it before mv.init()"
    )
    return ForkedError(msg)


def _leave_at_exit() -> None:
    session = find()
    if session is None:
        return
    # Set where an uncaught exception was printed; at a prompt also by those the user went on from.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    reason = "its script ended without mv.shutdown()"
    session.leave(f"{reason}: {describe(error)}" if error is not None else reason)


def _note_fork() -> None:
    """In the child: mark the session, and replace the lock, whose holder may not be here."""
    _process.lock = threading.RLock()
    if _process.session is not None:
        _process.session.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
