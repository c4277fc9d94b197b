"""What a table contains, in NumPy: one model of arrays, matrices and tables with keys.

An add is applied at once, or a round of adds once all workers have made theirs. Rows that one add
names several times are summed first, in the given order, the deltas of a round are then summed in
pairs of workers, and the sum goes through the updater once.
"""

import copy

import numpy as np

from machine import formulas
from machine.halves import HALVES, round_stochastically
from machine.pairwise import pairwise_sum

#: The largest error of one rounding by a wire format, relative to the largest magnitude of a block.
WIRE_STEPS = {"float32": 0.0, "bfloat16": 1 / 128, "int8": 1 / 127}


class Model:
    """The rows of a table, each with its own state; an array is one row.

    Parameters
    ----------
    updater : str
        The name of the updater.
    initial : ndarray of shape (rows, columns)
        The initial values.
    workers : int
        The number of workers.
    stored : str, optional
        The type of 16 bits in which the table stores float32 values.
    numbers : ndarray of uint64, optional
        The number of each row in the table, or its key; by default its place.
    wire : str, optional
        The format in which values travel between nodes.
    **options : float
        All options of the updater, which a test may change between updates.

    Attributes
    ----------
    has_row : ndarray of bool
        Which keys have a row.
    error : float
        By how much values may differ, because they travel in another format.

    """

    def __init__(
        self, updater, initial, workers=1, stored=None, numbers=None, wire=None, **options
    ):
        self.updater, self.options, self.stored = updater, options, stored
        rows, columns = initial.shape
        numbers = np.arange(rows, dtype=np.uint64) if numbers is None else numbers
        self._firsts = numbers * np.uint64(columns) & np.uint64(2**63 - 1)
        self.set_initial(initial)
        self.values = self.initial.copy()
        self.has_row = np.zeros(rows, bool)
        self.steps = np.zeros((rows, 1), np.int64)
        self.state = [np.zeros_like(initial) for _ in range(3)]
        is_noted = updater.startswith("dcasgd")
        self.seen = [np.full_like(initial, np.nan) for _ in range(workers)] if is_noted else None
        self.wire, self.error = WIRE_STEPS[wire or "float32"], 0.0

    def set_initial(self, initial):
        """Set the values of rows that nothing has changed, rounded to the nearest stored ones."""
        with np.errstate(over="ignore", invalid="ignore"):
            stored = initial.astype(HALVES.get(self.stored, initial.dtype))
            self.initial = stored.astype(initial.dtype)

    def copy(self):
        """Return a model that changes by itself."""
        return copy.deepcopy(self)

    def note_get(self, worker, part=...):
        """Record that a worker has received values of the whole table, or of a part."""
        if self.seen is not None:
            self.seen[worker][part] = self.values[part]

    def give_rows(self, rows):
        """Give rows to keys."""
        self.has_row[rows] = True

    def remove(self, rows):
        """Take the rows of keys away, with their state."""
        self.has_row[rows] = False
        self.values[rows] = self.initial[rows]
        self.steps[rows] = 0
        for state in self.state:
            state[rows] = 0

    @property
    def is_linear(self):
        """Whether the deltas of a row that an add names twice are applied one after the other."""
        others = ("weight_decay", "clipnorm", "clipvalue")
        return self.updater in ("add", "sgd") and not any(map(self.options.get, others))

    def add(self, delta, rows=None, worker=0):
        """Apply the delta of one worker to some rows, or to all."""
        rows = np.arange(len(self.values)) if rows is None else np.asarray(rows, int)
        self.give_rows(rows)
        if not self.is_linear:
            rows, delta = merged(rows, delta)
            self._update(rows, self._clipped(rows, delta), worker, np.ones((len(rows), 1), int))
            return
        while len(rows):
            _, first = np.unique(rows, return_index=True)
            self._update(rows[first], delta[first], worker, np.ones((len(first), 1), int))
            rows, delta = np.delete(rows, first), np.delete(delta, first, 0)

    def add_part(self, delta, part, worker=0, terms=1):
        """Apply the delta of one worker, or a sum of several, to a part, by an index of NumPy."""
        index = np.zeros(self.values.shape, bool)
        index[part] = True
        rows = np.flatnonzero(index.any(axis=1))
        full = np.zeros_like(self.values)
        full[part] = delta
        columns = np.flatnonzero(index.any(axis=0))
        self.give_rows(rows)
        block = full[np.ix_(rows, columns)]
        flat = self._clipped(np.arange(len(rows)), block)
        self._update(rows, flat, worker, np.full((len(rows), 1), terms), columns)

    def note_errors(self, deltas):
        """Allow for the errors of a sum, and of its result, that travel in another format."""
        if self.wire:
            largest = sum(float(np.abs(delta).max(initial=0)) for delta in deltas)
            self.error += 2 * self.wire * largest

    def add_round(self, adds):
        """Apply a round: (rows or None, delta) of each worker, or None of one that has finished."""
        columns = self.values.shape[1]
        own = []
        for add in adds:
            rows, delta = (np.empty(0, int), np.empty((0, columns))) if add is None else add
            rows = np.arange(len(self.values)) if rows is None else np.asarray(rows, int)
            rows, delta = merged(rows, delta)
            own.append({row: delta[i] for i, row in enumerate(rows.tolist())})
        union = sorted(set().union(*own))
        if not union:
            return
        totals = [pairwise_sum([one.get(row) for one in own]) for row in union]
        terms = [sum(row in one for one in own) for row in union]
        self.note_errors([add[1] for add in adds if add is not None])
        self.give_rows(union)
        self._update(np.array(union), np.array(totals), 0, np.array(terms)[:, None])

    def _clipped(self, rows, delta):
        """Return the gradients of rows, clipped to a norm of all of them."""
        limit = self.options.get("clipnorm")
        if not limit or not delta.size:
            return delta
        with np.errstate(all="ignore"):
            norm = formulas.square_sums(delta.reshape(1, -1), np.float64)[0, 0] ** 0.5
            return delta if norm <= limit else delta * delta.dtype.type(limit / norm)

    def _update(self, rows, delta, worker, terms, columns=slice(None)):
        at = (rows, slice(None)) if isinstance(columns, slice) else np.ix_(rows, columns)
        self.steps[rows] += 1
        seen = delta if self.seen is None else self.seen[worker][at]
        state = tuple(state[at] for state in self.state)
        steps = self.steps[rows]
        with np.errstate(all="ignore"):
            values, state = formulas.apply(
                self.updater, self.options, self.values[at], state, delta, steps, terms, seen
            )
            if self.stored:
                values = round_stochastically(values, self._firsts[rows], steps[:, 0], self.stored)
        self.values[at] = values
        for mine, new in zip(self.state, state, strict=True):
            mine[at] = new


def merged(rows, delta):
    """Return each row that an add names once, with the sum of its deltas in the given order.

    The rows are in the order of the call, or in ascending order if one is named twice, as the
    library sums their squares.
    """
    unique, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    if len(unique) == len(rows):
        return rows, delta
    sums = delta[first]
    with np.errstate(all="ignore"):
        for i in np.setdiff1d(np.arange(len(rows)), first):
            sums[inverse[i]] += delta[i]
    return unique, sums
