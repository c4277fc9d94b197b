"""`multiverso.spawn`: runs a function as the ranks of a job, without a launcher and without MPI."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from multiverso import _session
from multiverso._local import ranks as local_ranks
from multiverso._local.job import LocalJob, new_name
from multiverso._native import arguments
from multiverso._native.exception_text import describe
from multiverso.errors import PeerError, RankError, StateError

#: Seconds in which a rank that another one reports as lost must have reported its own failure.
_CAUSE_SECONDS: Final = 1.0

#: Seconds that a process has to end after its function has returned.
_END_SECONDS: Final = 10.0

#: The ways to start a process that `spawn` accepts, as `multiprocessing` names them.
_METHODS: Final = ("spawn", "fork", "forkserver")


def spawn(
    function: Callable[..., Any],
    nprocs: int,
    args: Sequence[Any] = (),
    *,
    method: str | None = None,
) -> list[Any]:
    """Run ``function(*args)`` in `nprocs` processes, which are the ranks of a job on this machine.

    Neither MPI nor a launcher is needed. Each process calls `init` as under mpirun, and a session
    that is still open when the function returns is shut down. The call blocks until all processes
    have ended. The first one that fails ends the others.

    Parameters
    ----------
    function : callable
        The program of a rank. Unless `method` is ``"fork"``, processes import it, so it must be at
        the top level of a module, and a script must call `spawn` below
        ``if __name__ == "__main__":``.
    nprocs : int
        The number of ranks, at least 1.
    args : sequence, optional
        The arguments of the function, the same for all ranks.
    method : {"spawn", "fork", "forkserver"}, optional
        How `multiprocessing` starts the processes. By default ``"spawn"``, but ``"fork"`` in a
        notebook or an interactive interpreter, whose functions other processes cannot import.

    Returns
    -------
    list
        What the function returned, in rank order. `multiprocessing` must be able to pickle it.

    Raises
    ------
    RankError
        If a rank failed. The message has its traceback.
    StateError
        If the processes would be forked from one with an open session.

    Examples
    --------
    >>> import multiverso as mv
    >>> def total():
    ...     mv.init()
    ...     table = mv.ArrayTableHandler(1)
    ...     table.add([mv.rank() + 1])
    ...     mv.barrier()
    ...     return float(table.get()[0])
    >>> mv.spawn(total, 2, method="fork")
    [3.0, 3.0]

    """
    size = arguments.integer(nprocs, "nprocs", 1)
    if method is None:
        script = getattr(sys.modules["__main__"], "__file__", "")
        method = "spawn" if os.path.isfile(script) else "fork"  # It may be "<stdin>".
    context: Any = multiprocessing.get_context(arguments.choice(method, "method", _METHODS))
    if method == "fork" and _session.is_open():
        msg = "spawn: expected no open session in a process to be forked: call mv.shutdown() first"
        raise StateError(msg)
    name = new_name()
    ranks: list[_Rank] = []
    try:
        for rank in range(size):
            ranks.append(_Rank(context, function, args, LocalJob(name, rank, size)))
        values = _collect(ranks)
        for started in ranks:  # A process still has to write what it has printed.
            started.await_end()
        return values
    finally:
        local_ranks.end(ranks)
        for started in ranks:
            started.close()


class _Rank:
    """A started process, and the pipe through which it sends what its function returned."""

    def __init__(
        self, context: Any, function: Callable[..., Any], args: Sequence[Any], job: LocalJob
    ) -> None:
        self.job = job
        self.outcome: Connection
        self.outcome, sender = context.Pipe(duplex=False)
        run = (function, tuple(args), job, sender)
        self._process = context.Process(target=_run, args=run, name=f"rank {job.rank}")
        self._process.start()
        # Only the process holds the other end, also if later ones are forked, so that its death
        # ends the pipe.
        sender.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def received(self) -> Any:
        """Return what the function returned; raise _FailedRankError if the rank failed."""
        try:
            value, error, cause = self.outcome.recv()
        except EOFError:
            self._process.join()
            value, cause = None, None
            error = f"its process {local_ranks.exit_text(self._process.exitcode or 0)}"
        if error is None:
            return value
        msg = f"rank {self.job.rank} of {self.job.size} failed: {error}"
        raise _FailedRankError(RankError(msg, rank=self.job.rank), cause)

    def await_end(self) -> None:
        self._process.join(_END_SECONDS)

    def close(self) -> None:
        self.outcome.close()
        self._process.join()


class _FailedRankError(Exception):
    """The error of a rank, and the rank that caused it if it is known."""

    def __init__(self, error: RankError, cause: int | None) -> None:
        super().__init__(error)
        self.error = error
        self.cause = cause


def _collect(ranks: Sequence[_Rank]) -> list[Any]:
    values: dict[int, Any] = {}
    waiting = {rank.outcome: rank for rank in ranks}
    while waiting:
        for outcome in wait(list(waiting)):
            rank = waiting.pop(outcome)  # type: ignore[call-overload]
            try:
                values[rank.job.rank] = rank.received()
            except _FailedRankError as failure:
                raise _first_cause(failure, list(waiting.values())) from None
    return [values[rank.job.rank] for rank in ranks]


def _first_cause(failure: _FailedRankError, waiting: Sequence[_Rank]) -> RankError:
    """Return the error of the rank that `failure` is about, if that rank has failed too."""
    for rank in waiting:
        if rank.job.rank == failure.cause and rank.outcome.poll(_CAUSE_SECONDS):
            try:
                rank.received()
            except _FailedRankError as first:
                return first.error
    return failure.error


def _run(function: Callable[..., Any], args: Sequence[Any], job: LocalJob, sender: Any) -> None:
    """Run the function as a rank, and send its result or its error. This runs in the process."""
    local_ranks.end_with_parent()
    variables = local_ranks.environment(job.variables())
    os.environ.clear()
    os.environ.update(variables)
    try:
        value = function(*args)
        session = _session.find()
        if session is not None:
            session.close()
        sender.send((value, None, None))
    except BaseException as error:
        session = _session.find()
        if session is not None:
            session.leave(f"its function failed: {describe(error)}")
        cause = error.rank if isinstance(error, PeerError) else None
        sender.send((None, f"{describe(error)}\n{traceback.format_exc()}", cause))
