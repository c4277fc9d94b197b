"""The tables of a training, and how workers exchange parameters through them."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import api
from multiverso.errors import CheckpointCorruptError, CheckpointIOError, MismatchError
from multiverso.learn._activity import ActivityTimer
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn.algo import Algo
from multiverso.sync._weighted_merge import WeightedMerge
from multiverso.tables import ArrayTable

if TYPE_CHECKING:
    from multiverso.learn._replica import Replica  # It would import Keras.

Array = NDArray[Any]

#: The number of checkpoints that a folder keeps.
_KEEP: Final = 2


class TrainingTables:
    """Parameters, other state of the model, and a counter of updates.

    The constructor is collective and uses the initial values of the master. `parameters` has a
    table for each of `fragments`, the parts of the parameters that are exchanged one at a time.
    `merge` relates a worker's weights to those of all workers, if changes are weighted. `state`
    has running means and the like, if the model has any.
    """

    def __init__(self, algo: Algo, replica: "Replica") -> None:
        weights, state = replica.weights.array, replica.state.array
        dtype = replica.dtype
        if algo.fragments > weights.size:
            raise InputError(
                f"fragments: expected at most {weights.size}, one per parameter, received "
                f"{algo.fragments}"
            )
        bounds = [weights.size * number // algo.fragments for number in range(algo.fragments + 1)]
        self.fragments = list(map(slice, bounds[:-1], bounds[1:]))
        optimizer: dict[str, Any] = {"updater": "add"}
        if not algo.elastic and algo.optimizer is not None:
            optimizer = {"updater": algo.optimizer.updater, **algo.optimizer.options}
        wire: Any = algo.wire if dtype == "float32" else None
        self.parameters = [
            ArrayTable(
                part.stop - part.start,
                weights[part],
                dtype=dtype,
                name=f"parameters {number}" if number else "parameters",
                wire=wire,
                **optimizer,
            )
            for number, part in enumerate(self.fragments)
        ]
        self.merge = None if algo.weight is None else WeightedMerge(1.0, "parameters")
        self.state = (
            ArrayTable(state.size, state, dtype=dtype, name="state") if state.size else None
        )
        self.counter = ArrayTable(1, dtype="int64", name="updates")

    def each(self, flat: Array) -> Iterator[tuple[ArrayTable, Array]]:
        """Yield the table of each fragment, and the part of the flat array."""
        return zip(self.parameters, (flat[part] for part in self.fragments), strict=True)

    def fetch(self, replica: "Replica") -> None:
        """Set a replica to the shared parameters and state."""
        for table, weights in self.each(replica.weights.array):
            table.get(out=weights)
        replica.weights.push()
        if self.state is not None:
            self.state.get(out=replica.state.array)
            replica.state.push()

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate of the shared optimizer."""
        for table in self.parameters:
            table.set_option(learning_rate=rate)

    def save(self, folder: Path | None, epochs: int) -> None:
        """Save all tables after `epochs` epochs. Collective, for ranks that all pass a folder."""
        if folder is not None:
            api.save(folder, step=epochs, keep=_KEEP)

    def load(self, folder: Path) -> int:
        """Load the last checkpoint of a folder; return its number of trained epochs. Collective.

        Raises InputError on all ranks if the folder has no checkpoint, or a checkpoint of another
        model or optimizer.
        """
        errors = (CheckpointCorruptError, CheckpointIOError, MismatchError)
        with as_input_error(f"cannot restore {folder}", *errors):
            return int(api.load(folder) or 0)


class ParameterExchange:
    """Exchanges the parameters of one replica with those of all workers.

    In lock-step, each worker adds 1 to a shared counter before an exchange, or 0 if it has no batch
    left. The increase of the counter is the number of workers over which the mean is taken. If the
    counter has not increased, the epoch ends for all workers.

    Attributes
    ----------
    algo, synchronous, replica, tables, timer
        As given.
    updates : int
        The number of this worker's updates.
    staleness : dict of int to int
        The number of this worker's updates with each staleness. The staleness of an update is the
        number of updates that other workers have counted since this worker's previous exchange; in
        lock-step it is 0.
    lock : threading.Lock
        Held during each exchange.

    """

    def __init__(
        self,
        algo: Algo,
        synchronous: bool,
        num_workers: int,
        replica: "Replica",
        tables: TrainingTables,
        timer: ActivityTimer,
    ) -> None:
        self.algo, self.synchronous = algo, synchronous
        self.replica, self.tables, self.timer = replica, tables, timer
        self._num_workers = num_workers
        self._last_state = replica.state.array.copy()
        #: The parameters after the last exchange; with elastic averaging, scratch memory.
        self._buffer: Array = np.empty_like(replica.weights.array)
        self._count = np.zeros(1, np.int64)
        self.updates = 0
        self.staleness: dict[int, int] = {}
        #: The fragment to exchange next, and the samples since the last exchange of each fragment.
        self._due = 0
        self._samples = [0] * algo.fragments
        self.lock = Lock()

    def begin(self) -> None:
        """Start from the shared values, and count the staleness of the next update from here."""
        self.tables.fetch(self.replica)
        np.copyto(self._buffer, self.replica.weights.array)
        np.copyto(self._last_state, self.replica.state.array)
        self.tables.counter.get(out=self._count)

    def batches(self) -> int:
        """Return the number of batches after which the next exchange is due."""
        every, count = self.algo.sync_every, len(self._samples)
        return (self._due + 1) * every // count - self._due * every // count

    def exchange(self, samples: int, gradient: Array | None) -> bool:
        """Send the changes of this worker, and receive those of other workers.

        With fragments, only the fragment that is due is exchanged.

        Parameters
        ----------
        samples : int
            Number of samples since the last exchange.
        gradient : ndarray or None
            Mean gradient of the batches, which this method may change; None if the worker's own
            optimizer has changed the parameters.

        Returns
        -------
        bool
            False if there was nothing to exchange and the epoch ends: in lock-step no worker had a
            batch since the last exchange of the fragment; otherwise this worker had none. So all
            other fragments, whose last exchanges were later, are complete, too.

        """
        fragment = self._due
        self._due = (fragment + 1) % len(self._samples)
        self._samples = [count + samples for count in self._samples]
        samples, self._samples[fragment] = self._samples[fragment], 0
        with self.lock:
            num_active = self._count_update(samples > 0)
            if not num_active:
                return False
            with self.timer.measure("communicating"):
                if gradient is not None:
                    self._send_gradient(gradient, samples, num_active)
                elif self.algo.elastic:
                    self._average_elastically()
                else:
                    self._send_local_steps(fragment, samples, num_active)
                self.replica.weights.push()
                self._exchange_state()
        return True

    def _count_update(self, has_trained: bool) -> int:
        """Count the update, if any; return the number of workers whose batches it uses."""
        if not self.synchronous and not has_trained:
            return 0
        # In lock-step, this call waits until all workers have added to the counter.
        with self.timer.measure("waiting" if self.synchronous else "communicating"):
            before = int(self._count[0])
            self.tables.counter.add_get(np.array([has_trained], np.int64), out=self._count)
        increase = int(self._count[0]) - before
        if has_trained:
            # In lock-step the parameters do not change while an update is computed.
            staleness = 0 if self.synchronous else increase - 1
            self.updates += 1
            self.staleness[staleness] = self.staleness.get(staleness, 0) + 1
        return increase if self.synchronous else 1

    def _send_gradient(self, gradient: Array, samples: int, num_active: int) -> None:
        if not samples:
            gradient.fill(0)
        if num_active > 1:
            gradient /= num_active
        self.tables.parameters[0].add_get(gradient, out=self.replica.weights.array)

    def _average_elastically(self) -> None:
        """Move the worker's and the shared parameters toward each other (Zhang et al. 2015).

        In lock-step all workers get the same shared parameters before any worker adds to them, as
        in equations 5 and 6 of the paper.
        """
        weights, difference = self.replica.weights, self._buffer
        weights.pull()
        for table, center in self.tables.each(difference):
            table.get(out=center)
        np.subtract(weights.array, difference, out=difference)
        difference *= self.algo.force(self._num_workers)
        for table, part in self.tables.each(difference):
            table.add(part)
        weights.array -= difference

    def _send_local_steps(self, fragment: int, samples: int, num_active: int) -> None:
        """Send the change since the last exchange, negated, as a gradient (DiLoCo)."""
        self.replica.weights.pull()
        part = self.tables.fragments[fragment]
        current, last = self.replica.weights.array[part], self._buffer[part]
        np.subtract(last, current, out=last)
        if num_active > 1:
            last /= num_active
        if self.tables.merge is not None:
            last *= self.tables.merge.scale_of(samples)
        self.tables.parameters[fragment].add_get(last, out=current)
        np.copyto(last, current)

    def _exchange_state(self) -> None:
        """Add this worker's share of the change of running means, and get those of all workers."""
        table, state = self.tables.state, self.replica.state
        if table is None:
            return
        state.pull()
        share = (state.array - self._last_state) / self._num_workers
        table.add_get(share, out=state.array)
        np.copyto(self._last_state, state.array)
        state.push()
