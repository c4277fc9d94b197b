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
    from multiverso.learn.replicas import Replica  # This module imports Keras.


class ParameterExchange:
    """Exchanges the parameters of one replica with those of all workers, or of a group.

    In lock-step, each worker adds 1 to a shared counter before an exchange, or 0 if it has no batch
    left. The increase of the counter is the number of workers over which the mean is taken. If the
    counter has not increased, the epoch ends for all workers.

    Attributes
    ----------
    staleness : dict of int to int
        The number of this worker's updates with each staleness. The staleness of an update is the
        number of updates that other workers made after this worker got the parameters from which
        it computed the update.

    """

    def __init__(self, context: RankContext, replica: "Replica", tables: TrainingTables) -> None:
        algo, group = context.training.algo, context.group
        everyone = context.layout.workers
        self.tables = tables
        self._shared = SharedParameters(tables) if group is None else GroupParameters(tables, group)
        self._elastic = algo.elastic
        self._force = algo.force(len(everyone if group is None else group.workers))
        self._workers = len(everyone)
        self._synchronous = context.training.synchronous
        self._timer = context.timer
        self._use(replica)

    def _use(self, replica: "Replica") -> None:
        self._replica = replica
        self._last_state = replica.state.copy()
        self._buffer: Array = np.empty_like(replica.weights)
        self._count = np.zeros(1, np.int64)
        self.staleness: dict[int, int] = {}

    def for_replica(self, replica: "Replica") -> "ParameterExchange":
        """Return an exchange with the same tables for another replica on this rank."""
        other = copy.copy(self)
        other._use(replica)
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
        self.tables.optimizer_table.set_option(learning_rate=rate)

    def fetch_count(self) -> None:
        """Read the update counter, from which the staleness of the next update is counted."""
        self._shared.count(self._count)

    def exchange(self, batches: int, gradient: Array | None) -> bool:
        """Send the changes of this worker, and receive those of other workers.

        Parameters
        ----------
        batches : int
            Number of batches since the last exchange.
        gradient : ndarray or None
            Mean gradient of the batches, which this method may change; None if the worker's own
            optimizer has changed the parameters.

        Returns
        -------
        bool
            False if no batch needed an exchange: in lock-step no worker had a batch, which ends the
            epoch; in the other modes this worker had no batch.

        """
        active = self._count_update(batches)
        if not active:
            return False
        replica = self._replica
        with self._timer.measure("communicating"):
            if gradient is not None:
                if not batches:
                    gradient.fill(0)
                self._step(gradient, active)
            elif self._elastic:
                self._average_elastically()
            else:
                self._send_local_steps(active)
            replica.push()
            if self.tables.state is not None:
                replica.pull_state()
                gained = (replica.state - self._last_state) / self._workers
                self.tables.state.add_get(gained, out=replica.state)
                np.copyto(self._last_state, replica.state)
                replica.push_state()
        return True

    def _count_update(self, batches: int) -> int:
        """Count an update, if any; return the number of workers that make the update together."""
        if not self._synchronous and not batches:
            return 0
        # In lock-step, fast workers wait for slow workers in this block.
        with self._timer.measure("waiting" if self._synchronous else "communicating"):
            before = int(self._count[0])
            self._shared.add_to_count(np.array([batches > 0], np.int64), self._count)
        active = int(self._count[0]) - before
        if batches:
            # In lock-step the parameters do not change while an update is computed.
            staleness = 0 if self._synchronous else active - 1
            self.staleness[staleness] = self.staleness.get(staleness, 0) + 1
        return active if self._synchronous else 1

    def _step(self, gradient: Array, active: int) -> None:
        if active > 1:
            gradient /= active
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
        difference *= self._force
        self._shared.add(difference)
        replica.weights -= difference

    def _send_local_steps(self, active: int) -> None:
        """Send the change since the last exchange, negated, as a gradient (DiLoCo)."""
        replica, last = self._replica, self._buffer
        replica.pull()
        np.subtract(last, replica.weights, out=last)
        self._step(last, active)
        np.copyto(last, replica.weights)


class GroupExchange:
    """Exchanges the parameters of a group with those of all workers, on the sub-master.

    The group as a whole acts like one worker that trains for `sync_every` updates between two
    exchanges.

    Attributes
    ----------
    exchanges : int
        Number of exchanges.

    """

    def __init__(self, context: RankContext, tables: TrainingTables) -> None:
        assert context.group is not None
        self._algo = context.training.algo
        self._all = tables.parameters
        self._group = GroupParameters(tables, context.group)
        self._force = self._algo.force(len(context.layout.groups))
        self._timer = context.timer
        self._now: Array = np.empty(self._all.size, self._all.dtype)
        self._last = np.empty_like(self._now)
        self._count, self._passed_on = np.zeros(1, np.int64), 0
        self.exchanges = 0

    def begin(self) -> None:
        """Set the parameters of the group to those of all workers."""
        self._all.get(out=self._last)
        self._group.get(self._now)
        self._group.add(self._last - self._now)
        self._passed_on += self.pending()

    def pending(self) -> int:
        """Return the number of updates of the group that have not been passed on."""
        self._group.count(self._count)
        return int(self._count[0]) - self._passed_on

    def pass_on(self) -> None:
        """Send the changes of the group since the last call, and receive those of other groups.

        A worker counts an update before it applies the update, so this call may count an update
        before its change arrives; the next call sends that change. So call `pass_on` once more
        after the last update, even if `pending` returns 0.
        """
        with self._timer.measure("communicating"):
            self._passed_on += self.pending()
            now, last = self._now, self._last
            self._group.get(now)
            if self._algo.elastic:
                self._all.get(out=last)
                np.subtract(now, last, out=last)
                last *= self._force
                self._all.add(last, sync=True)
                self._group.add(-last)
            else:
                # With local steps the shared optimizer uses the negated change as a gradient.
                delta = last - now if self._algo.local_steps else now - last
                self._all.add_get(delta, out=last)
                self._group.add(last - now)
        self.exchanges += 1
