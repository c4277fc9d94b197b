"""Keep the weights of a Keras model in step with those of all workers."""

from typing import Any

import keras

from multiverso.keras_ext import _variables
from multiverso.sync._param_manager import ParamManager, Shares, SyncStatistics
from multiverso.sync._tensor import Tensor

__all__ = ["KerasParamManager"]


class KerasParamManager(ParamManager):
    """A model that each worker trains, and that is synchronised through tables.

    Making one is collective: all ranks make it of the same architecture. When it returns, the
    models of all workers have the master's weights. It may sync while `model` itself is in ``fit``;
    while one is that has `model` as a part, `set_trained` tells.

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
        sync_non_trainable: SyncStatistics = "average",
        *,
        overlap: bool = False,
    ) -> None:
        def make() -> list[Tensor]:
            if not isinstance(model, keras.layers.Layer):
                msg = f"model: expected a Keras model, received {type(model).__name__}"
                raise TypeError(msg)
            shares = Shares(sync_non_trainable, "sync_non_trainable")
            self._access = _variables.Access(model)
            return _variables.tensors_of(self._access, shares)

        super().__init__(make, getattr(model, "name", None), overlap)
        self.model = model

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
