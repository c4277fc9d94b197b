"""How workers and groups of workers exchange parameters through the tables."""

import copy
from typing import TYPE_CHECKING

import numpy as np

from multiverso.learn._training import RankContext
from multiverso.learn._training_tables import (
    Array,
    GroupParameters,
    SharedParameters,
    TrainingTables,
)

if TYPE_CHECKING:
    from multiverso.learn.replicas import Replica  # It would import Keras.


class ParameterExchange:
    """Exchanges the parameters of one replica with those of all workers, or of a group.

    In lock-step, each worker adds 1 to a shared counter before an exchange, or 0 if it has no batch
    left. The increase of the counter is the number of workers over which the mean is taken. If the
    counter has not increased, the epoch ends for all workers.

    Attributes
    ----------
    updates : int
        The number of this worker's updates.
    staleness : dict of int to int
        The number of this worker's updates with each staleness. The staleness of an update is the
        number of updates that other workers (of the group, if there are groups) have counted since
        this worker's previous exchange; in lock-step it is 0.

    """

    def __init__(self, context: RankContext, replica: "Replica", tables: TrainingTables) -> None:
        algo, group = context.training.algo, context.group
        all_workers = context.layout.workers
        self.tables = tables
        self._shared = SharedParameters(tables) if group is None else GroupParameters(tables, group)
        self._elastic = algo.elastic
        self._elastic_force = algo.force(len(all_workers if group is None else group.workers))
        self._sync_every = algo.sync_every
        self._num_workers = len(all_workers)
        self._synchronous = context.training.synchronous
        self._timer = context.timer
        self._set_replica(replica)

    def _set_replica(self, replica: "Replica") -> None:
        self._replica = replica
        self._last_state = replica.state.copy()
        #: The parameters after the last exchange; with elastic averaging, scratch memory.
        self._buffer: Array = np.empty_like(replica.weights)
        self._count = np.zeros(1, np.int64)
        self.updates = 0
        self.staleness: dict[int, int] = {}
        #: The fragment to exchange next, and the samples since the last exchange of each fragment.
        self._due = 0
        self._samples = [0] * len(self.tables.fragments)

    def for_replica(self, replica: "Replica") -> "ParameterExchange":
        """Return an exchange with the same tables for another replica on this rank."""
        other = copy.copy(self)
        other._set_replica(replica)
        return other

    def fetch(self) -> None:
        """Set the replica to the shared parameters and state."""
        replica = self._replica
        self._shared.get(replica.weights)
        replica.push()
        np.copyto(self._buffer, replica.weights)
        if self.tables.state is not None:
            self.tables.state.get(out=replica.state)
            np.copyto(self._last_state, replica.state)
            replica.push_state()

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate of the shared optimizer."""
        for table in self.tables.optimizer_tables:
            table.set_option(learning_rate=rate)

    def fetch_count(self) -> None:
        """Read the update counter, from which the staleness of the next update is counted."""
        self._shared.count(self._count)

    def batches(self) -> int:
        """Return the number of batches after which the next exchange is due."""
        count = len(self._samples)
        return (self._due + 1) * self._sync_every // count - self._due * self._sync_every // count

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
        num_active = self._count_update(samples > 0)
        if not num_active:
            return False
        replica = self._replica
        with self._timer.measure("communicating"):
            if gradient is not None:
                if not samples:
                    gradient.fill(0)
                self._step(gradient, num_active)
            elif self._elastic:
                self._average_elastically()
            else:
                self._send_local_steps(fragment, samples, num_active)
            replica.push()
            if self.tables.state is not None:
                replica.pull_state()
                share = (replica.state - self._last_state) / self._num_workers
                self.tables.state.add_get(share, out=replica.state)
                np.copyto(self._last_state, replica.state)
                replica.push_state()
        return True

    def _count_update(self, has_trained: bool) -> int:
        """Count the update, if any; return the number of workers whose batches it uses."""
        if not self._synchronous and not has_trained:
            return 0
        # In lock-step, this call waits until all workers have added to the counter.
        with self._timer.measure("waiting" if self._synchronous else "communicating"):
            before = int(self._count[0])
            self._shared.add_to_count(np.array([has_trained], np.int64), self._count)
        increase = int(self._count[0]) - before
        if has_trained:
            # In lock-step the parameters do not change while an update is computed.
            staleness = 0 if self._synchronous else increase - 1
            self.updates += 1
            self.staleness[staleness] = self.staleness.get(staleness, 0) + 1
        return increase if self._synchronous else 1

    def _step(self, gradient: Array, num_active: int) -> None:
        if num_active > 1:
            gradient /= num_active
        self._shared.step(gradient, self._replica.weights)

    def _average_elastically(self) -> None:
        """Move the worker's and the shared parameters toward each other (Zhang et al. 2015).

        In lock-step all workers get the same shared parameters before any worker adds to them, as
        in equations 5 and 6 of the paper.
        """
        replica, difference = self._replica, self._buffer
        replica.pull()
        self._shared.get(difference)
        np.subtract(replica.weights, difference, out=difference)
        difference *= self._elastic_force
        self._shared.add(difference)
        replica.weights -= difference

    def _send_local_steps(self, fragment: int, samples: int, num_active: int) -> None:
        """Send the change since the last exchange, negated, as a gradient (DiLoCo)."""
        self._replica.pull()
        part = self.tables.fragments[fragment]
        current, last = self._replica.weights[part], self._buffer[part]
        np.subtract(last, current, out=last)
        if num_active > 1:
            last /= num_active
        if self.tables.merge is not None:
            last *= self.tables.merge.scale_of(samples)
        self._shared.step(last, current, fragment)
        np.copyto(last, current)


class GroupExchange:
    """Exchanges the parameters of a group with those of all workers, on the sub-master.

    The group as a whole acts like one worker that trains for `sync_every` updates between two
    exchanges. The attribute `exchanges` is the number of exchanges.
    """

    def __init__(self, context: RankContext, tables: TrainingTables) -> None:
        assert context.group is not None
        self._algo = context.training.algo
        (self._all_parameters,) = tables.parameters
        self._group_parameters = GroupParameters(tables, context.group)
        self._elastic_force = self._algo.force(len(context.layout.groups))
        self._timer = context.timer
        self._current: Array = np.empty(self._all_parameters.size, self._all_parameters.dtype)
        self._last = np.empty_like(self._current)
        self._count = np.zeros(1, np.int64)
        self._passed_on = 0  # The number of the group's updates that have been passed on.
        self.exchanges = 0

    def begin(self) -> None:
        """Set the parameters of the group to those of all workers."""
        self._all_parameters.get(out=self._last)
        self._group_parameters.get(self._current)
        self._group_parameters.add(self._last - self._current)
        self._passed_on += self.pending()

    def pending(self) -> int:
        """Return the number of updates of the group that have not been passed on."""
        self._group_parameters.count(self._count)
        return int(self._count[0]) - self._passed_on

    def pass_on(self) -> None:
        """Send the changes of the group since the last call, and receive those of other groups.

        A worker counts an update before it applies the update, so this call may count an update
        before its change arrives; the next call sends that change. So call `pass_on` once more
        after the last update, even if `pending` returns 0.
        """
        with self._timer.measure("communicating"):
            self._passed_on += self.pending()
            current, last = self._current, self._last
            self._group_parameters.get(current)
            if self._algo.elastic:
                self._all_parameters.get(out=last)
                np.subtract(current, last, out=last)
                last *= self._elastic_force
                self._all_parameters.add(last, sync=True)
                self._group_parameters.add(-last)
            else:
                # With local steps the shared optimizer uses the negated change as a gradient.
                delta = last - current if self._algo.local_steps else current - last
                self._all_parameters.add_get(delta, out=last)
                self._group_parameters.add(last - current)
        self.exchanges += 1
