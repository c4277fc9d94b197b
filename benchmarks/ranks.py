"""The ranks of the benchmark, and how a piece of work is timed on all of them at once."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


def find_mpi() -> tuple[Any, str | None]:
    """Return mpi4py.MPI, or None and why it cannot be had."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        return None, f"without the MPI references, since mpi4py cannot be used here ({first})"
    return MPI, None


class Span(NamedTuple):
    """When a piece of work began and ended, in seconds of the node's monotonic clock."""

    begin: float
    end: float


class Ranks:
    """The processes of this run: one without MPI, or those of MPI_COMM_WORLD.

    Parameters
    ----------
    mpi : module or None
        ``mpi4py.MPI``, or None where it cannot be had. A run of several ranks always has it.

    Raises
    ------
    SystemExit
        If the ranks are spread over several nodes, since only one node's clock is common to all.
    """

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi
        self.comm = mpi.COMM_WORLD if mpi is not None else None
        self.rank: int = self.comm.Get_rank() if self.comm is not None else 0
        self.size: int = self.comm.Get_size() if self.comm is not None else 1
        nodes = set(self.gather(platform.node()))
        if len(nodes) > 1:
            raise SystemExit(f"expected the ranks on one node, received {sorted(nodes)}")

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

    def meet(self) -> None:
        """Wait for all ranks without spinning.

        A blocking MPI call burns a whole core, which those who still work would miss. So this
        polls, with growing sleeps.
        """
        if self.comm is None or self.size == 1:
            return
        request = self.comm.Ibarrier()
        pause = 2e-5
        while not request.Test():
            time.sleep(pause)
            pause = min(pause * 1.5, 5e-4)

    def start(self) -> None:
        """Let all ranks return from here at the same moment, to some ten microseconds."""
        if self.comm is None or self.size == 1:
            return
        self.meet()
        moment = max(self.gather(time.perf_counter())) + 2e-3
        time.sleep(max(0.0, moment - time.perf_counter()))

    def time(self, work: Callable[[], Span | None]) -> float:
        """Do the work on all ranks at once and return its wall-clock time, the same everywhere.

        Parameters
        ----------
        work : callable
            Returns when it began and ended, or None on a rank that only assisted.

        Returns
        -------
        float
            Seconds from the first rank's begin to the last rank's end.
        """
        self.start()
        span = work()
        self.meet()
        spans = [s for s in self.gather(span) if s is not None]
        return max(s.end for s in spans) - min(s.begin for s in spans)
