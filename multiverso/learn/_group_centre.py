"""Exchanging in groups: a worker's side, and that of the sub-master who passes on what they learn.

What a worker is to the parameters of all in a training without groups, it is to those of its group
here; and to the parameters of all a whole group is like one worker that has trained for
`sync_every` updates.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiverso.learn._centre import Centre
from multiverso.learn._clockwork import Clockwork
from multiverso.learn._layout import Group
from multiverso.learn._tables import Tables
from multiverso.learn.algo import Algo

if TYPE_CHECKING:
    from multiverso.learn.replicas import Replica  # imports Keras

__all__ = ["GroupCentre", "GroupTop"]


class _GroupRows:
    """The parameters of a group, read and added to.

    Parameters
    ----------
    tables : Tables
        Where they are.
    group : Group
        Which group's.

    """

    def __init__(self, tables: Tables, group: Group) -> None:
        assert tables.rows is not None
        self._rows, self._steps, self._counter = tables.rows, tables.steps, tables.counter
        self._row = np.array([group.row])
        self._spare: NDArray[Any] = np.empty((1, tables.rows.num_col), tables.rows.dtype)

    def get(self, out: NDArray[Any]) -> None:
        self._rows.get(self._row, out=out[None])
        if self._steps is not None:
            self._steps.get(self._row, out=self._spare)
            out += self._spare[0]

    def add(self, delta: NDArray[Any]) -> None:
        # So that it is there when this worker's sub-master hears that the worker is done.
        self._rows.add(delta[None], self._row, sync=True)

    def give_gradient(self, gradient: NDArray[Any]) -> None:
        assert self._steps is not None
        self._steps.add(gradient[None], self._row)

    def add_to_count(self, number: NDArray[Any]) -> None:
        self._counter.add(number[None], self._row)

    def count(self, out: NDArray[Any]) -> None:
        self._counter.get(self._row, out=out[None])


class GroupCentre(Centre):
    """See `Centre`. The parameters that a worker exchanges with are those of its group.

    Parameters
    ----------
    algo, replica, tables, workers, clockwork
        As for `Centre`.
    group : Group
        The worker's.

    """

    def __init__(
        self,
        algo: Algo,
        replica: "Replica",
        tables: Tables,
        workers: int,
        clockwork: Clockwork,
        group: Group,
    ) -> None:
        super().__init__(algo, replica, tables, workers, False, clockwork)
        self._mine = _GroupRows(tables, group)
        self._force = algo.force(len(group.workers))
        self._share = 1 / len(group.workers)

    def fetch_count(self) -> None:
        """See `Centre.fetch_count`. It is the group's own count."""
        self._mine.count(self._count)

    def _get(self, out: NDArray[Any]) -> None:
        self._mine.get(out)

    def _add(self, delta: NDArray[Any]) -> None:
        self._mine.add(delta)

    def _add_to_count(self, one: NDArray[Any]) -> None:
        # Two calls: of two updates at the same time each may count itself as the later one.
        self._mine.add_to_count(one)
        self._mine.count(self._count)

    def _give_gradient(self, gradient: NDArray[Any]) -> None:
        self._mine.give_gradient(gradient)
        self._mine.get(self._replica.weights)

    def _give_way(self, active: int) -> None:
        """Add this worker's share of the way that it has gone: the group's is their mean.

        The optimiser beside the parameters of all takes the group's for its gradient.
        """
        replica = self._replica
        replica.pull()
        way = self._buffer  # where the worker was after the last exchange
        np.subtract(replica.weights, way, out=way)
        way *= self._share
        self._mine.add(way)
        self._mine.get(replica.weights)
        np.copyto(self._buffer, replica.weights)


class GroupTop:
    """A sub-master's side: exchanges the parameters of its group with those of all.

    Parameters
    ----------
    algo : Algo
        How, and after how many updates of the group.
    tables : Tables
        Of both.
    group : Group
        The sub-master's.
    groups : int
        How many there are.
    clockwork : Clockwork
        Gets the time that exchanging takes.

    Attributes
    ----------
    exchanges : int
        How many there were.

    """

    def __init__(
        self, algo: Algo, tables: Tables, group: Group, groups: int, clockwork: Clockwork
    ) -> None:
        self._algo = algo
        self._top = tables.parameters
        self._mine = _GroupRows(tables, group)
        self._force = algo.force(groups)
        self._clockwork = clockwork
        self._now: NDArray[Any] = np.empty(self._top.size, self._top.dtype)
        self._last = np.empty_like(self._now)
        self._count, self._passed_on = np.zeros(1, np.int64), 0
        self.exchanges = 0

    def begin(self) -> None:
        """Set the group to the parameters of all."""
        self._top.get(out=self._last)
        self._mine.get(self._now)
        self._mine.add(self._last - self._now)
        self._mine.count(self._count)
        self._passed_on = int(self._count[0])

    def pending(self) -> int:
        """Return how many updates of the group have not been passed on."""
        self._mine.count(self._count)
        return int(self._count[0]) - self._passed_on

    def pass_on(self) -> None:
        """Pass on what the group has learned since the last time, and take what others have.

        A worker counts its update before it gives it, so that one that is no longer pending may not
        have been passed on: after the last one this is to be called in any case.
        """
        with self._clockwork.measure("communicating"):
            self._passed_on += self.pending()
            now, last = self._now, self._last
            self._mine.get(now)
            if self._algo.elastic:
                self._top.get(out=last)
                np.subtract(now, last, out=last)
                last *= self._force
                self._top.add(last, sync=True)
                self._mine.add(-last)
            else:
                # What an optimiser takes is a gradient: what the group has lost.
                way = last - now if self._algo.local_steps else now - last
                self._top.add_get(way, out=last)
                self._mine.add(last - now)
        self.exchanges += 1
