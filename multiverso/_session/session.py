"""A session: how it is opened, used and ended.

`Session.close` ends it together with the other ranks; `Session.leave_with` ends it at once, which
also happens at the exit of the interpreter.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from ctypes import byref, c_int32, c_int64, sizeof
from typing import Any, Final, TypeVar, get_args
from weakref import WeakKeyDictionary, ref

import numpy as np

from multiverso._mpi.communicator import skip_mpi_finalize
from multiverso._native import arguments, arrays, capi, checkpoint_calls, library, supported
from multiverso._native.dtypes import ARRAY_CODES, array_code
from multiverso._native.exception_text import describe
from multiverso._native.library import checked, lib
from multiverso._native.node_calls import by_name, read_description
from multiverso._native.places import StrPath, is_address, path_or_address
from multiverso._native.reports import report_end, report_opened
from multiverso._session import leaving, notice
from multiverso._session.departure import Departure
from multiverso._session.membership import Membership, watch
from multiverso._session.opening import open_handle, resolve_options, warn_of_crowding
from multiverso._session.options import ReduceOp, SessionOptions
from multiverso._session.remote_saves import SAVES, remote_saves

_log = logging.getLogger("multiverso")
_Array = TypeVar("_Array")

#: For arrays that need no conversion. All arguments are ctypes objects, also the codes.
_aggregate_fast: Final = library.undeclared("MV_SessionAggregate")
_TRAFFIC: Final = (
    *("gets", "adds", "bytes_got", "bytes_added"),
    *("bytes_sent", "bytes_received", "raw_bytes_sent", "raw_bytes_received"),
)
#: Attributes for other modules of the package.
_INTERNAL: Final = (
    *("companions", "created", "departure", "features", "fixed_options", "handle"),
    *("leave_with", "may_be_master", "sites"),
)
#: The names in statistics of times that the library counts in nanoseconds.
_TIMES: Final = {"seconds_encoding": "encoding", "seconds_waiting": "waiting"}
_CODE_ARGUMENTS: Final = {dtype: c_int32(code) for dtype, code in ARRAY_CODES.items()}
_OP_ARGUMENTS: Final = {
    op: c_int32(getattr(capi, f"MV_OP_{op.upper()}")) for op in get_args(ReduceOp)
}


class Session:
    """One rank's session, which `multiverso.init` opens.

    It is a context manager: the end of the outermost ``with mv.init():`` closes the session. If an
    exception ends that block, except SystemExit with code 0 or None, this rank leaves at once and
    tells the other ranks why.

    Attributes
    ----------
    closed, forked : bool
        Whether the session has ended, and whether another process opened it and forked this one.
    rank, worker_id, server_id : int
        This rank, and its index among the workers and among the servers, without gaps, in rank
        order; -1 if this rank is not a worker or not a server. In an elastic session the worker id
        is the rank, which no other process ever gets, and ranks that joined later are no servers.
    size, num_workers, num_servers : int
        The numbers of ranks, workers and servers. In an elastic session they change: `size` counts
        the ranks that have ever joined, and the others those that take part now.
    node, num_nodes : int
        The index of this rank's node, and the number of nodes.
    local_rank, local_size : int
        The index of this rank among the ranks of its node, and their number.
    ended : threading.Event
        An event that is set when the session ends.

    Examples
    --------
    >>> import multiverso as mv
    >>> with mv.session() as session:
    ...     session.rank, session.size, session.num_nodes
    (0, 1, 1)

    """

    def __init__(self, options: SessionOptions) -> None:
        """Describe a session, which `_open` opens."""
        self.options = options
        self._requires_finite = options.requires_finite
        self.closed = True
        self.forked = False
        self.ended = threading.Event()
        # What adapters, by name, keep until the session ends. `leaving.CLOSED_FIRST` ends before.
        self.companions: dict[str, list[Any]] = {}
        # Options of tables that depend on this job, which a load does not change.
        self.fixed_options: WeakKeyDictionary[Any, dict[str, float]] = WeakKeyDictionary()
        self.created: dict[int, ref[Any]] = {}  # the tables by their numbers
        # The file and line that created each table, by its name and dtype, and by its number.
        self.sites: dict[tuple[str, Any], dict[int, str]] = {}
        self._communicator: object = None  # The library uses it until the session closes.
        self._open_blocks = 0
        self.departure = Departure()
        self.handle = capi.MV_Session()

    def _open(self) -> None:
        """Open the session. The caller calls `_abandon` after an exception."""
        options = self.options
        raw, self._communicator = resolve_options(options)
        if options.on_term == "leave":  # Before a launcher can find the session.
            leaving.listen(self)
        else:
            notice.forget()
        open_handle(raw, options.join, self.handle)
        self._set_attributes()
        self.closed = False
        if is_address(options.checkpoints or ""):
            remote_saves(self)  # What is not supported is found here, not at the end of the job.
        report_opened(self.rank, saves=options.on_term == "leave")
        if raw.transport == capi.MV_TRANSPORT_MPI and self.local_rank == 0:
            warn_of_crowding(self.local_size)
        _log.debug("opened %r", self)

    def _abandon(self, error: BaseException) -> None:
        """End the session, which may be open, because of an error or interrupt in its opening."""
        if self.handle:
            self.leave_with(describe(error))
        elif self.options.on_term == "leave":
            notice.stop_listening()

    def _description(self) -> capi.MV_SessionDescription:
        raw = capi.MV_SessionDescription(struct_size=sizeof(capi.MV_SessionDescription))
        checked.MV_SessionDescribe(self.handle, byref(raw))
        return raw

    def _set_attributes(self) -> None:
        raw = self._first_description = self._description()
        self.rank: int = raw.rank
        self.worker_id: int = raw.worker_id
        self.server_id: int = raw.server_id
        self.node: int = raw.node
        self.num_nodes: int = raw.num_nodes
        self.local_rank: int = raw.local_rank

    def _current_description(self) -> capi.MV_SessionDescription:
        changes = self.options.elastic and not self.closed
        return self._description() if changes else self._first_description

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(self._current_description().size)

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return int(self._current_description().num_workers)

    @property
    def num_servers(self) -> int:
        """The number of servers."""
        return int(self._current_description().num_servers)

    @property
    def local_size(self) -> int:
        """The number of ranks of this rank's node."""
        return int(self._current_description().local_size)

    def features(self) -> set[str]:
        """Return what the session uses, for `multiverso._native.supported.check`."""
        # All ranks return the same, so the role of this one does not count by itself.
        used = self.options.features() - {"roles"}
        if self.num_nodes > 1:
            used.add("several nodes")
        if not self.options.elastic and self.num_workers < self.size:
            used.add("roles")
        return used

    @property
    def may_be_master(self) -> bool:
        """Whether this is the master worker, or may become it after the loss of others."""
        return self.worker_id == 0 or self.options.continues

    def is_master_worker(self) -> bool:
        """Return whether this is the first remaining worker; see `multiverso.is_master_worker`."""
        if self.options.continues and self.worker_id > 0:
            return bool(self._description().master_rank == self.rank)
        return self.worker_id == 0

    def lost_ranks(self) -> tuple[int, ...]:
        """Return the ranks that are lost (left, died or excluded), in ascending order.

        Does not wait. Without ``on_peer_lost="continue"`` and ``elastic=True`` it is empty, because
        calls raise an error about a lost rank. In an elastic session it also contains the ranks
        that have shut down.
        """
        size = self.size
        ranks = (c_int64 * size)()
        count = c_int64()
        checked.MV_SessionLost(self.handle, ranks, size, byref(count))
        return tuple(ranks[: count.value])

    def publish(self, step: int = 0) -> int:
        """Show all tables to readers; see `multiverso.publish`."""
        step = arguments.integer(step, "step", 0)
        version = c_int64()
        checked.MV_SessionPublish(self.handle, step, byref(version))
        return version.value

    def stats(self) -> dict[str, dict[str, float]]:
        """Return this rank's traffic with each table; see `multiverso.stats`."""
        content = read_description(checked.MV_SessionStats, self.handle)
        ranks = [member["rank"] for member in content["members"]]
        here = ranks.index(self.rank)
        return {
            key: {
                **{name: table[name][here] for name in _TRAFFIC},
                **{name: table[counted][here] * 1e-9 for name, counted in _TIMES.items()},
            }
            for key, table in reversed(by_name(reversed(content["tables"])).items())
        }

    def barrier(self) -> None:
        """Wait for all ranks; see `multiverso.barrier`."""
        checked.MV_SessionBarrier(self.handle)

    def finish(self) -> None:
        """Announce the end of this worker's rounds; see `multiverso.finish`."""
        checked.MV_SessionFinish(self.handle)

    def is_leaving(self) -> bool:
        """Return whether the ranks are to leave; see `multiverso.is_leaving`."""
        return leaving.is_leaving(self)

    def check_leaving(
        self, step: int | None = None, *, before: Callable[[], object] | None = None
    ) -> None:
        """End this rank if it is to leave; see `multiverso.check_leaving`."""
        leaving.check(self, step, before)

    def aggregate(self, array: _Array, op: ReduceOp = "sum") -> _Array:
        """Sum over the workers, in place; see `multiverso.aggregate`."""
        # The check takes longer than the sum of a small array, so it is made only for a wrong name.
        op_code = _OP_ARGUMENTS.get(op) if type(op) is str else None
        if op_code is None:
            op_code = _OP_ARGUMENTS[arguments.choice(op, "op", _OP_ARGUMENTS)]
        if self._requires_finite:
            arrays.require_finite(arrays.view_of(array, "array"), "array")
        given: Any = array
        if type(given) is np.ndarray and given.flags.carray and given.dtype in _CODE_ARGUMENTS:
            code, pinned = _CODE_ARGUMENTS[given.dtype], arrays.pin(given)
            _aggregate_fast(self.handle, op_code, code, pinned, c_int64(given.size))
            return array
        view = arrays.view_of(array, "array")
        dtype = view.dtype.newbyteorder("=")
        code = c_int32(array_code(dtype))
        buffer, target = arrays.as_output(view, dtype, view.shape, "array")
        if buffer is not target:
            np.copyto(buffer, target)
        # Python's protocol for memory has no bfloat16.
        memory = buffer.view(np.uint16) if code.value == capi.MV_BFLOAT16 else buffer
        _aggregate_fast(self.handle, op_code, code, arrays.pin(memory), c_int64(buffer.size))
        arrays.copy_out(buffer, target)
        return array

    def save(
        self, directory: StrPath, step: Any, keep: Any, background: Any, incremental: Any
    ) -> None:
        """Save all tables; see `multiverso.save`."""
        place = path_or_address(directory, "directory")
        if is_address(place):
            remote_saves(self).save(place, step, keep, background, incremental)
            return
        raw = checkpoint_calls.save_options(place, step, keep, background, incremental)
        checked.MV_SessionSave(self.handle, byref(raw))

    def wait_for_save(self) -> None:
        """Wait for the background save; see `multiverso.wait_for_save`."""
        for saves in self.companions.get(SAVES, []):
            saves.wait()
        checked.MV_SessionSaveWait(self.handle)

    def load(self, directory: StrPath, missing_ok: bool) -> Any:
        """Load all tables; see `multiverso.load`."""
        place = path_or_address(directory, "directory")
        if is_address(place):
            step = remote_saves(self).load(place, missing_ok)
        else:
            step = checkpoint_calls.load(checked.MV_SessionLoad, self.handle, place, missing_ok)
        for table, options in tuple(self.fixed_options.items()):
            table.set_option(**options)
        return step

    def close(self) -> None:
        """Wait until all ranks close, and end the session even if the wait fails.

        Raises the error of a background call of a table, if no other call has, after the end.
        """
        try:
            leaving.close(self)
            self._end(is_wanted=True)
        except BaseException as error:
            # If the library has not begun to close, the session is still open. Otherwise its handle
            # is stale, and the library only returns an error status.
            self.leave_with(describe(error))
            raise

    def membership(self) -> Membership:
        """Return which workers have joined an elastic session and which have left. Does not wait.

        Raises
        ------
        StateError
            If the session is not elastic, or has been shut down.

        """
        supported.check("membership", *self.options.features())
        # The ranks that have left are read first: each had joined before the next line counts.
        left = self.lost_ranks()
        joined = tuple(range(self.size))
        return Membership(len(joined) + len(left), joined, left)

    def on_membership(self, callback: Callable[[Membership], None]) -> None:
        """Call a function whenever workers have joined or left, until the session ends.

        Parameters
        ----------
        callback : callable
            The function, whose argument is the new `membership`. It is called in a thread of its
            own, at most ten times per second, so several events may arrive in one call. It must
            make no collective calls. An exception that it raises is logged.

        Raises
        ------
        TypeError, StateError
            If `callback` cannot be called, or the session is not elastic, or has been shut down.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session(elastic=True) as session:
        ...     session.on_membership(lambda now: print("now", len(now.workers)))
        ...     session.membership().workers, session.lost_ranks()
        ((0,), ())

        """
        watch(self.membership, self.ended, callback)

    def leave(self) -> None:
        """Stop taking part in the session, while the other ranks continue. Not collective.

        Every add that has returned is kept. The other ranks then find this one in `lost_ranks`, and
        collective calls do not wait for it. If it was the master, the next worker becomes the
        master. `multiverso.init` may be called again afterwards. The last worker of an elastic
        session saves before, if it was told to end (`multiverso.check_leaving`).

        Raises
        ------
        StateError
            If the session has neither ``elastic=True`` nor ``on_peer_lost="continue"``, or has been
            shut down.
        CheckpointIOError, OperationTimeout, PeerLostError, AbortedError
            If a save or a background call of a table failed.

        Examples
        --------
        >>> import multiverso as mv
        >>> session = mv.init(on_peer_lost="continue")
        >>> session.leave()
        >>> mv.is_initialized()
        False

        """
        supported.check("leave", *self.options.features())
        if self.options.elastic:
            leaving.save_if_last(self)
        checked.MV_SessionFlush(self.handle, -1.0)
        self._leave("it called leave()", is_wanted=True)

    def leave_with(self, reason: str) -> None:
        """End the session on this rank at once; ranks that wait for this one receive the reason."""
        self._leave(reason, is_wanted=False)

    def _leave(self, reason: str, *, is_wanted: bool) -> None:
        text = reason.encode(errors="replace")
        try:
            lib.MV_SessionLeave(self.handle, text)
            self._end(is_wanted=is_wanted)
        except BaseException:
            lib.MV_SessionLeave(self.handle, text)
            self._end(is_wanted=is_wanted)
            raise

    def _end(self, *, is_wanted: bool) -> None:
        """Note and report the end; a second time, after an interrupt, has no other effect."""
        self.closed = True
        self.ended.set()
        report_end(is_wanted=is_wanted)
        if self.options.on_term == "leave":
            notice.stop_listening()
        if lib.MV_HasLostRanks():
            skip_mpi_finalize()
        self.companions.clear()
        self._communicator = None
        _log.debug("ended the session")

    def __dir__(self) -> list[str]:
        """Return the names for completion: not those that only the package uses."""
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __enter__(self) -> Session:
        self._open_blocks += 1
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._open_blocks -= 1
        if self._open_blocks or self.closed or self.forked:
            return
        if error is None or isinstance(error, SystemExit) and not error.code:
            self.close()
            return
        end = leaving.after_failure(self, error)
        if end is not None:
            if not isinstance(error, SystemExit):
                _log.error("the program has failed after SIGTERM", exc_info=error)
            try:
                raise end from error
            finally:
                del end  # Without a circle through this frame; see `leaving`.
        if not self.closed:
            self.leave_with(f"its script left the session's block: {describe(error)}")

    def __repr__(self) -> str:
        state = "forked" if self.forked else "closed" if self.closed else "open"
        return f"<multiverso.Session rank={self.rank} size={self.size} {state}>"
