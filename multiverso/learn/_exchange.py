"""The tables of a training, and how workers exchange parameters through them."""

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import api
from multiverso.errors import CheckpointCorruptError, CheckpointIOError, MismatchError
from multiverso.learn._history import ActivityTimer
from multiverso.learn._input import InputError, as_input_error
from multiverso.sync._weighted_merge import WeightedMerge
from multiverso.tables import ArrayTable

if TYPE_CHECKING:
    from multiverso.learn._replica import Replica  # It would import Keras.
    from multiverso.learn.manager import MPIManager

Array = NDArray[Any]

#: The number of checkpoints that a folder keeps.
_KEEP: Final = 2


class TrainingTables:
    """Parameters, other state of the model, and a counter of updates.

    The constructor is collective and uses the initial values of the master. `parameters` has a
    table for each of `fragments`, the parts of the parameters that are exchanged one at a time.
    `merge` relates a worker's weights to those of all workers, if changes are weighted. `state`
    has running means and the like, if the model has any. A save holds `lock`, so that it contains
    whole exchanges.
    """

    def __init__(self, settings: "MPIManager", replica: "Replica") -> None:
        self._settings = settings
        algo, dtype = settings.algo, replica.dtype
        weights, state = replica.weights.array, replica.state.array
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
        self.lock = Lock()

    def fetch(self, replica: "Replica") -> None:
        """Set a replica to the shared parameters and state."""
        for table, part in zip(self.parameters, self.fragments, strict=True):
            table.get(out=replica.weights.array[part])
        replica.weights.push()
        if self.state is not None:
            self.state.get(out=replica.state.array)
            replica.state.push()

    def save(self, epochs: int | None) -> None:
        """Save all tables after `epochs` epochs, unless it is None. Collective."""
        if epochs is not None and self._settings.checkpoint is not None:
            with self.lock:
                api.save(self._settings.checkpoint, step=epochs, keep=_KEEP)

    def restore(self) -> range:
        """Load the last checkpoint, if there is to be one; return the epochs to train. Collective.

        Raises InputError on all ranks if there is no checkpoint before the last epoch, or one of
        another model or optimizer.
        """
        folder, num_epochs = self._settings.restore, self._settings.num_epochs
        if folder is None:
            return range(num_epochs)
        errors = (CheckpointCorruptError, CheckpointIOError, MismatchError)
        with as_input_error(f"cannot restore {folder}", *errors):
            trained = int(api.load(folder) or 0)
        if trained >= num_epochs:
            raise InputError(
                f"cannot restore {folder}: expected a checkpoint before epoch {num_epochs}, the "
                f"last one, received one after epoch {trained}"
            )
        return range(trained, num_epochs)


class ParameterExchange:
    """Exchanges the parameters of one replica with those of all workers.

    In lock-step, each worker adds 1 to a shared counter before an exchange, or 0 if it has no batch
    left. The increase of the counter is the number of workers over which the mean is taken. If the
    counter has not increased, the epoch ends for all workers.

    `staleness` maps each staleness to the number of this worker's updates with it. The staleness of
    an update is the number of updates that other workers have counted since this worker's previous
    exchange; in lock-step it is 0.
    """

    def __init__(
        self,
        settings: "MPIManager",
        num_workers: int,
        replica: "Replica",
        tables: TrainingTables,
        timer: ActivityTimer,
    ) -> None:
        self._algo, self._synchronous = settings.algo, settings.synchronous
        self._num_workers = num_workers
        self._replica, self._tables, self._timer = replica, tables, timer
        self._last_state = replica.state.array.copy()
        #: The parameters after the last exchange; with elastic averaging, scratch memory.
        self._buffer: Array = np.empty_like(replica.weights.array)
        self._count = np.zeros(1, np.int64)
        self.staleness: Counter[int] = Counter()
        #: The fragment to exchange next, and the samples since the last exchange of each fragment.
        self._due = 0
        self._samples = [0] * self._algo.fragments

    def begin(self) -> None:
        """Start from the shared values, and count the staleness of the next update from here."""
        self._tables.fetch(self._replica)
        np.copyto(self._buffer, self._replica.weights.array)
        np.copyto(self._last_state, self._replica.state.array)
        self._tables.counter.get(out=self._count)

    def batches(self) -> int:
        """Return the number of batches after which the next exchange is due."""
        every, count = self._algo.sync_every, len(self._samples)
        return (self._due + 1) * every // count - self._due * every // count

    def exchange(self, samples: int, gradient: Array | None) -> bool:
        """Send the changes of this worker, and receive those of other workers.

        With fragments, only the fragment that is due is exchanged. `samples` is the number of
        samples since the last exchange. `gradient`, which may be changed, is the mean gradient of
        their batches, or None if the worker's own optimizer has changed the parameters.

        Returns False if there was nothing to exchange and the epoch ends: in lock-step no worker
        had a batch since the last exchange of the fragment; otherwise this worker had none. So all
        other fragments, whose last exchanges were later, are complete, too.
        """
        fragment = self._due
        self._due = (fragment + 1) % len(self._samples)
        self._samples = [count + samples for count in self._samples]
        samples, self._samples[fragment] = self._samples[fragment], 0
        with self._tables.lock:
            num_active = self._count_update(samples > 0)
            if not num_active:
                return False
            with self._timer.measure("communicating"):
                if self._algo.elastic:
                    self._average_elastically()
                else:
                    self._send(gradient, fragment, samples, num_active)
                self._replica.weights.push()
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
            staleness = 0 if self._synchronous else increase - 1
            self.staleness[staleness] += 1
        return increase if self._synchronous else 1

    def _send(self, gradient: Array | None, fragment: int, samples: int, num_active: int) -> None:
        """Send a gradient; without one, the negated change since the last exchange (DiLoCo)."""
        weights, part = self._replica.weights, self._tables.fragments[fragment]
        has_local_steps = gradient is None
        if gradient is None:
            weights.pull()
            gradient = np.subtract(self._buffer[part], weights.array[part], out=self._buffer[part])
        if not samples:
            gradient.fill(0)
        if num_active > 1:
            gradient /= num_active
        if self._tables.merge is not None:
            gradient *= self._tables.merge.scale_of(samples)
        self._tables.parameters[fragment].add_get(gradient, out=weights.array[part])
        if has_local_steps:
            np.copyto(self._buffer[part], weights.array[part])

    def _average_elastically(self) -> None:
        """Move the worker's and the shared parameters toward each other (Zhang et al. 2015).

        In lock-step all workers get the same shared parameters before any worker adds to them, as
        in equations 5 and 6 of the paper.
        """
        weights, difference = self._replica.weights, self._buffer
        (table,) = self._tables.parameters
        weights.pull()
        table.get(out=difference)
        np.subtract(weights.array, difference, out=difference)
        difference *= self._algo.force(self._num_workers)
        table.add(difference)
        weights.array -= difference

    def _exchange_state(self) -> None:
        """Add this worker's share of the change of running means, and get those of all workers."""
        table, state = self._tables.state, self._replica.state
        if table is None:
            return
        state.pull()
        share = (state.array - self._last_state) / self._num_workers
        table.add_get(share, out=state.array)
        np.copyto(self._last_state, state.array)
        state.push()
