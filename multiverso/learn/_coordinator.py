"""Coordinates the workers: ends epochs, validates, calls callbacks, keeps history and progress."""

import logging
import math
import time
import warnings
from collections import deque
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import keras
from tqdm import tqdm

from multiverso.learn._agreement import share
from multiverso.learn._exchange import TrainingTables
from multiverso.learn._history import History
from multiverso.learn._replica import Replica, unpack
from multiverso.learn._reports import Orders, Report
from multiverso.learn.data import Data

if TYPE_CHECKING:
    from multiverso.learn.manager import MPIManager

_log = logging.getLogger("multiverso")


class Coordinator:
    """Receives the reports of the workers, and gives them orders.

    In lock-step an epoch ends when every worker has trained on its files, and the workers wait for
    the callbacks. Otherwise no worker waits: an epoch ends when the workers together have
    seen as many samples as the files contain, and the last epoch ends when all workers are done.

    The workers are the ranks from 1, or rank 0 if it is alone. `replica` is the master's copy of
    the model, for validation and callbacks. `samples` is the number of samples in all training
    files, if known. `epochs` are those to train, counted from 0.
    """

    def __init__(
        self,
        settings: "MPIManager",
        num_workers: int,
        replica: Replica,
        tables: TrainingTables,
        validation: Data | None,
        samples: int | None,
        epochs: range,
    ) -> None:
        self._settings = settings
        self._replica = replica
        self._tables = tables
        self._validation = validation
        self._validate_every = settings.algo.validate_every
        self._samples_per_epoch = samples
        self._epochs = epochs
        self._epoch = epochs.start
        self._num_workers = num_workers
        self._synchronous = settings.synchronous
        self.orders = Orders(ended_epochs=epochs.start)
        self._received: deque[tuple[int, Report]] = deque()
        self.history = History()
        self.history.first_epoch = epochs.start
        self._callbacks = keras.callbacks.CallbackList(
            settings.callbacks, model=replica.model, verbose=0, epochs=epochs.stop, steps=None
        )
        replica.model.stop_training = False
        self._learning_rate = self._model_learning_rate()
        self._progress = _ProgressBar(epochs, samples)
        self._reports: list[Report] = []  # In this epoch.
        self._total_samples = self._total_updates = 0  # In all epochs.
        #: For each worker that has ended an epoch, the number of epochs that it has ended.
        self._worker_epochs: dict[int, int] = {}
        self._first_epoch_samples = 0
        self._num_done = 0  # The number of workers that have ended all epochs.
        self._validation_metrics: dict[str, float] = {}
        self._validated_at = 0  # The total number of updates at the last validation.

    def begin(self) -> None:
        """Call the callbacks before training, so that their changes apply to the first batch."""
        self._callbacks.on_train_begin()
        self._begin_epoch()

    def coordinate(self) -> None:
        """Coordinate workers on other ranks until all are done."""
        while not self.orders.end:
            self._take_turn()
            while self._received:
                self._receive(*self._received.popleft())
        self._take_turn()

    def answer(self, reports: list[dict[str, Any]]) -> Orders:
        """Handle reports of a worker on this rank, and return the orders."""
        for report in reports:
            self._receive(0, Report(**report))
        return self.orders

    def _take_turn(self) -> None:
        """Share the orders with the other ranks, and get the reports of the workers there."""
        reports_of_ranks = share(asdict(self.orders))[1:]
        # The reports of all workers arrive at once: let the first of each be first.
        for reports in zip_longest(*reports_of_ranks):
            self._received.extend(
                (rank, Report(**report)) for rank, report in enumerate(reports, 1) if report
            )
        if self.orders.save is not None:
            self._tables.save(self._settings.checkpoint, self.orders.save)
            self.orders.save = None

    def _receive(self, rank: int, report: Report) -> None:
        self._count(rank, report)
        while self._epoch < self._epochs.stop and not self.orders.stop and self._epoch_is_over():
            self._end_epoch()
        self.orders.end = self._num_done == self._num_workers

    def end(self) -> None:
        """Call the callbacks after training."""
        logs = {name: values[-1] for name, values in self.history.metrics.items() if values}
        self._callbacks.on_train_end(logs)
        self._progress.close()

    def _count(self, rank: int, report: Report) -> None:
        self._reports.append(report)
        self._total_samples += report.samples
        self._total_updates += report.updates
        if not self._worker_epochs.get(rank):
            self._first_epoch_samples += report.samples
        if report.ended_epoch:
            self._worker_epochs[rank] = self._worker_epochs.get(rank, 0) + 1
        self._num_done += report.done
        if self._samples_per_epoch is None and len(self._worker_epochs) == self._num_workers:
            self._samples_per_epoch = self._first_epoch_samples
        running = self._num_workers - self._num_done
        self._progress.update(report.samples, self._mean_metrics(), running)
        every = self._validate_every
        if every and not self._synchronous and self._total_updates - self._validated_at >= every:
            self._validate()

    def _epoch_is_over(self) -> bool:
        if self._synchronous:
            return sum(report.ended_epoch for report in self._reports) == self._num_workers
        if self._num_done == self._num_workers:
            return True
        if self._samples_per_epoch is None or self._epoch == self._epochs.stop - 1:
            return False
        num_epochs = self._epoch - self._epochs.start + 1
        return self._total_samples >= num_epochs * self._samples_per_epoch

    def _begin_epoch(self) -> None:
        self._callbacks.on_epoch_begin(self._epoch)
        self._pass_on_learning_rate()

    def _end_epoch(self) -> None:
        logs = self._mean_metrics()
        last = self._epoch == self._epochs.stop - 1
        self._tables.fetch(self._replica)
        every = self._validate_every
        if self._validation is not None and every != 0:
            new_updates = self._total_updates - self._validated_at
            if every is None or new_updates >= every or (last and new_updates > 0):
                self._validate()
            logs.update({f"val_{name}": value for name, value in self._validation_metrics.items()})
        self._validation_metrics = {}
        samples = sum(report.samples for report in self._reports)
        updates = sum(report.updates for report in self._reports)
        self.history.add_epoch(self._epoch, samples, updates, dict(logs))
        self._progress.end_epoch(self._epoch, logs)
        self._callbacks.on_epoch_end(self._epoch, logs)
        self._reports = []
        self._epoch += 1
        is_stopped = self._replica.model.stop_training
        since_start = self._epoch - self._epochs.start
        is_due = last or is_stopped or since_start % self._settings.checkpoint_interval == 0
        if self._settings.checkpoint is not None and is_due:
            self.orders.save = self._epoch
            self._take_turn()
        if is_stopped and not last:
            self.orders.stop = True
        elif not last:
            self._begin_epoch()
        self.orders.ended_epochs = self._epoch

    def _mean_metrics(self) -> dict[str, float]:
        """Return the metrics of the epoch so far: means over its samples.

        The sums do not depend on the order of the reports, because `math.fsum` rounds only once.
        """
        means = {}
        for name in dict.fromkeys(name for report in self._reports for name in report.metrics):
            reports = [report for report in self._reports if name in report.metrics]
            if all(math.isfinite(report.metrics[name]) for report in reports):
                total = math.fsum(report.samples * report.metrics[name] for report in reports)
                means[name] = total / sum(report.samples for report in reports)
            else:
                means[name] = math.nan
        return means

    def _validate(self) -> None:
        if self._validation is None:
            return
        self._tables.fetch(self._replica)
        with warnings.catch_warnings():
            # Keras expects infinite generators, but `generate_data` ends after an epoch.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            results = self._replica.model.evaluate(
                (unpack(batch) for batch in self._validation.generate_data()),
                verbose=0,
                return_dict=True,
                callbacks=self._callbacks,
            )
        self._validation_metrics = {name: float(value) for name, value in results.items()}
        self._validated_at = self._total_updates
        self.history.add_validation(self._epoch, self._total_updates, self._validation_metrics)

    def _model_learning_rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self._replica.model.optimizer.learning_rate))

    def _pass_on_learning_rate(self) -> None:
        """If a callback has set the learning rate, set that of the optimizers that train."""
        rate = self._model_learning_rate()
        if rate == self._learning_rate:
            return
        self._learning_rate = rate
        _log.info("epoch %d: the learning rate is %g", self._epoch + 1, rate)
        if self._settings.algo.local_steps:
            self.orders.learning_rate = rate
        else:
            self._tables.set_learning_rate(rate)


class _ProgressBar:
    """Shows the current epoch if standard error is a terminal, and logs each epoch at its end."""

    def __init__(self, epochs: range, samples: int | None) -> None:
        self._epochs = epochs
        self._samples = samples
        self._bar: tqdm | None = None
        self._epoch = epochs.start
        self._start = time.monotonic()

    def update(self, samples: int, metrics: dict[str, float], running: int) -> None:
        if self._bar is None:
            self._bar = tqdm(
                total=self._samples,
                desc=f"epoch {self._epoch + 1}/{self._epochs.stop}",
                unit=" samples",
                disable=None,  # None disables the bar without a terminal.
            )
        self._bar.set_postfix({**_rounded(metrics), "workers": running}, refresh=False)
        self._bar.update(samples)

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        shown = " ".join(f"{name} {value}" for name, value in _rounded(logs).items())
        seconds = time.monotonic() - self._start
        _log.info("epoch %d/%d, %.1f s: %s", epoch + 1, self._epochs.stop, seconds, shown)
        if self._bar is not None:
            self._bar.set_postfix(_rounded(logs))
        self.close()
        self._epoch = epoch + 1

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _rounded(metrics: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in metrics.items()}
