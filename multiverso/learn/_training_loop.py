"""The training loop of a worker: computes on its files, exchanges parameters, reports progress."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso.learn import _messages as messages
from multiverso.learn._exchange import ParameterExchange
from multiverso.learn._training import RankContext
from multiverso.learn.data import Data, length_of

if TYPE_CHECKING:
    from multiverso.learn.replicas import Batch, Replica  # It would import Keras.

#: Seconds between two reports within an epoch.
_REPORT_INTERVAL: Final = 0.5


class TrainingLoop:
    """Trains a replica on this worker's files, whose samples `data` yields in batches."""

    def __init__(
        self, context: RankContext, replica: "Replica", exchange: ParameterExchange, data: Data
    ) -> None:
        training = context.training
        self._replica = replica
        self._exchange = exchange
        self._data = data
        self._channel = context.channel
        self._timer = context.timer
        #: The rank that receives `WorkerDone`.
        self._superior = 0 if context.group is None else context.group.submaster
        self._local_steps = training.algo.local_steps
        self._synchronous = training.synchronous
        self._checkpoint = training.checkpoint
        self._stopped = False
        self._gradient_sum: NDArray[Any] | None = None
        if training.algo.sync_every > 1 and not self._local_steps:
            self._gradient_sum = np.empty_like(replica.gradient)
        self._samples = 0  # Since the last report.
        # What has been reported.
        self._total_samples = self._total_updates = 0
        self._last_report = time.monotonic()

    def train(self, epochs: range) -> None:
        """Train on the files once for each of `epochs`, unless the master orders to stop.

        Raises StoppedError or InputError if another rank has failed.
        """
        self._wait_for_start()
        self._exchange.fetch()
        self._exchange.fetch_count()
        for _ in epochs:
            self._train_epoch()
            self._report(ended_epoch=True)
            if self._synchronous:
                self._wait_for_start()
            else:
                self._obey_orders()
            if self._stopped:
                break
        totals = messages.WorkerDone(
            self._channel.rank,
            self._total_samples,
            self._total_updates,
            self._timer.seconds,
            self._timer.events,
            list(self._exchange.staleness.items()),
        )
        self._channel.send(totals, self._superior)

    def wait_for_end(self) -> None:
        """Wait until the master no longer needs the tables."""
        while not isinstance(self._next_order(), messages.EndTraining):
            pass

    def _train_epoch(self) -> None:
        batches = self._data.generate_data()
        while not self._stopped:
            count, samples = self._compute(batches)
            gradient = None if self._local_steps else self._mean_gradient(count)
            if not self._exchange.exchange(samples, gradient):
                break
            if not self._synchronous:
                if time.monotonic() - self._last_report > _REPORT_INTERVAL:
                    self._report()
                self._obey_orders()

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

    def _report(self, ended_epoch: bool = False) -> None:
        metrics = self._replica.results() if self._samples else {}
        updates = self._exchange.updates - self._total_updates
        self._channel.send(messages.Report(self._samples, updates, metrics, ended_epoch), 0)
        self._total_samples += self._samples
        self._total_updates += updates
        self._samples = 0
        self._last_report = time.monotonic()

    def _wait_for_start(self) -> None:
        with self._timer.measure("waiting"):
            while not isinstance(self._next_order(), messages.StartEpoch | messages.StopTraining):
                pass

    def _next_order(self) -> messages.Message:
        order = self._channel.wait("the master's next order")[1]
        self._obey(order)
        return order

    def _obey_orders(self) -> None:
        while (received := self._channel.poll()) is not None:
            self._obey(received[1])

    def _obey(self, order: messages.Message) -> None:
        match order:
            case messages.Failure():
                raise order.error()
            case messages.SetLearningRate() if self._local_steps:
                self._replica.set_learning_rate(order.rate)
            case messages.SaveCheckpoint() if self._checkpoint is not None:
                with self._timer.measure("waiting"):
                    self._exchange.tables.save(self._checkpoint, order.epochs)
            case messages.StopTraining():
                self._stopped = True
