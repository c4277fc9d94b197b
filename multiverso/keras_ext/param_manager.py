"""Synchronizes the weights of a Keras model between all workers."""

from typing import TYPE_CHECKING, Any

import keras

from multiverso.keras_ext import _variables
from multiverso.sync._param_manager import ParamManager
from multiverso.sync._shares import Shares, SyncStatistics
from multiverso.sync._tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.sync._options import ManagerOptions

__all__ = ["KerasParamManager"]


class KerasParamManager(ParamManager):
    """Synchronizes a model that each worker trains, through tables.

    The constructor is collective: ranks pass models of the same architecture. When it returns, the
    models of all workers have the master's weights. You can sync while `model` is in ``fit``. If
    another model that contains `model` is in ``fit``, call `set_trained`.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        A model that is built. Parameters of float16 and bfloat16 are summed in float32. Nothing
        else in the model changes, so saving works as before. Each worker keeps its own optimizer
        state and seeds of random layers.
    sync_non_trainable : {"average", "master", False}, optional
        How weights that no gradient changes, such as batch-normalization statistics, are
        synchronized. "average", the default, averages the workers' deltas; integers are taken from
        the master. "master" takes all of them from the master. With False, each worker keeps its
        own from the start, as always for other dtypes. Weights of frozen layers are parameters.
    overlap, average, **options : optional
        As for `multiverso.sync.ParamSync`. With `sync_every`, `fragments` or
        `fragment_sync_delay`, call `step` after each step of training.

    Raises
    ------
    TypeError, ValueError
        If `model` is not a model, has no parameters, perhaps because it is not built, or has a
        parameter whose dtype no table can hold; if `sync_non_trainable` is invalid.
    MismatchError, MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.sync.ParamSync`.

    Examples
    --------
    >>> import keras
    >>> import multiverso as mv
    >>> from multiverso.keras_ext import KerasParamManager
    >>> with mv.session():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     manager = KerasParamManager(model)
    ...     manager.set_trained(model)  # if you sync while the model is in fit
    ...     manager.sync()  # after each step of your own training loop
    ...     if not mv.is_master_worker():
    ...         manager.restart()  # after setting weights from a file

    """

    def __init__(
        self,
        model: Any,
        sync_non_trainable: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool = False,
        **options: "Unpack[ManagerOptions]",
    ) -> None:
        def make_tensors() -> list[Tensor]:
            if not isinstance(model, keras.layers.Layer):
                raise TypeError(f"model: expected a Keras model, received {type(model).__name__}")
            shares = Shares(sync_non_trainable, "sync_non_trainable", average)
            self._model_weights = _variables.ModelWeights(model)
            return _variables.tensors_of(self._model_weights, shares, average)

        self.model = model
        name = getattr(model, "name", None)
        super().__init__(make_tensors, name, overlap=overlap, average=average, **options)

    def _projections(self) -> str:
        kinds = {
            type(variable.constraint).__name__
            for variable in self._model_weights.parameters
            if getattr(variable, "constraint", None) is not None
        }
        return f"the constraints {', '.join(sorted(kinds))}" if kinds else ""

    def restart(self) -> None:
        """Measure the delta from the current weights, so that earlier changes are not added.

        Call it on workers other than the master after setting weights, for instance from a file.
        """
        self._sync.restart()

    def set_trained(self, trained: Any) -> None:
        """Register the model that is in ``fit`` during a sync.

        Parameters
        ----------
        trained : keras.Model
            `model` itself, or a model that contains it.

        Raises
        ------
        ValueError
            If `trained` has none of the parameters.

        """
        parameter_ids = set(map(id, self._model_weights.parameters))
        if parameter_ids.isdisjoint(map(id, trained.weights)):
            raise ValueError(
                f"expected the model {self.model.name!r} in fit, or one that contains it, received "
                f"{trained.name!r}, which has none of its parameters"
            )
        self._model_weights.trained = trained
