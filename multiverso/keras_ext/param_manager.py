"""Keep the weights of a Keras model in step with those of all workers."""

from typing import Any, Final, Literal

import keras

from multiverso._tensor_sync import Tensor, TensorSync
from multiverso.api import current_session
from multiverso.keras_ext import _variables
from multiverso.tables import ArrayTableHandler

__all__ = ["KerasParamManager", "SyncNonTrainable"]

SyncNonTrainable = Literal["average", "master", False]

_CHOICES: Final = ("average", "master", False)


class KerasParamManager:
    """A model that each worker trains, and that is synchronised through tables.

    Making one is collective: all ranks make it of the same architecture. When it returns, the
    models of all workers have the master's weights.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        One that is built. Its parameters of float32 and float64 are summed up as they are, those
        of float16 and bfloat16 in float32. It is not changed otherwise, so saving works as before.
        What the optimiser keeps, and the seeds of random layers, are each worker's own.
    sync_non_trainable : {"average", "master", False}, optional
        What becomes of weights that no gradient changes, such as the statistics of batch
        normalisation. "average", the default: all have the mean of what the workers have gathered;
        integers are the master's. "master": all have the master's. False: each worker keeps its
        own, from the start. Those of other dtypes are always each worker's own. Parameters of
        layers that are frozen are parameters all the same.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.

    Attributes
    ----------
    model : keras.Model or keras.layers.Layer
        As given.

    Raises
    ------
    ValueError
        If the model has no parameters, perhaps because it is not built; if `sync_non_trainable`
        is something else.
    TypeError
        If it is no model, or a parameter is of a dtype that no table can hold.
    MismatchError
        If another rank's model differs in number, shape or dtype of its weights.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.ArrayTableHandler`.

    """

    def __init__(
        self,
        model: Any,
        sync_non_trainable: SyncNonTrainable = "average",
        *,
        overlap: bool = False,
    ) -> None:
        session = current_session()
        is_master = session.worker_id == 0
        mean = 1.0 / session.num_workers

        def make() -> list[Tensor]:
            _check(model, sync_non_trainable)
            self._access = _variables.Access(model)
            return _variables.tensors_of(self._access, sync_non_trainable, is_master, mean)

        self._sync = TensorSync(make, getattr(model, "name", None), overlap)
        self.model = model

    @property
    def tables(self) -> tuple[ArrayTableHandler, ...]:
        """The tables: one for each dtype, in the order in which these come in the model."""
        return self._sync.tables

    def sync_all_param(self) -> None:
        """Add what this worker has learned since the last time, fetch what all have learned.

        On JAX it may be called while `model` itself is in ``fit``; while one is that has `model` as
        a part, `set_trained` tells.

        Raises
        ------
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

    def restart(self) -> None:
        """Count what this worker learns from the present weights on; what made them is not added.

        For workers other than the master that have set weights, from a file for instance.
        """
        self._sync.restart()

    def set_trained(self, trained: Any) -> None:
        """Say which model is in ``fit`` when the weights are synced.

        Parameters
        ----------
        trained : keras.Model
            `model` itself, or one that it is a part of.

        Raises
        ------
        ValueError
            If it has none of the parameters.

        """
        mine = set(map(id, self._access.parameters))
        if mine.isdisjoint(map(id, trained.weights)):
            msg = (
                f"expected the model {self.model.name!r} in fit, or one that it is a part of, "
                f"received {trained.name!r}, which has none of its parameters"
            )
            raise ValueError(msg)
        self._access.trained = trained


def _check(model: Any, sync_non_trainable: object) -> None:
    if not isinstance(model, keras.layers.Layer):
        msg = f"model: expected a Keras model, received {type(model).__name__}"
        raise TypeError(msg)
    if sync_non_trainable is not False and sync_non_trainable not in ("average", "master"):
        msg = f"sync_non_trainable: expected one of {_CHOICES}, received {sync_non_trainable!r}"
        raise ValueError(msg)
