"""A worker: computes on its files, exchanges parameters, and reports its progress."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

from multiverso.learn._agreement import share
from multiverso.learn._exchange import ParameterExchange, TrainingTables
from multiverso.learn._history import ActivityTimer
from multiverso.learn._replica import Batch, prepare, training_replica
from multiverso.learn._reports import Orders, Report, Reports
from multiverso.learn.data import length_of

if TYPE_CHECKING:
    from multiverso.learn._coordinator import Coordinator
    from multiverso.learn.manager import MPIManager

#: Seconds between two reports within an epoch.
_REPORT_INTERVAL: Final = 0.5


class Worker:
    """Trains `replica`, a copy of the model, on this worker's files."""

    def __init__(
        self, settings: "MPIManager", files: list[str], number: int, num_workers: int
    ) -> None:
        self._settings = settings
        self._num_workers = num_workers
        self._local_steps = settings.algo.local_steps
        self._synchronous = settings.synchronous
        self._data, model, batch = prepare(settings, files, number)
        self.replica = training_replica(model, settings.algo, batch)
        self._timer = ActivityTimer(trace=settings.profile is not None)
        self._learning_rate: float | None = None  # what the master has ordered last
        self._samples = 0  # Since the last report.
        self._total_samples = self._total_updates = 0  # Those that have been reported.
        self._last_report = time.monotonic()

    def train(
        self, tables: TrainingTables, epochs: range, master: "Coordinator | None"
    ) -> dict[str, Any]:
        """Train on the files once for each of `epochs`, unless the master orders to stop.

        `master` is the coordinator if it is on this rank. Returns the totals for
        `History.add_worker`.
        """

        def take_turn(mine: list[Report]) -> Orders:
            orders = Orders(**share([asdict(report) for report in mine])[0])
            tables.save(orders.save)
            return orders

        self._exchange = ParameterExchange(
            self._settings, self._num_workers, self.replica, tables, self._timer
        )
        with self._timer.measure("waiting"):
            self._reports = (
                Reports(take_turn, in_background=not self._synchronous)
                if master is None
                else Reports(master.answer, in_background=False)
            )
        with contextlib.closing(self._reports):
            self._obey()
            self._exchange.begin()
            for epoch in epochs:
                self._train_epoch(epoch)
                if self._obey():
                    break
            self._report(done=True)
            self._wait_for(lambda orders: orders.end)
        return {
            "samples": self._total_samples,
            "seconds": self._timer.seconds,
            "events": self._timer.events,
            "staleness": list(self._exchange.staleness.items()),
        }

    def _train_epoch(self, epoch: int) -> None:
        batches = self._timed(self._data.generate_data())
        while not (self._obey() and not self._synchronous):
            samples, gradient = self._compute(batches)
            if not self._exchange.exchange(samples, gradient):
                break
            if not self._synchronous and time.monotonic() - self._last_report > _REPORT_INTERVAL:
                self._report()
        self._report(ended_epoch=True)
        if self._synchronous:
            self._wait_for(lambda orders: orders.ended_epochs > epoch)

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            with self._timer.measure("waiting"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _compute(self, batches: Iterator[Batch]) -> tuple[int, NDArray[Any] | None]:
        """Train until the next exchange is due; return the number of samples and the mean gradient.

        The gradient is None if the model's own optimizer makes steps.
        """
        count = samples = 0
        due = self._exchange.batches()
        gradient = self.replica.gradient
        for batch in islice(batches, due):
            with self._timer.measure("computing"):
                self.replica.step(batch)
                if count and not self._local_steps:
                    gradient += self.replica.gradient
                elif due > 1 and not self._local_steps:
                    gradient = gradient.copy()  # The next step overwrites the original.
            count += 1
            samples += length_of(batch[0])
        self._samples += samples
        if self._local_steps:
            return samples, None
        if count > 1:
            gradient /= count
        return samples, gradient

    def _report(self, ended_epoch: bool = False, done: bool = False) -> None:
        metrics = self.replica.results() if self._samples else {}
        updates = self._exchange.staleness.total() - self._total_updates
        self._reports.report(Report(self._samples, updates, metrics, ended_epoch, done))
        self._total_samples += self._samples
        self._total_updates += updates
        self._samples = 0
        self._last_report = time.monotonic()

    def _wait_for(self, condition: Callable[[Orders], bool]) -> None:
        with self._timer.measure("waiting"):
            self._reports.wait_for(condition)

    def _obey(self) -> bool:
        """Follow the orders of the master; return whether this worker is to stop."""
        self._reports.check()
        orders = self._reports.orders
        if orders.learning_rate not in (None, self._learning_rate):
            self._learning_rate = orders.learning_rate
            self.replica.learning_rate = orders.learning_rate
        return orders.stop
