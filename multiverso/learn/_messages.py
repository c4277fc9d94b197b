"""What the ranks of a session tell each other, beside the tables.

They `share` values, come to an `agreement` to go on or fail, and send reports and orders.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from multiverso import api
from multiverso._extras import MissingExtraError
from multiverso._native import supported
from multiverso._session import Session
from multiverso._session.options import Default
from multiverso.errors import OperationTimeout
from multiverso.learn._input import InputError, first_line

#: The attribute of an exception after which all ranks have left the training together.
_AGREED: Final = "_all_ranks_have_failed"

#: How long ranks of a training wait for each other, unless the program says.
TIMEOUT: Final = Default(3600.0)

#: Seconds between two turns of a worker in async mode, unless an epoch ends.
_INTERVAL: Final = 0.2


class StoppedError(RuntimeError):
    """The training was ended because another rank failed; the message is that rank's error."""


def share(value: Any) -> list[Any]:
    """Return the values of all ranks, of types that JSON has, in rank order. Collective."""
    session = api.current_session()
    if session.size == 1:
        return [value]
    text = json.dumps(value, default=asdict).encode()
    sizes = np.zeros(session.size, np.int64)
    sizes[session.rank] = len(text)
    api.aggregate(sizes)
    # Each rank has a place of its own, where the others add zeros, so the sum is all texts.
    ends = np.cumsum(sizes)
    begins = ends - sizes
    texts = np.zeros(ends[-1], np.int32)
    texts[begins[session.rank] : ends[session.rank]] = np.frombuffer(text, np.uint8)
    api.aggregate(texts)
    whole = texts.astype(np.uint8).tobytes()
    return [json.loads(whole[begin:end]) for begin, end in zip(begins, ends, strict=True)]


@contextlib.contextmanager
def agreement() -> Iterator[None]:
    """Let all ranks continue after the block if it succeeds on all, or else raise. Collective."""
    raised: Exception | None = None
    failure = None
    try:
        yield
    except Exception as error:
        raised = error
        is_input_error = isinstance(error, InputError | MissingExtraError)
        kind = "" if is_input_error else f"{type(error).__name__}: "
        failure = is_input_error, kind + first_line(error)
    for rank, described in enumerate(share(failure)):
        if described is not None:
            is_input_error, text = described
            if raised is None:
                raised = (InputError if is_input_error else StoppedError)(f"rank {rank}: {text}")
            setattr(raised, _AGREED, True)
            raise raised


@contextlib.contextmanager
def training_session(
    sync: bool, comm: Any, timeout: float | None, start_timeout: float | None
) -> Iterator[Session]:
    """Open a session, or use the open one, and close it if all ranks agree on an error."""
    agreed: Exception | None = None
    with api.session(sync=sync, comm=comm, timeout=timeout, start_timeout=start_timeout) as opened:
        refusal = supported.refusal_of("learn", *opened.features())
        if refusal is not None:
            raise InputError(refusal.sentence)
        try:
            yield opened
        except Exception as error:
            if not getattr(error, _AGREED, False):
                raise
            agreed = error
    if agreed is not None:
        raise agreed


@dataclass
class Report:
    """The progress of a worker since its last report."""

    samples: int = 0
    updates: int = 0
    #: The mean loss and metrics over these samples.
    metrics: dict[str, float] = field(default_factory=dict)
    #: Whether the worker has ended an epoch, also if it was told to stop.
    ended_epoch: bool = False
    #: Whether the worker is done.
    done: bool = False


@dataclass
class Orders:
    """What the master wants of the workers."""

    #: The number of epochs that the master has ended, for which workers in lock-step wait.
    ended_epochs: int = 0
    #: Whether to end the epoch after the current batch, and to start no other.
    stop: bool = False
    #: The learning rate of the workers' own optimizers, if a callback has set it.
    learning_rate: float | None = None
    #: After how many epochs a checkpoint is saved in this turn, if any.
    save: int | None = None
    #: Whether all workers are done, so that there is no other turn.
    end: bool = False


class Reports:
    """Passes a worker's reports to the master, and has its latest orders as `orders`.

    In lock-step, and if the master is on the same rank, each report is a turn. Otherwise a thread
    takes turns, so that training does not wait for the master, which may validate, or for other
    workers. A lost rank ends the turns of all others with an error.

    `take_turn` passes a list of reports to the master, and returns its orders. The constructor
    waits until the master starts the training.
    """

    def __init__(self, take_turn: Callable[[list[Report]], Orders], in_background: bool) -> None:
        self._take_turn = take_turn
        self._reports: list[Report] = []
        self._wakes = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._session = api.current_session()
        self._alive_at = time.monotonic()
        self._turn()
        if in_background:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def report(self, report: Report) -> None:
        """Pass a report to the master; with a thread, in the next turn."""
        self._reports.append(report)
        if self._thread is None:
            self._turn()
        elif report.ended_epoch or report.done:
            self._wakes.set()

    def check(self) -> None:
        """Note that this worker is making progress; raise the error of the thread, if any."""
        self._alive_at = time.monotonic()
        if self._error is not None:
            raise self._error

    def wait_for(self, condition: Callable[[Orders], bool]) -> None:
        """Wait for orders that fulfil a condition."""
        while not condition(self.orders):
            if self._thread is None:
                self._turn()
            else:
                self._thread.join(_INTERVAL)
                self.check()

    def close(self) -> None:
        """End the thread; a turn that it has begun ends with the session."""
        self._closed = True
        self._wakes.set()

    def _turn(self) -> None:
        count = len(self._reports)  # The other thread may add a report at any time.
        reports, self._reports[:count] = self._reports[:count], []
        self.orders = self._take_turn(reports)

    def _run(self) -> None:
        try:
            while not (self._closed or self.orders.end):
                self._wakes.wait(_INTERVAL)
                self._wakes.clear()
                # The turns would hide from the other ranks that this worker hangs.
                idle = time.monotonic() - self._alive_at
                limit = self._session.options.timeout
                if limit is not None and idle > limit and not self._closed:
                    what = f"rank {self._session.rank} has trained no batch for {idle:.0f} s"
                    text = f"{what}; timeout= sets the limit"
                    self._session.leave_with(text)
                    raise OperationTimeout(text)
                self._turn()
        except BaseException as error:
            self._error = error
