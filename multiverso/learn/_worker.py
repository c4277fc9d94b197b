"""A worker: computes on its files, exchanges parameters, and reports its progress."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._activity import ActivityTimer
from multiverso.learn._agreement import share
from multiverso.learn._exchange import ParameterExchange, TrainingTables
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
        self._data, model, batch = prepare(settings, files, number, f"worker {number}: ")
        self.replica = training_replica(model, settings.algo, batch)
        self._timer = ActivityTimer(trace=settings.profile is not None)
        self._learning_rate: float | None = None  # what the master has ordered last
        self._gradient_sum: NDArray[Any] | None = None
        if settings.algo.sync_every > 1 and not self._local_steps:
            self._gradient_sum = np.empty_like(self.replica.gradient)
        self._samples = 0  # Since the last report.
        self._total_samples = self._total_updates = 0  # What has been reported.
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
        if master is None:
            self._reports = Reports(take_turn, in_background=not self._synchronous)
        else:
            self._reports = Reports(master.answer, in_background=False)
        try:
            self._train(epochs)
        finally:
            self._reports.close()
        return {
            "samples": self._total_samples,
            "updates": self._total_updates,
            "seconds": self._timer.seconds,
            "events": self._timer.events,
            "staleness": list(self._exchange.staleness.items()),
        }

    def _train(self, epochs: range) -> None:
        with self._timer.measure("waiting"):
            self._reports.start()
        self._obey()
        self._exchange.begin()
        for epoch in epochs:
            self._train_epoch(epoch)
            if self._obey():
                break
        self._report(done=True)
        self._wait_for(lambda orders: orders.end)

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
        for batch in islice(batches, self._exchange.batches()):
            with self._timer.measure("computing"):
                self.replica.step(batch)
                if self._gradient_sum is not None:
                    if count:
                        self._gradient_sum += self.replica.gradient
                    else:
                        np.copyto(self._gradient_sum, self.replica.gradient)
            count += 1
            samples += length_of(batch[0])
        self._samples += samples
        if self._local_steps:
            return samples, None
        if self._gradient_sum is None:
            return samples, self.replica.gradient
        if count > 1:
            self._gradient_sum /= count
        return samples, self._gradient_sum

    def _report(self, ended_epoch: bool = False, done: bool = False) -> None:
        metrics = self.replica.results() if self._samples else {}
        updates = self._exchange.updates - self._total_updates
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
