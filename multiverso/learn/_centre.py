"""The parameters that all workers share, and the ways in which a worker exchanges with them."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._clockwork import Clockwork
from multiverso.learn._tables import Tables
from multiverso.learn.algo import Algo

if TYPE_CHECKING:
    from multiverso.learn.replicas import Replica  # imports Keras

__all__ = ["Centre"]


class Centre:
    """A rank's side of the tables, for one replica.

    In lock-step a worker counts itself in before every exchange of parameters, which tells it how
    many workers still have data. Their mean is taken over those; if there is none, the epoch is
    over for all, and nobody exchanges.

    Parameters
    ----------
    algo : Algo
        How parameters are exchanged.
    replica : Replica
        This rank's copy of the model.
    tables : Tables
        What is exchanged with.
    workers : int
        How many ranks train.
    synchronous : bool
        Whether the session is in lock-step.
    clockwork : Clockwork
        Gets the time that exchanging takes.

    Attributes
    ----------
    staleness : dict of int to int
        How many of this worker's updates were applied after so many of the others', counted from
        the moment when the worker had fetched the parameters it computed the update with.

    """

    def __init__(
        self,
        algo: Algo,
        replica: "Replica",
        tables: Tables,
        workers: int,
        synchronous: bool,
        clockwork: Clockwork,
    ) -> None:
        self._replica = replica
        self._workers = workers
        self._synchronous = synchronous
        self._clockwork = clockwork
        self._force = algo.force(workers)
        self._elastic = algo.elastic
        self.tables = tables
        self._last_state = replica.state.copy()
        self._one, self._none = np.ones(1, np.int64), np.zeros(1, np.int64)
        self._count = np.zeros(1, np.int64)
        self._buffer: NDArray[Any] = np.empty_like(replica.weights)
        self.staleness: dict[int, int] = {}

    def beside(self, replica: "Replica") -> "Centre":
        """Return a side of the same tables for another replica on this rank."""
        other = copy.copy(self)
        other._replica = replica
        other._last_state = replica.state.copy()
        other._buffer = np.empty_like(replica.weights)
        other._count = self._count.copy()
        other.staleness = {}
        return other

    def fetch(self) -> None:
        """Set this rank's replica to the centre."""
        self._get(self._replica.weights)
        self._replica.push()
        np.copyto(self._buffer, self._replica.weights)
        if self.tables.state is not None:
            self.tables.state.get(out=self._replica.state)
            np.copyto(self._last_state, self._replica.state)
            self._replica.push_state()

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate of the optimiser beside the parameters, for all."""
        self.tables.optimised.set_option(learning_rate=rate)

    def fetch_count(self) -> None:
        """Begin to count from here on: the parameters that this worker has are new."""
        self.tables.counter.get(out=self._count)

    def exchange(self, batches: int, gradient: NDArray[Any] | None) -> bool:
        """Give what this worker has learned, and take what the others have.

        Parameters
        ----------
        batches : int
            Over how many batches the worker has gone since the last exchange.
        gradient : ndarray or None
            The mean of their gradients; may be changed here. None if the worker has made steps of
            its own.

        Returns
        -------
        bool
            False if no worker had a batch any more, which in lock-step ends the epoch.

        """
        active = self._count_in(batches)
        if not active:
            return False
        replica = self._replica
        with self._clockwork.measure("communicating"):
            if gradient is None and self._elastic:
                self._move_together()
            elif gradient is None:
                self._give_way(active)
            else:
                if not batches:
                    gradient.fill(0)
                elif active > 1:
                    gradient /= active
                self._give_gradient(gradient)
            replica.push()
            if self.tables.state is not None:
                # What this copy has gathered, by its share.
                replica.pull_state()
                gained = (replica.state - self._last_state) / self._workers
                self.tables.state.add_get(gained, out=replica.state)
                np.copyto(self._last_state, replica.state)
                replica.push_state()
        return True

    def _count_in(self, batches: int) -> int:
        """Count an update, if there is one; return how many workers make this one together."""
        if not self._synchronous and not batches:
            return 0
        # In lock-step this is where the quick wait for the slow.
        with self._clockwork.measure("waiting" if self._synchronous else "communicating"):
            before = int(self._count[0])
            self._add_to_count(self._one if batches else self._none)
        active = int(self._count[0]) - before
        if batches:
            # In lock-step an update is computed with the parameters that it changes.
            late = 0 if self._synchronous else active - 1
            self.staleness[late] = self.staleness.get(late, 0) + 1
        return active if self._synchronous else 1

    def _get(self, out: NDArray[Any]) -> None:
        """Put the parameters that this rank exchanges with into `out`."""
        self.tables.parameters.get(out=out)

    def _add_to_count(self, one: NDArray[Any]) -> None:
        """Count one update, or none, and leave how many there are in `_count`."""
        self.tables.counter.add_get(one, out=self._count)

    def _add(self, delta: NDArray[Any]) -> None:
        """Add to the parameters that this rank exchanges with; it is there on return."""
        self.tables.parameters.add(delta, sync=True)

    def _give_gradient(self, gradient: NDArray[Any]) -> None:
        """Let the optimiser make a step, and take the parameters that come of it."""
        self.tables.parameters.add_get(gradient, out=self._replica.weights)

    def _move_together(self) -> None:
        """Move this worker's parameters and the centre towards each other (Zhang et al. 2015).

        In lock-step all workers get the same centre before any of them adds to it, as in equations
        5 and 6 of the paper.
        """
        replica = self._replica
        replica.pull()
        self._get(self._buffer)
        np.subtract(replica.weights, self._buffer, out=self._buffer)
        self._buffer *= self._force
        self._add(self._buffer)
        replica.weights -= self._buffer

    def _give_way(self, active: int) -> None:
        """Send the way that this worker has gone as a gradient (Douillard et al. 2023)."""
        replica = self._replica
        replica.pull()
        gradient = self._buffer  # where the worker was after the last exchange
        np.subtract(gradient, replica.weights, out=gradient)
        if active > 1:
            gradient /= active
        self._give_gradient(gradient)
        np.copyto(self._buffer, replica.weights)
