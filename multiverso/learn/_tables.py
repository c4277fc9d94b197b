"""The tables of a training: the parameters of all, and those of each group if there are groups."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import api
from multiverso.errors import CheckpointCorruptError, CheckpointIOError, MismatchError
from multiverso.learn._errors import InputError, first_line
from multiverso.learn._layout import Layout
from multiverso.learn.algo import Algo
from multiverso.tables import ArrayTableHandler, MatrixTableHandler

__all__ = ["ModelSize", "Tables"]

#: How many checkpoints stay in their folder.
_KEEP: Final = 2


@dataclass(frozen=True)
class ModelSize:
    """What a rank has to know of a model to make its tables.

    Attributes
    ----------
    weights, state : int
        How many parameters there are, and how many running means and the like.
    dtype : str
        "float32" or "float64".

    """

    weights: int
    state: int
    dtype: str


class Tables:
    """Parameters, what a model gathers beside them, and counts of updates. Collective.

    A group's parameters are the sum of two rows: in `steps` what the optimiser has made of the
    gradients of its workers, in `rows` all that is added: the values to start with, and
    what other groups have learned. So whoever adds to the latter does not disturb the optimiser.

    Parameters
    ----------
    algo : Algo
        How parameters are exchanged.
    model : ModelSize
        How large they are.
    layout : Layout
        Who does what.
    weights, state : ndarray or None
        The values to start with; the master's count.

    Attributes
    ----------
    parameters : ArrayTableHandler
        The parameters of all.
    state : ArrayTableHandler or None
        None if the model has no such thing.
    counter : ArrayTableHandler or MatrixTableHandler
        How many updates there were; with groups, how many in each.
    rows : MatrixTableHandler or None
        The parameters of the groups, or a part of them.
    steps : MatrixTableHandler or None
        What optimisers of groups have done, where gradients are exchanged.

    """

    def __init__(
        self,
        algo: Algo,
        model: ModelSize,
        layout: Layout,
        weights: NDArray[Any] | None,
        state: NDArray[Any] | None,
    ) -> None:
        dtype = model.dtype
        optimizer: dict[str, Any] = {"updater": "add"}
        if not algo.elastic and algo.optimizer is not None:
            optimizer = {"updater": algo.optimizer.updater, **algo.optimizer.options}
        # With gradients it works in the groups, whose gains are added up.
        works_in_groups = bool(layout.groups) and not algo.local_steps
        self.parameters = ArrayTableHandler(
            model.weights,
            weights,
            dtype=dtype,
            name="parameters",
            **({"updater": "add"} if works_in_groups else optimizer),
        )
        self.state = None
        if model.state:
            self.state = ArrayTableHandler(model.state, state, dtype=dtype, name="state")
        self.rows: MatrixTableHandler | None = None
        self.steps: MatrixTableHandler | None = None
        self.counter: Any
        if not layout.groups:
            self.counter = ArrayTableHandler(1, dtype="int64", name="updates")
            return
        shape = (len(layout.groups) + 1, model.weights)
        first = None if weights is None else np.broadcast_to(weights, shape)
        self.rows = MatrixTableHandler(*shape, first, dtype=dtype, name="groups")
        if works_in_groups:
            self.steps = MatrixTableHandler(*shape, dtype=dtype, name="steps", **optimizer)
        self.counter = MatrixTableHandler(shape[0], 1, dtype="int64", name="updates")

    @property
    def optimised(self) -> ArrayTableHandler | MatrixTableHandler:
        """The table at which the optimiser works."""
        return self.parameters if self.steps is None else self.steps

    def save(self, folder: Path, epochs: int) -> None:
        """Save the tables after so many epochs. Collective."""
        api.save(folder, step=epochs, keep=_KEEP)

    def load(self, folder: Path) -> int:
        """Set the tables to the last checkpoint in a folder; return after how many epochs it is.

        Collective.

        Raises
        ------
        InputError
            On all ranks, if there is none, or it is of another model or optimiser.

        """
        try:
            epochs = api.load(folder)
        except (CheckpointCorruptError, CheckpointIOError, MismatchError) as error:
            msg = f"cannot restore {folder}: {first_line(error)}"
            raise InputError(msg) from error
        return int(epochs or 0)
