"""A worker: computes on its files, exchanges parameters, and reports its progress."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._history import ActivityTimer
from multiverso.learn._messages import Orders, Report, Reports, share
from multiverso.learn._replica import Batch, Passes, training_replica
from multiverso.learn._settings import Settings
from multiverso.learn._tables import TrainingTables
from multiverso.learn.data import length_of
from multiverso.sync._table_copy import change_of

if TYPE_CHECKING:
    from multiverso.learn._coordinator import Coordinator

Array = NDArray[Any]

#: Seconds between two reports within an epoch.
_REPORT_INTERVAL: Final = 0.5


class Worker:
    """Trains `replica`, a copy of the model, in `passes`, and exchanges its parameters.

    In lock-step, each worker adds 1 to a shared counter before an exchange, or 0 if it has no batch
    left. The increase of the counter is the number of workers over which the mean is taken. If the
    counter has not increased, the epoch ends for all workers.

    The staleness of an update is the number of updates that other workers have counted since this
    worker's previous exchange; in lock-step it is 0.
    """

    def __init__(self, settings: Settings, passes: Passes, num_workers: int) -> None:
        self._algo, self._synchronous = settings.algo, settings.synchronous
        self._num_workers = num_workers
        self._passes = passes
        model = settings.model_builder.build_model()
        self.replica = training_replica(model, settings.algo, passes.sample)
        self._timer = ActivityTimer(trace=settings.profile is not None)
        self._learning_rate: float | None = None  # what the master has ordered last
        #: The parameters after the last exchange; with elastic averaging, scratch memory.
        self._buffer: Array = np.empty_like(self.replica.weights.array)
        self._last_state = np.empty_like(self.replica.state.array)
        self._count = np.zeros(1, np.int64)  # The shared counter at the last exchange.
        #: The number of this worker's updates with each staleness.
        self._staleness: Counter[int] = Counter()
        #: The fragment to exchange next, and the samples since the last exchange of each fragment.
        self._due = 0
        self._samples_of_fragments = [0] * self._algo.fragments
        self._samples = 0  # Since the last report.
        self._total_samples = self._total_updates = 0  # Those that have been reported.
        self._last_report = time.monotonic()

    def train(
        self, tables: TrainingTables, epochs: range, master: "Coordinator | None"
    ) -> dict[str, Any]:
        """Make a pass over the files for each epoch, unless told to stop; return the totals."""

        def take_turn(mine: list[Report]) -> Orders:
            orders = Orders(**share(mine)[0])
            tables.save(orders.save)
            return orders

        self._tables = tables
        in_background = master is None and not self._synchronous
        with self._timer.measure("waiting"):
            self._reports = Reports(master.answer if master else take_turn, in_background)
        with contextlib.closing(self._reports):
            self._obey()
            # Start from the shared values, and count the staleness of the next update from here.
            tables.fetch(self.replica)
            np.copyto(self._buffer, self.replica.weights.array)
            np.copyto(self._last_state, self.replica.state.array)
            tables.counter.get(out=self._count)
            for epoch in epochs:
                self._train_epoch(epoch)
                if self._obey():
                    break
            self._report(done=True)
            with self._timer.measure("waiting"):
                self._reports.wait_for(lambda orders: orders.end)
        return {
            "samples": self._total_samples,
            "seconds": self._timer.seconds,
            "events": self._timer.events,
            "staleness": list(self._staleness.items()),
        }

    def _train_epoch(self, epoch: int) -> None:
        with self._timer.measure("waiting"):
            batches = next(self._passes)
        while not (self._obey() and not self._synchronous):
            samples, gradient = self._compute(batches)
            if not self._exchange(samples, gradient):
                break
            if not self._synchronous and time.monotonic() - self._last_report > _REPORT_INTERVAL:
                self._report()
        self._report(ended_epoch=True)
        if self._synchronous:
            with self._timer.measure("waiting"):
                self._reports.wait_for(lambda orders: orders.ended_epochs > epoch)

    def _compute(self, batches: Iterator[Batch]) -> tuple[int, Array | None]:
        """Train until the next exchange; return the samples and the mean gradient, if any."""
        every, fragments = self._algo.sync_every, self._algo.fragments
        due = (self._due + 1) * every // fragments - self._due * every // fragments
        count = samples = 0
        gradient = self.replica.gradient
        while count < due:
            with self._timer.measure("waiting"):
                batch = next(batches, None)
            if batch is None:
                break
            with self._timer.measure("computing"):
                self.replica.step(batch)
                if count and not self._algo.local_steps:
                    gradient += self.replica.gradient
                elif due > 1 and not self._algo.local_steps:
                    gradient = gradient.copy()  # The next step overwrites the original.
            count += 1
            samples += length_of(batch[0])
        self._samples += samples
        if self._algo.local_steps:
            return samples, None
        if count > 1:
            gradient /= count
        return samples, gradient

    def _exchange(self, samples: int, gradient: Array | None) -> bool:
        """Send the changes of this worker, and receive those of other workers.

        With fragments, only the fragment that is due is exchanged. `samples` is the number of
        samples since the last exchange. `gradient`, which may be changed, is the mean gradient of
        their batches, or None if the worker's own optimizer has changed the parameters.

        Returns False if there was nothing to exchange and the epoch ends: in lock-step no worker
        had a batch since the last exchange of the fragment; otherwise this worker had none. So all
        other fragments, whose last exchanges were later, are complete, too.
        """
        fragment = self._due
        self._due = (fragment + 1) % self._algo.fragments
        self._samples_of_fragments = [count + samples for count in self._samples_of_fragments]
        samples, self._samples_of_fragments[fragment] = self._samples_of_fragments[fragment], 0
        with self._tables.lock:
            num_active = self._count_update(samples > 0)
            if not num_active:
                return False
            with self._timer.measure("communicating"):
                if self._algo.elastic:
                    self._average_elastically()
                else:
                    self._send(gradient, fragment, samples, num_active)
                self.replica.weights.push()
                self._exchange_state()
        return True

    def _count_update(self, has_trained: bool) -> int:
        """Count the update, if any; return the number of workers whose batches it uses."""
        if not self._synchronous and not has_trained:
            return 0
        # In lock-step, this call waits until all workers have added to the counter.
        with self._timer.measure("waiting" if self._synchronous else "communicating"):
            before = int(self._count[0])
            self._tables.counter.add_get(np.array([has_trained], np.int64), out=self._count)
        increase = int(self._count[0]) - before
        if has_trained:
            # In lock-step the parameters do not change while an update is computed.
            self._staleness[0 if self._synchronous else increase - 1] += 1
        return increase if self._synchronous else 1

    def _send(self, gradient: Array | None, fragment: int, samples: int, num_active: int) -> None:
        """Send a gradient; without one, the negated change since the last exchange (DiLoCo)."""
        weights, part = self.replica.weights, self._tables.fragments[fragment]
        if gradient is None:
            weights.pull()
            gradient = change_of(self._buffer[part], weights.array[part])
        if not samples:
            gradient.fill(0)
        if num_active > 1:
            gradient /= num_active
        if self._tables.merge is not None:
            gradient *= self._tables.merge.scale_of(samples)
        self._tables.parameters[fragment].add_get(gradient, out=weights.array[part])
        if self._algo.local_steps:
            np.copyto(self._buffer[part], weights.array[part])

    def _average_elastically(self) -> None:
        """Move the worker's and the shared parameters toward each other (Zhang et al. 2015).

        In lock-step all workers get the same shared parameters before any worker adds to them, as
        in equations 5 and 6 of the paper.
        """
        weights, difference = self.replica.weights, self._buffer
        (table,) = self._tables.parameters
        weights.pull()
        table.get(out=difference)
        difference[:] = change_of(weights.array, difference)
        difference *= self._algo.force(self._num_workers)
        table.add(difference)
        weights.array -= difference

    def _exchange_state(self) -> None:
        """Add this worker's share of the change of running means, and get those of all workers."""
        table, state = self._tables.state, self.replica.state
        if table is None:
            return
        state.pull()
        own_part = change_of(state.array, self._last_state) / self._num_workers
        table.add_get(own_part, out=state.array)
        np.copyto(self._last_state, state.array)
        state.push()

    def _report(self, ended_epoch: bool = False, done: bool = False) -> None:
        metrics = self.replica.results() if self._samples else {}
        updates = self._staleness.total() - self._total_updates
        self._reports.report(Report(self._samples, updates, metrics, ended_epoch, done))
        self._total_samples += self._samples
        self._total_updates += updates
        self._samples = 0
        self._last_report = time.monotonic()

    def _obey(self) -> bool:
        """Follow the orders of the master; return whether this worker is to stop."""
        self._reports.check()
        orders = self._reports.orders
        if orders.learning_rate not in (None, self._learning_rate):
            self._learning_rate = orders.learning_rate
            self.replica.learning_rate = orders.learning_rate
        return orders.stop
