"""The tables of a training: parameters of all workers and of groups, state, update counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import api
from multiverso.errors import CheckpointCorruptError, CheckpointIOError, MismatchError
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn._layout import Group, Layout
from multiverso.learn.algo import Algo
from multiverso.sync._weighted_merge import WeightedMerge
from multiverso.tables import ArrayTable, MatrixTable

Array = NDArray[Any]

#: The number of checkpoints that a folder keeps.
_KEEP: Final = 2


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a model, which the master tells sub-masters, since they have no model.

    Attributes
    ----------
    weights : int
        The number of trainable parameters.
    state : int
        The number of other floats, such as running means.
    dtype : str
        "float32" or "float64".

    """

    weights: int
    state: int
    dtype: str


def _fragments_of(size: int, count: int) -> list[slice]:
    """Return `count` consecutive parts of nearly equal size."""
    if count > size:
        raise InputError(f"fragments: expected at most {size}, one per parameter, received {count}")
    return [slice(size * n // count, size * (n + 1) // count) for n in range(count)]


class TrainingTables:
    """Parameters, other state of the model, and update counters.

    The constructor is collective and uses the initial values of the master.

    Attributes
    ----------
    fragments : list of slice
        The parts of the parameters that are exchanged one at a time.
    parameters : list of ArrayTable
        The parameters that all workers share, a table for each fragment.
    merge : WeightedMerge or None
        Relates a worker's weights to those of all workers, if changes are weighted.
    state : ArrayTable or None
        Running means and the like; None if the model has no such state.
    counter : ArrayTable or MatrixTable
        The number of updates; with groups, of each group in the row `Group.row`.
    rows, steps : MatrixTable or None
        With groups, two tables: the sum of a group's rows is its parameters. The optimizer works on
        `steps`, which is None if workers make local steps. Initial values and the changes of other
        groups are added to `rows`, where they do not disturb the optimizer.

    """

    def __init__(
        self,
        algo: Algo,
        model: ModelSize,
        layout: Layout,
        weights: Array | None,
        state: Array | None,
    ) -> None:
        dtype = model.dtype
        wire: Any = algo.wire if dtype == "float32" else None
        add: dict[str, Any] = {"updater": "add"}
        optimizer = add
        if not algo.elastic and algo.optimizer is not None:
            optimizer = {"updater": algo.optimizer.updater, **algo.optimizer.options}
        steps_in_groups = bool(layout.groups) and not algo.local_steps
        self.fragments = _fragments_of(model.weights, algo.fragments)
        self.parameters = [
            ArrayTable(
                part.stop - part.start,
                None if weights is None else weights[part],
                dtype=dtype,
                name=f"parameters {number}" if number else "parameters",
                wire=wire,
                **(add if steps_in_groups else optimizer),
            )
            for number, part in enumerate(self.fragments)
        ]
        self.merge = None if algo.weight is None else WeightedMerge(1.0, "parameters")
        self.state = (
            ArrayTable(model.state, state, dtype=dtype, name="state") if model.state else None
        )
        self.rows: MatrixTable | None = None
        self.steps: MatrixTable | None = None
        self.counter: Any
        if not layout.groups:
            self.counter = ArrayTable(1, dtype="int64", name="updates")
            return
        shape = (len(layout.groups) + 1, model.weights)  # The master's row is not used.
        initial = None if weights is None else np.broadcast_to(weights, shape)
        self.rows = MatrixTable(*shape, initial, dtype=dtype, name="groups", wire=wire)
        if steps_in_groups:
            self.steps = MatrixTable(*shape, dtype=dtype, name="steps", wire=wire, **optimizer)
        self.counter = MatrixTable(shape[0], 1, dtype="int64", name="updates")

    @property
    def optimizer_tables(self) -> Sequence[ArrayTable | MatrixTable]:
        """The tables whose updater is the optimizer, if the mode has one."""
        return self.parameters if self.steps is None else [self.steps]

    def save(self, folder: Path, epochs: int) -> None:
        """Save all tables after `epochs` epochs. Collective."""
        api.save(folder, step=epochs, keep=_KEEP)

    def load(self, folder: Path) -> int:
        """Load the last checkpoint of a folder; return its number of trained epochs. Collective.

        Raises InputError on all ranks if the folder has no checkpoint, or a checkpoint of another
        model or optimizer.
        """
        errors = (CheckpointCorruptError, CheckpointIOError, MismatchError)
        with as_input_error(f"cannot restore {folder}", *errors):
            return int(api.load(folder) or 0)


class SharedParameters:
    """The parameters with which a replica exchanges, in this class those of all workers."""

    def __init__(self, tables: TrainingTables) -> None:
        self._tables, self._fragments = tables.parameters, tables.fragments
        self._counter = tables.counter

    def get(self, out: Array) -> None:
        """Get the parameters."""
        for table, part in zip(self._tables, self._fragments, strict=True):
            table.get(out=out[part])

    def add(self, delta: Array) -> None:
        """Add `delta`, and return after the server has applied it."""
        for table, part in zip(self._tables, self._fragments, strict=True):
            table.add(delta[part], sync=True)

    def step(self, gradient: Array, out: Array, fragment: int = 0) -> None:
        """Let the optimizer make a step with a fragment, and get the fragment's parameters.

        This may change `gradient`.
        """
        self._tables[fragment].add_get(gradient, out=out)

    def count(self, out: Array) -> None:
        """Get the number of updates."""
        self._counter.get(out=out)

    def add_to_count(self, increment: Array, out: Array) -> None:
        """Add `increment` to the number of updates, and get the sum."""
        self._counter.add_get(increment, out=out)


class GroupParameters(SharedParameters):
    """The parameters of one group of workers."""

    def __init__(self, tables: TrainingTables, group: Group) -> None:
        super().__init__(tables)
        assert tables.rows is not None
        self._rows, self._steps = tables.rows, tables.steps
        self._row = np.array([group.row])
        self._share = 1 / len(group.workers)
        self._buffer: Array = np.empty((1, tables.rows.num_col), tables.rows.dtype)

    def get(self, out: Array) -> None:
        self._rows.get(self._row, out=out[None])
        if self._steps is not None:
            self._steps.get(self._row, out=self._buffer)
            out += self._buffer[0]

    def add(self, delta: Array) -> None:
        # The sub-master must see the delta before it receives the message that the worker is done.
        self._rows.add(delta[None], self._row, sync=True)

    def step(self, gradient: Array, out: Array, fragment: int = 0) -> None:
        if self._steps is None:
            # A gradient is a negated change, and the group applies the workers' mean change.
            gradient *= -self._share
            self.add(gradient)
        else:
            self._steps.add(gradient[None], self._row)
        self.get(out)

    def count(self, out: Array) -> None:
        self._counter.get(self._row, out=out[None])

    def add_to_count(self, increment: Array, out: Array) -> None:
        # If another worker counts an update between the two calls, both workers get the larger sum.
        self._counter.add(increment[None], self._row)
        self.count(out)
