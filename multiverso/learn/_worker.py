"""A worker: computes on its files, exchanges parameters, and reports its progress."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._exchange import ParameterExchange
from multiverso.learn._reports import Orders, Report, Reports
from multiverso.learn.data import Data, length_of

if TYPE_CHECKING:
    from multiverso.learn._replica import Batch  # It would import Keras.

#: Seconds between two reports within an epoch.
_REPORT_INTERVAL: Final = 0.5


class Worker:
    """Trains the replica of an exchange on this worker's files, which `data` yields in batches."""

    def __init__(self, exchange: ParameterExchange, data: Data, reports: Reports) -> None:
        self._exchange = exchange
        self._replica, self._timer = exchange.replica, exchange.timer
        self._data = data
        self._reports = reports
        self._local_steps = exchange.algo.local_steps
        self._synchronous = exchange.synchronous
        self._learning_rate: float | None = None  # what the master has ordered last
        self._gradient_sum: NDArray[Any] | None = None
        if exchange.algo.sync_every > 1 and not self._local_steps:
            self._gradient_sum = np.empty_like(self._replica.gradient)
        self._samples = 0  # Since the last report.
        # What has been reported.
        self._total_samples = self._total_updates = 0
        self._last_report = time.monotonic()

    def train(self, epochs: range) -> dict[str, Any]:
        """Train on the files once for each of `epochs`, unless the master orders to stop.

        Returns the totals for `History.add_worker`.
        """
        with self._timer.measure("waiting"):
            self._reports.start()
        self._obey()
        self._exchange.begin()
        for epoch in epochs:
            self._train_epoch()
            self._report(ended_epoch=True)
            if self._synchronous:
                self._wait_for(partial(Orders.allow_after, epoch=epoch))
            if self._obey():
                break
        self._report(done=True)
        self._wait_for(lambda orders: orders.end)
        return {
            "samples": self._total_samples,
            "updates": self._total_updates,
            "seconds": self._timer.seconds,
            "events": self._timer.events,
            "staleness": list(self._exchange.staleness.items()),
        }

    def _train_epoch(self) -> None:
        batches = self._data.generate_data()
        while not (self._obey() and not self._synchronous):
            count, samples = self._compute(batches)
            gradient = None if self._local_steps else self._mean_gradient(count)
            if not self._exchange.exchange(samples, gradient):
                break
            if not self._synchronous and time.monotonic() - self._last_report > _REPORT_INTERVAL:
                self._report()

    def _compute(self, batches: "Iterator[Batch]") -> tuple[int, int]:
        """Train until the next exchange is due; return the number of batches and of samples."""
        samples = 0
        wanted = self._exchange.batches()
        for count in range(wanted):
            with self._timer.measure("waiting"):
                batch = next(batches, None)
            if batch is None:
                return count, samples
            with self._timer.measure("computing"):
                self._replica.step(batch)
                if self._gradient_sum is not None:
                    if count:
                        self._gradient_sum += self._replica.gradient
                    else:
                        np.copyto(self._gradient_sum, self._replica.gradient)
            samples += length_of(batch[0])
            self._samples += length_of(batch[0])
        return wanted, samples

    def _mean_gradient(self, count: int) -> NDArray[Any]:
        if self._gradient_sum is None:
            return self._replica.gradient
        if count > 1:
            self._gradient_sum /= count
        return self._gradient_sum

    def _report(self, ended_epoch: bool = False, done: bool = False) -> None:
        metrics = self._replica.results() if self._samples else {}
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
        if orders.learning_rate != self._learning_rate and orders.learning_rate is not None:
            self._learning_rate = orders.learning_rate
            self._replica.set_learning_rate(orders.learning_rate)
        return orders.stop
