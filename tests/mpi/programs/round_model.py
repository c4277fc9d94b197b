"""A NumPy model of sync mode, and random programs of calls.

A round consists of one add of each worker that has not finished. Rows that a worker names twice are
summed first, in the given order. Then the workers' deltas are summed, in worker order, and the sum
goes through the updater once.
"""

import random
from dataclasses import dataclass

import numpy as np

#: Extents of tables: less than one element per worker, parts of a stripe, several stripes, rows
#: larger than a stripe.
ARRAYS = (1, 2, 3, 5, 1000, 16_384, 16_385, 70_001)
MATRICES = ((1, 1), (7, 3), (2, 1000), (40, 64), (3000, 7), (3, 20_000))
DTYPES = ("float32", "float64", "int32", "int64")

#: The number of adds that a worker can be ahead before it has to wait for the others.
ADDS_AHEAD = 4


class TableModel:
    """The state of one table after each round.

    Parameters
    ----------
    initial : ndarray
        The initial values.
    rate : float, optional
        The learning rate of the updater "sgd"; None selects the updater "add".

    Attributes
    ----------
    states : list of ndarray
        The values after 0, 1, ... rounds.

    """

    def __init__(self, initial, rate=None):
        self.rate = rate
        self.states = [initial]

    def apply(self, adds):
        """Apply a round of adds: (row ids or None, delta) of each worker, in worker order."""
        values = self.states[-1].copy()
        if all(ids is None for ids, _ in adds):
            total = adds[0][1]
            for _, delta in adds[1:]:
                total = total + delta
            values = self._updated(values, total)
        else:
            for row, total in _sum_of_rows(adds).items():
                values[row] = self._updated(values[row], total)
        self.states.append(values)

    def _updated(self, values, total):
        if self.rate is None:
            return values + total
        return values - values.dtype.type(self.rate) * total


def _sum_of_rows(adds):
    """Return the sum of each row that any of the adds names."""
    total = {}
    for ids, delta in adds:
        mine = {}
        for row, values in enumerate(delta) if ids is None else zip(ids, delta, strict=True):
            mine[row] = mine[row] + values if row in mine else values
        for row, values in mine.items():
            total[row] = total[row] + values if row in total else values
    return total


def values_of(rng, shape, dtype):
    """Return random numbers: floats whose sum depends on the order, integers of the whole range.

    Negative zeros reveal a sum that starts at 0 instead of its first term.
    """
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)
    values[rng.random(shape) < 0.2] = -0.0
    return values.astype(dtype)


@dataclass
class Spec:
    """The shape, dtype and updater of a table of a random program."""

    shape: tuple
    dtype: str
    rate: float | None

    @classmethod
    def draw(cls, rng):
        """Return a random one."""
        shape = rng.choice(MATRICES) if rng.random() < 0.6 else (rng.choice(ARRAYS),)
        dtype = rng.choice(DTYPES)
        rate = 0.1 if dtype.startswith("float") and rng.random() < 0.4 else None
        return cls(shape, dtype, rate)


@dataclass
class Phase:
    """A part of a program: some rounds of each table, then some gets of each.

    Attributes
    ----------
    rounds, gets : list of int
        Their number for each table.
    any_order : bool
        Whether each worker visits the tables in an order of its own.
    workers : list of int
        The workers that have not finished before the phase.

    """

    rounds: list
    gets: list
    any_order: bool
    workers: list


class Program:
    """A random program: tables, and phases of calls on them. The seed determines it.

    Parameters
    ----------
    seed : int
        The seed of all random choices.
    num_workers : int
        The number of workers.
    finishes : bool
        Whether some workers finish before others do.

    """

    def __init__(self, seed, num_workers, finishes):
        self.seed = seed
        rng = random.Random(seed)
        self.specs = [Spec.draw(rng) for _ in range(rng.randrange(1, 4))]
        self.phases = []
        workers = list(range(num_workers))
        for _ in range(rng.randrange(2, 7)):
            most = rng.choice((1, 1, ADDS_AHEAD, 2 * ADDS_AHEAD + 1))
            self.phases.append(
                Phase(
                    rounds=[rng.randrange(most + 1) for _ in self.specs],
                    gets=[rng.choice((0, 1, 1, 2)) for _ in self.specs],
                    # A worker that is further ahead in one table waits there for a worker that
                    # waits in the next.
                    any_order=most <= ADDS_AHEAD and rng.random() < 0.5,
                    workers=workers,
                )
            )
            if finishes and len(workers) > 1 and rng.random() < 0.5:
                workers = sorted(rng.sample(workers, rng.randrange(1, len(workers))))

    def add(self, table, number, worker):
        """Return (row ids or None, delta): the add of `worker` to a table in round `number`."""
        spec = self.specs[table]
        rng = np.random.default_rng([self.seed, table, number, worker])
        # In a third of the rounds every worker adds the whole table, in a third rows; the rest mix
        # both.
        kind = random.Random(f"{self.seed} {table} {number}").randrange(3)
        if len(spec.shape) == 1 or kind == 0 or (kind == 1 and rng.random() < 0.5):
            return None, values_of(rng, spec.shape, spec.dtype)
        rows, columns = spec.shape
        ids = rng.integers(0, rows, rng.integers(0, 2 * min(rows, 20)))
        if rng.random() < 0.3:
            ids = np.unique(ids)
        return ids, values_of(rng, (len(ids), columns), spec.dtype)

    def initial(self, table):
        """Return the initial values of a table."""
        spec = self.specs[table]
        return values_of(np.random.default_rng([self.seed, table]), spec.shape, spec.dtype)

    def models(self):
        """Return a model of each table, with the states after all rounds of the program."""
        models = [TableModel(self.initial(i), spec.rate) for i, spec in enumerate(self.specs)]
        for phase in self.phases:
            for i, model in enumerate(models):
                for _ in range(phase.rounds[i]):
                    number = len(model.states) - 1
                    model.apply([self.add(i, number, worker) for worker in phase.workers])
        return models
