"""The ranks of a benchmark, and the timing of work that all of them do at once."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


def find_mpi() -> tuple[Any, str | None]:
    """Return mpi4py.MPI and None, or None and why mpi4py cannot be imported."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        return None, f"no MPI references: mpi4py cannot be imported ({reason})"
    return MPI, None


class Span(NamedTuple):
    """Begin and end of some work, in seconds of the node's monotonic clock."""

    begin: float
    end: float


class Ranks:
    """The processes of this run: one without MPI, or those of MPI_COMM_WORLD.

    Parameters
    ----------
    mpi : module or None
        ``mpi4py.MPI``, or None if it is unavailable; several ranks require it.

    Raises
    ------
    SystemExit
        If the ranks are on several nodes, which do not share a clock.
    """

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi
        self.comm = mpi.COMM_WORLD if mpi is not None else None
        self.rank: int = self.comm.Get_rank() if self.comm is not None else 0
        self.size: int = self.comm.Get_size() if self.comm is not None else 1
        nodes = set(self.gather(platform.node()))
        if len(nodes) > 1:
            raise SystemExit(f"expected all ranks on one node, received {sorted(nodes)}")

    @property
    def is_master(self) -> bool:
        """Whether this rank reports."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, in rank order, on every rank."""
        if self.comm is None:
            return [value]
        values: list[Any] = self.comm.allgather(value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks, with growing sleeps between polls.

        A blocking MPI call would occupy a core that other ranks still need.
        """
        if self.comm is None or self.size == 1:
            return
        request = self.comm.Ibarrier()
        pause = 2e-5
        while not request.Test():
            time.sleep(pause)
            pause = min(pause * 1.5, 5e-4)

    def start(self) -> None:
        """Return on all ranks at the same moment, within some ten microseconds."""
        if self.comm is None or self.size == 1:
            return
        self.barrier()
        # Within 2 ms all ranks have normally received the moment.
        moment = max(self.gather(time.perf_counter())) + 2e-3
        time.sleep(max(0.0, moment - time.perf_counter()))

    def time(self, work: Callable[[], Span | None]) -> float:
        """Do the work on all ranks at once; return seconds from the first begin to the last end.

        The work returns its span, or None on a rank that only assisted. All ranks return the same
        number.
        """
        self.start()
        own_span = work()
        self.barrier()
        spans = [span for span in self.gather(own_span) if span is not None]
        return max(span.end for span in spans) - min(span.begin for span in spans)
