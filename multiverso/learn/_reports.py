"""Reports of the workers to the master, and its orders, in turns of all ranks."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from multiverso import api
from multiverso.errors import OperationTimeout

#: Seconds between two turns of a worker in async mode, unless an epoch ends.
_INTERVAL: Final = 0.2


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
                if idle > self._session.options.timeout and not self._closed:
                    text = f"rank {self._session.rank} has trained no batch for {idle:.0f} s"
                    self._session.leave_with(text)
                    raise OperationTimeout(text)
                self._turn()
        except BaseException as error:
            self._error = error
