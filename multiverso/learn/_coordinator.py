"""Coordinates the workers: ends epochs, validates, calls callbacks, keeps history and progress."""

import logging
import math
import warnings
from collections import deque
from itertools import zip_longest
from typing import Any

import keras
from tqdm import tqdm

from multiverso.learn._history import History, write_json
from multiverso.learn._messages import Orders, Report, share
from multiverso.learn._replica import Passes, data_with, unpack, validation_replica
from multiverso.learn._settings import Settings
from multiverso.learn._tables import TrainingTables

_log = logging.getLogger("multiverso")


class Coordinator:
    """The master: receives the reports of the workers, and gives them orders.

    An epoch ends when the workers together have made as many passes over their files as there are
    workers. In lock-step each has made one, and waits for the callbacks. Otherwise no worker waits,
    and a fast one may have made several. A report ends one pass, so at most one epoch, and an epoch
    contains at least one pass as a whole.
    The workers are the ranks from 1, or rank 0 if it is alone, on its `own_passes`. `replica` is
    the master's copy of the model, for validation and callbacks.
    """

    def __init__(self, settings: Settings, own_passes: Passes | None, num_workers: int) -> None:
        self._settings = settings
        self._num_workers = num_workers
        self._samples_per_epoch = data_with(settings, settings.train_list).count_data()
        model = settings.model_builder.build_model()
        passes = own_passes
        if settings.val_list or passes is None:
            passes = Passes(settings, settings.val_list or settings.train_list)
        has_validation = settings.val_list and settings.algo.validate_every != 0
        self._validation = passes if has_validation else None
        self.replica = validation_replica(model, settings.algo, passes.sample)
        self._received: deque[tuple[int, Report]] = deque()
        self._total_updates = 0  # In all epochs.
        self._passes = 0  # That workers have completed in this epoch.
        self._num_done = 0  # The number of workers that have ended all epochs.
        self._validation_metrics: dict[str, float] = {}
        self._new_updates = 0  # Since the last validation.

    def begin(self, tables: TrainingTables, epochs: range) -> None:
        """Call the callbacks before training, so that their changes apply to the first batch."""
        self._tables = tables
        self._epochs, self._epoch = epochs, epochs.start
        self.orders = Orders(ended_epochs=epochs.start)
        self._history = History(epochs.start)
        model = self.replica.model
        self._callbacks = keras.callbacks.CallbackList(
            self._settings.callbacks, model=model, verbose=0, epochs=epochs.stop, steps=None
        )
        model.stop_training = False
        if self._settings.restore is not None and not self._settings.algo.local_steps:
            # The table has restored its learning rate. Callbacks read that of the model.
            self.replica.learning_rate = tables.parameters[0].options["learning_rate"]
        self._learning_rate = self.replica.learning_rate
        self._callbacks.on_train_begin()
        self._begin_epoch()

    def coordinate(self) -> None:
        """Coordinate workers on other ranks until all are done."""
        while not self.orders.end:
            self._take_turn()
            while self._received:
                self._receive(*self._received.popleft())
        self._take_turn()

    def answer(self, reports: list[Report]) -> Orders:
        """Handle reports of a worker on this rank, and return the orders."""
        for report in reports:
            self._receive(0, report)
        return self.orders

    def _take_turn(self) -> None:
        """Share the orders with the other ranks, and get the reports of the workers there."""
        # The reports of all workers arrive at once: let the first of each be first.
        for reports in zip_longest(*share(self.orders)[1:]):
            self._received.extend(
                (rank, Report(**report)) for rank, report in enumerate(reports, 1) if report
            )
        self._tables.save(self.orders.save)
        self.orders.save = None

    def _receive(self, rank: int, report: Report) -> None:
        self._count(rank, report)
        if self._passes == self._num_workers:
            self._end_epoch()
        self.orders.end = self._num_done == self._num_workers

    def end(self, totals_of_ranks: list[dict[str, Any] | None]) -> History:
        """Add the totals of the workers to the history, call the callbacks, and return it."""
        for rank, totals in enumerate(totals_of_ranks):
            if totals is not None:
                self._history.add_worker(rank, totals)
        if self._settings.profile is not None:
            write_json(self._settings.profile, self._history.trace())
        last = {name: values[-1] for name, values in self._history.metrics.items()}
        self._callbacks.on_train_end(last)
        return self._history

    def _count(self, rank: int, report: Report) -> None:
        self._samples += report.samples
        self._updates += report.updates
        self._total_updates += report.updates
        self._new_updates += report.updates
        # Workers that were told to stop have not completed their passes.
        self._passes += report.ended_epoch and not self.orders.stop
        self._num_done += report.done
        for name, mean in report.metrics.items():
            total, samples = self._sums.setdefault(name, {}).get(rank, (0.0, 0))
            self._sums[name][rank] = total + report.samples * mean, samples + report.samples
        running = self._num_workers - self._num_done
        self._progress.set_postfix({**self._mean_metrics(), "workers": running}, refresh=False)
        self._progress.update(report.samples)
        every = self._settings.algo.validate_every
        if every and not self._settings.synchronous and self._new_updates >= every:
            self._validate()

    def _begin_epoch(self) -> None:
        self._samples = self._updates = 0  # In this epoch.
        #: For each metric and worker: the sum over the samples of this epoch, and their number.
        self._sums: dict[str, dict[int, tuple[float, int]]] = {}
        self._callbacks.on_epoch_begin(self._epoch)
        self._pass_on_learning_rate()
        self._progress = tqdm(
            total=self._samples_per_epoch,
            desc=f"epoch {self._epoch + 1}/{self._epochs.stop}",
            unit=" samples",
            disable=None,  # None disables the bar without a terminal.
        )

    def _end_epoch(self) -> None:
        self._passes = 0
        logs = self._mean_metrics()
        last = self._epoch == self._epochs.stop - 1
        self._tables.fetch(self.replica)
        every = self._settings.algo.validate_every
        if every is None or self._new_updates >= every or (last and self._new_updates > 0):
            self._validate()
        logs.update({f"val_{name}": value for name, value in self._validation_metrics.items()})
        self._validation_metrics = {}
        self._history.add_epoch(self._epoch, self._samples, self._updates, dict(logs))
        self._progress.set_postfix(logs)
        self._progress.close()
        text = " ".join(f"{name} {value:.4f}" for name, value in logs.items())
        name = f"epoch {self._epoch + 1}/{self._epochs.stop}"
        _log.info("%s, %.1f s: %s", name, self._history.seconds, text)
        self._callbacks.on_epoch_end(self._epoch, logs)
        self._epoch += 1
        is_stopped = self.replica.model.stop_training
        since_start = self._epoch - self._epochs.start
        is_due = last or is_stopped or since_start % self._settings.checkpoint_interval == 0
        if self._settings.checkpoint is not None and is_due:
            self.orders.save = self._epoch
            self._take_turn()
        self.orders.stop = is_stopped
        if not (is_stopped or last):
            self._begin_epoch()
        self.orders.ended_epochs = self._epoch

    def _mean_metrics(self) -> dict[str, float]:
        """Return the metrics so far: means over samples, rounded once by `math.fsum`."""
        means = {}
        for name, sums_of_workers in self._sums.items():
            sums, samples = zip(*sums_of_workers.values(), strict=True)
            # Infinities of both signs have no sum.
            total = math.fsum(sums) if all(map(math.isfinite, sums)) else math.nan
            means[name] = total / sum(samples)
        return means

    def _validate(self) -> None:
        if self._validation is None:
            return
        self._tables.fetch(self.replica)
        with warnings.catch_warnings():
            # Keras expects infinite generators, but `generate_data` ends after an epoch.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            results = self.replica.model.evaluate(
                (unpack(batch) for batch in next(self._validation)),
                verbose=0,
                return_dict=True,
                callbacks=self._callbacks,
            )
        # A worker on this rank has the same objects as metrics, if the user has passed objects.
        self.replica.model.reset_metrics()
        self._validation_metrics = {name: float(value) for name, value in results.items()}
        self._new_updates = 0
        self._history.add_validation(self._epoch, self._total_updates, self._validation_metrics)

    def _pass_on_learning_rate(self) -> None:
        """If a callback has set the learning rate, set that of the optimizers that train."""
        rate = self.replica.learning_rate
        if rate == self._learning_rate:
            return
        self._learning_rate = rate
        _log.info("epoch %d: the learning rate is %g", self._epoch + 1, rate)
        if self._settings.algo.local_steps:
            self.orders.learning_rate = rate
        else:
            for table in self._tables.parameters:
                table.set_option(learning_rate=rate)
