"""What the managers of Keras, Lasagne and PyTorch have in common.

Each gives the tensors of a model; the rest is here: the choice of what becomes of those that no
gradient changes, and the syncs.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from multiverso.api import current_session
from multiverso.sync._tensor import Tensor
from multiverso.sync._tensor_sync import TensorSync
from multiverso.tables import ArrayTableHandler

SyncStatistics = Literal["average", "master", False]

_CHOICES: Final = ("average", "master", False)


class Shares:
    """How much of what this worker's statistics gain is added to the table.

    Parameters
    ----------
    choice : {"average", "master", False}
        What becomes of them.
    argument : str
        What messages call that.

    Raises
    ------
    ValueError
        If it is something else.

    """

    def __init__(self, choice: object, argument: str) -> None:
        if choice is not False and choice not in ("average", "master"):
            msg = f"{argument}: expected one of {_CHOICES}, received {choice!r}"
            raise ValueError(msg)
        session = current_session()
        self._mean = 1.0 / session.num_workers if choice == "average" else None
        self._only_master = 1.0 if session.worker_id == 0 else 0.0
        self.are_synced = choice is not False

    def of(self, *, is_float: bool) -> float:
        """Return the share, 0 to 1: integers are not averaged, they are the master's."""
        return self._mean if self._mean is not None and is_float else self._only_master


class ParamManager:
    """A model that each worker trains, and that is synchronised through tables.

    Parameters
    ----------
    make : callable
        Returns the tensors of the model. If it raises, the other ranks get a `MismatchError`.
    name : str or None
        What messages call the model.
    overlap : bool
        As for `multiverso.sync.ParamSync`.

    """

    def __init__(
        self, make: Callable[[], Sequence[Tensor]], name: str | None, overlap: bool
    ) -> None:
        self._sync = TensorSync(make, name, overlap)

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come in the model."""
        return self._sync.tables

    def sync_all_param(self) -> None:
        """Add what this worker has learned since the last time, fetch what all have learned.

        Raises
        ------
        ValueError
            If the shape or dtype of a parameter has changed.
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.sync`.

        """
        self._sync.sync()

    def wait(self) -> None:
        """With ``overlap=True``: wait for the last sync's exchange and take its result.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for `multiverso.sync.ParamSync.wait`.

        """
        self._sync.wait()
