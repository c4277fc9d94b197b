"""A NumPy model of sync mode, and random programs of calls.

A round consists of one add of each worker that has not finished. Rows that a worker names twice are
summed first, in the given order. Then the workers' deltas are summed pairwise, and the sum goes
through the updater once.
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "unit" / "support"))

import numpy as np  # noqa: E402
from initializer_model import initial_values  # noqa: E402
from pairwise import pairwise_sum  # noqa: E402

from multiverso import initializers  # noqa: E402

#: Sizes and shapes of tables with fewer elements than workers, parts of a stripe, several stripes,
#: and rows larger than a stripe.
ARRAY_SIZES = (1, 2, 3, 5, 1000, 16_384, 16_385, 70_001)
MATRIX_SHAPES = ((1, 1), (7, 3), (2, 1000), (40, 64), (600, 35), (3, 20_000))
DTYPES = ("float32", "float64", "int32", "int64")

#: The number of adds by which a worker can be ahead without waiting for the others.
ADDS_AHEAD = 4

#: The magnitudes of random floats. Computing the powers for each element takes most of the time.
MAGNITUDES = 10.0 ** np.arange(-6, 7)


class TableModel:
    """The state of one table after each round.

    Parameters
    ----------
    initial : ndarray
        The initial values.
    learning_rate : float, optional
        The learning rate of the updater "sgd"; None selects the updater "add".

    Attributes
    ----------
    states : list of ndarray
        The values after 0, 1, ... rounds.

    """

    def __init__(self, initial, learning_rate=None):
        self.learning_rate = learning_rate
        self.states = [initial]

    def apply(self, adds):
        """Apply a round: (row ids or None, delta) of each worker, or None if it has finished."""
        values = self.states[-1].copy()
        if all(add is None or add[0] is None for add in adds):
            total = pairwise_sum([None if add is None else add[1] for add in adds])
            values = self._updated(values, total)
        else:
            rows = [{} if add is None else _own_rows(*add) for add in adds]
            for row in sorted(set().union(*rows)):
                total = pairwise_sum([own.get(row) for own in rows])
                values[row] = self._updated(values[row], total)
        self.states.append(values)

    def _updated(self, values, total):
        if self.learning_rate is None:
            return values + total
        return values - values.dtype.type(self.learning_rate) * total


def _own_rows(ids, delta):
    """Return the sum of each row that the add of one worker names."""
    sums = {}
    for row, values in enumerate(delta) if ids is None else zip(ids, delta, strict=True):
        sums[row] = sums[row] + values if row in sums else values
    return sums


def values_of(rng, shape, dtype):
    """Return random numbers: floats whose sum depends on the order, integers of the whole range.

    Negative zeros reveal a sum that starts at 0 instead of its first term.
    """
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape) * MAGNITUDES[rng.integers(len(MAGNITUDES), size=shape)]
    values[rng.random(shape) < 0.2] = -0.0
    return values.astype(dtype)


@dataclass
class Spec:
    """The shape, dtype, updater and initializer (or None) of a table of a random program."""

    shape: tuple
    dtype: str
    learning_rate: float | None
    initializer: initializers.Initializer | None

    @classmethod
    def draw(cls, rng):
        """Return a random specification."""
        shape = rng.choice(MATRIX_SHAPES) if rng.random() < 0.6 else (rng.choice(ARRAY_SIZES),)
        dtype = rng.choice(DTYPES)
        learning_rate = 0.1 if dtype.startswith("float") and rng.random() < 0.4 else None
        choices = [None, initializers.Zeros(), initializers.Constant(3)]
        if dtype.startswith("float"):
            seed = rng.randrange(2**63)
            choices += [
                initializers.RandomUniform(-1, 2, seed=seed),
                initializers.TruncatedNormal(1, 2, seed=seed),
            ]
        return cls(shape, dtype, learning_rate, rng.choice(choices))


@dataclass
class Phase:
    """A part of a program: some rounds of each table, then some gets of each.

    Attributes
    ----------
    rounds, gets : list of int
        The number of rounds, and of gets by each worker, for each table.
    any_order : bool
        Whether each worker makes its calls on different tables in an order of its own.
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
        self.num_workers = num_workers
        rng = random.Random(seed)
        self.specs = [Spec.draw(rng) for _ in range(rng.randrange(1, 4))]
        self.phases = []
        workers = list(range(num_workers))
        for _ in range(rng.randrange(2, 7)):
            max_count = rng.choice((1, 1, ADDS_AHEAD, 2 * ADDS_AHEAD + 1))
            self.phases.append(
                Phase(
                    rounds=[rng.randrange(max_count + 1) for _ in self.specs],
                    gets=[rng.choice((0, 1, 1, 2)) for _ in self.specs],
                    # Otherwise two workers, each too far ahead in another table, would wait for
                    # each other.
                    any_order=max_count <= ADDS_AHEAD and rng.random() < 0.5,
                    workers=workers,
                )
            )
            if finishes and len(workers) > 1 and rng.random() < 0.5:
                workers = sorted(rng.sample(workers, rng.randrange(1, len(workers))))

    def add(self, table, round_index, worker):
        """Return (row ids or None, delta): the add of `worker` to a table in a round."""
        spec = self.specs[table]
        rng = np.random.default_rng([self.seed, table, round_index, worker])
        # Workers add the whole matrix in a third of the rounds and rows in another third. In the
        # other rounds each worker draws one of the two.
        round_kind = random.Random(f"{self.seed} {table} {round_index}").randrange(3)
        if len(spec.shape) == 1 or round_kind == 0 or (round_kind == 1 and rng.random() < 0.5):
            return None, values_of(rng, spec.shape, spec.dtype)
        rows, columns = spec.shape
        ids = rng.integers(0, rows, rng.integers(0, 2 * min(rows, 20)))
        if rng.random() < 0.3:
            ids = np.unique(ids)
        return ids, values_of(rng, (len(ids), columns), spec.dtype)

    def initial(self, table):
        """Return the initial values of a table."""
        spec = self.specs[table]
        if spec.initializer is not None:
            return initial_values(spec.initializer, spec.shape, spec.dtype)
        return values_of(np.random.default_rng([self.seed, table]), spec.shape, spec.dtype)

    def models(self):
        """Return a model of each table, with the states after all rounds of the program."""
        rates = [spec.learning_rate for spec in self.specs]
        models = [TableModel(self.initial(i), rate) for i, rate in enumerate(rates)]
        for phase in self.phases:
            for i, model in enumerate(models):
                for _ in range(phase.rounds[i]):
                    round_index = len(model.states) - 1
                    adds = [None] * self.num_workers
                    for worker in phase.workers:
                        adds[worker] = self.add(i, round_index, worker)
                    model.apply(adds)
        return models
