"""What the master does: say when an epoch is over, validate, call callbacks, keep the history."""

import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import keras

from multiverso.learn._centre import Centre
from multiverso.learn._channel import Message
from multiverso.learn._history import History
from multiverso.learn._progress import Progress
from multiverso.learn.algo import Algo
from multiverso.learn.data import Data
from multiverso.learn.replicas import Replica

__all__ = ["Master"]

_log = logging.getLogger("multiverso")


class Master:
    """Owns validation, callbacks and history. It is told what the workers do, and gives orders.

    In lock-step an epoch is over when every worker has gone over its files, and the workers wait
    for what the callbacks say. Otherwise nobody waits: an epoch is over when the workers together
    have seen as many samples as there are, however many of them each has seen, and the last epoch
    when all workers are done.

    Parameters
    ----------
    replica : Replica
        The master's own copy of the model, with which it validates.
    centre : Centre
        The parameters of all.
    algo : Algo
        When to validate.
    data : Data or None
        With the files for validation; None if there are none.
    callbacks : list of keras.callbacks.Callback
        Called with the master's model.
    epochs : range
        The epochs to go over, counted from 0.
    workers : int
        How many ranks train.
    samples : int or None
        How many there are in all training files, if that is known.
    synchronous : bool
        Whether the session is in lock-step.
    give : callable
        Sends an order to all workers.
    on_epoch : callable, optional
        Called after each epoch with the number of those that are over and whether it is the last.

    """

    def __init__(
        self,
        replica: Replica,
        centre: Centre,
        algo: Algo,
        data: Data | None,
        callbacks: list[Any],
        epochs: range,
        workers: int,
        samples: int | None,
        synchronous: bool,
        give: Callable[[Message], None],
        on_epoch: Callable[[int, bool], None] | None = None,
    ) -> None:
        self._replica = replica
        self._centre = centre
        self._data = data
        self._validate_every = algo.validate_every
        self._local_steps = algo.local_steps
        self._epochs = epochs
        self._epoch = epochs.start
        self._workers = workers
        self._samples_per_epoch = samples
        self._synchronous = synchronous
        self._give = give
        self._on_epoch = on_epoch
        self.history = History()
        self.history.first_epoch = epochs.start
        self.events: dict[int, Any] = {}
        self._callbacks = keras.callbacks.CallbackList(
            callbacks,
            add_history=False,
            add_progbar=False,
            model=replica.model,
            verbose=0,
            epochs=epochs.stop,
            steps=None,
        )
        replica.model.stop_training = False
        self._learning_rate = self._rate()
        self._progress = Progress(epochs, samples)
        self._windows: list[tuple[int, dict[str, float]]] = []
        self._samples = self._updates = 0  # of this epoch
        self._all_samples = self._all_updates = 0
        self._passes: dict[int, int] = {}
        self._first_pass: dict[int, int] = {}
        self._ended: set[int] = set()
        self._done: set[int] = set()
        self._validated: dict[str, float] = {}
        self._validated_at = 0
        self._stopped = False

    @property
    def over(self) -> bool:
        """Whether all workers are done."""
        return len(self._done) == self._workers

    def begin(self) -> None:
        """Call the callbacks' beginnings; what they set holds from the first batch on."""
        self._callbacks.on_train_begin()
        self._begin_epoch()
        self._give({"go": True})

    def take(self, rank: int, message: Message) -> None:
        """Take a message of a worker or sub-master, and do what follows from it."""
        if message["kind"] == "window":
            self._take_window(rank, message)
        elif message["kind"] == "group":
            self.history.add_group(rank, message)
            self.events[rank] = message["events"]
        else:
            rank = message.get("rank", rank)  # a sub-master may have passed it on
            self._done.add(rank)
            self.history.add_worker(rank, message)
            self.events[rank] = message["events"]
        while self._epoch < self._epochs.stop and not self._stopped and self._epoch_is_over():
            self._end_epoch()

    def end(self) -> dict[str, list[float | None]]:
        """Call the callbacks' ends, and return the metrics of the epochs."""
        logs = {name: values[-1] for name, values in self.history.metrics.items() if values}
        self._callbacks.on_train_end(logs)
        self._progress.close()
        return self.history.metrics

    def _take_window(self, rank: int, message: Message) -> None:
        samples, ended = message["samples"], message["ended"]
        if samples:
            self._windows.append((samples, message["metrics"]))
        self._samples += samples
        self._all_samples += samples
        self._updates += message["updates"]
        self._all_updates += message["updates"]
        if not self._passes.get(rank):
            self._first_pass[rank] = self._first_pass.get(rank, 0) + samples
        if ended is not None:
            self._passes[rank] = self._passes.get(rank, 0) + 1
            self._ended.add(rank)
        if self._samples_per_epoch is None and len(self._passes) == self._workers:
            self._samples_per_epoch = sum(self._first_pass.values())
        self._progress.update(samples, self._means(), self._workers - len(self._done))
        every = self._validate_every
        if every and not self._synchronous and self._all_updates - self._validated_at >= every:
            self._validate()

    def _epoch_is_over(self) -> bool:
        if self._synchronous:
            return len(self._ended) == self._workers
        if self.over:
            return True
        if self._samples_per_epoch is None or self._epoch == self._epochs.stop - 1:
            return False
        over = self._epoch - self._epochs.start + 1
        return self._all_samples >= over * self._samples_per_epoch

    def _begin_epoch(self) -> None:
        self._callbacks.on_epoch_begin(self._epoch)
        self._pass_on_learning_rate()

    def _end_epoch(self) -> None:
        logs = self._means()
        last = self._epoch == self._epochs.stop - 1
        self._centre.fetch()
        every = self._validate_every
        if self._data is not None and every != 0:
            due = self._all_updates - self._validated_at
            if every is None or due >= every or (last and due > 0):
                self._validate()
            logs.update({f"val_{name}": value for name, value in self._validated.items()})
        self._validated = {}
        self.history.add_epoch(self._epoch, self._samples, self._updates, dict(logs))
        self._progress.end_epoch(self._epoch, logs)
        self._callbacks.on_epoch_end(self._epoch, logs)
        self._windows, self._ended = [], set()
        self._samples = self._updates = 0
        self._epoch += 1
        if self._on_epoch is not None:
            self._on_epoch(self._epoch, last or self._replica.model.stop_training)
        order: Message = {"go": True}
        if self._replica.model.stop_training and not last:
            self._stopped = True
            order = {"stop": True}
        elif not last:
            self._begin_epoch()
        if self._synchronous or self._stopped:
            self._give(order)

    def _means(self) -> dict[str, float]:
        """Return the metrics of the epoch so far: means over its samples.

        `math.fsum` is exact, so that the order in which the workers reported does not show.
        """
        means = {}
        for name in dict.fromkeys(name for _, metrics in self._windows for name in metrics):
            found = [(n, metrics[name]) for n, metrics in self._windows if name in metrics]
            total = sum(n for n, _ in found)
            if all(math.isfinite(value) for _, value in found):
                means[name] = math.fsum(n * value for n, value in found) / total
            else:
                means[name] = math.nan
        return means

    def _validate(self) -> None:
        if self._data is None:
            return
        self._centre.fetch()
        with warnings.catch_warnings():
            # Keras expects generators that never end; these end after an epoch.
            warnings.filterwarnings("ignore", "Your input ran out of data")
            results = self._replica.model.evaluate(
                self._data.generate_data(), verbose=0, return_dict=True, callbacks=self._callbacks
            )
        self._validated = {name: float(value) for name, value in results.items()}
        self._validated_at = self._all_updates
        self.history.add_validation(self._epoch, self._all_updates, self._validated)

    def _rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self._replica.model.optimizer.learning_rate))

    def _pass_on_learning_rate(self) -> None:
        """Make a learning rate that a callback has set that of the optimiser which is at work."""
        rate = self._rate()
        if rate == self._learning_rate:
            return
        self._learning_rate = rate
        _log.info("epoch %d: the learning rate is %g", self._epoch + 1, rate)
        if self._local_steps:
            self._give({"learning_rate": rate})
        else:
            self._centre.set_learning_rate(rate)
