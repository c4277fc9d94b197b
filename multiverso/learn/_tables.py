"""The tables of a training: the parameters, other state of the model, and their checkpoints."""

from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from multiverso import api
from multiverso.errors import CheckpointCorruptError, CheckpointIOError, MismatchError
from multiverso.learn._input import InputError, as_input_error
from multiverso.learn._settings import Settings
from multiverso.sync._weighted_merge import WeightedMerge
from multiverso.tables import ArrayTable
from multiverso.tables._array_table import ExchangeTable

if TYPE_CHECKING:
    from multiverso.learn._replica import Replica  # It would import Keras.

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

    def __init__(self, settings: Settings, replica: "Replica") -> None:
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
            ExchangeTable(
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
        """Load the last checkpoint, if asked for; return the epochs to train. Collective."""
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
