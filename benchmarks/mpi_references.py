"""Parameter tables built with MPI alone, through mpi4py: one-sided, and with a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ranks import Span

if TYPE_CHECKING:
    from ranks import Ranks


class RmaTable:
    """A table in an MPI window, divided by element over the ranks, used with Get_accumulate.

    This is the fastest variant on both Open MPI and MPICH: memory from Win.Allocate_shared, one
    Lock_all for the life of the window, one Get_accumulate per owner and one flush per call, and
    the hint that all accumulates use the same operation, so that MPI need not order them.
    Get_accumulate returns the values before the add; a training loop would have to add its delta
    to get the new values.

    A table has `size` float32 elements and is a context manager. Collective: all ranks create and
    close it.
    """

    def __init__(self, ranks: Ranks, size: int) -> None:
        self.name = "MPI Get_accumulate"
        self.statement = "Get_accumulate on each owner's part; Flush_all"
        self.workers = ranks.size
        mpi = ranks.mpi
        bounds = [size * rank // ranks.size for rank in range(ranks.size + 1)]
        count = bounds[ranks.rank + 1] - bounds[ranks.rank]
        info = mpi.Info.Create()
        info["accumulate_ops"] = "same_op"
        info["accumulate_ordering"] = "none"
        self._window = mpi.Win.Allocate_shared(count * 4, 4, info, ranks.comm)
        info.Free()
        np.frombuffer(self._window.tomemory(), np.float32)[:] = 1.0
        self._delta = np.full(size, 1e-3, np.float32)
        self._out = np.ones(size, np.float32)
        self._parts = [
            ([self._delta[low:high], mpi.FLOAT], [self._out[low:high], mpi.FLOAT], rank)
            for rank, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False))
            if high > low
        ]
        self._sum = mpi.SUM
        self._window.Lock_all()

    def run(self, calls: int) -> Span:
        """Add the delta to the whole table and fetch it, `calls` times."""
        get_accumulate, flush, op = self._window.Get_accumulate, self._window.Flush_all, self._sum
        parts = self._parts
        begin = time.perf_counter()
        for _ in range(calls):
            for delta, out, owner in parts:
                get_accumulate(delta, out, owner, None, op)
            flush()
        return Span(begin, time.perf_counter())

    def __enter__(self) -> RmaTable:
        """Return the table."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Free the window, unless this rank failed: freeing is collective, so it would hang."""
        if kind is None:
            self._window.Unlock_all()
            self._window.Free()


class MessageServer:
    """A table on rank 0, which receives deltas and returns the parameters.

    The other ranks, at least one, are its workers. This is the usual parameter server, in plain
    MPI. The table has `size` float32 elements.
    """

    def __init__(self, ranks: Ranks, size: int) -> None:
        self.name = "MPI Send/Recv server"
        self.statement = "worker: Send(delta); Recv(out)  server: Recv; table += delta; Send(table)"
        self.workers = ranks.size - 1
        self._mpi: Any = ranks.mpi
        self._comm: Any = ranks.comm
        self._rank = ranks.rank
        self._delta = np.full(size, 1e-3, np.float32)
        self._out = np.ones(size, np.float32)

    def run(self, calls: int) -> Span | None:
        """Send a delta and receive the table, `calls` times; return None on the server."""
        if self._rank == 0:
            self._serve(calls * self.workers)
            return None
        send, receive = self._comm.Send, self._comm.Recv
        delta, out = self._delta, self._out
        begin = time.perf_counter()
        for _ in range(calls):
            send(delta, 0)
            receive(out, 0)
        return Span(begin, time.perf_counter())

    def _serve(self, requests: int) -> None:
        status = self._mpi.Status()
        table, delta = self._out, self._delta
        for _ in range(requests):
            self._comm.Recv(delta, self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status)
            np.add(table, delta, out=table)
            self._comm.Send(table, status.Get_source())
