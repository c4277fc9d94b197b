"""The weights of a Keras model as tensors to be synchronized, on any backend."""

import importlib
from types import ModuleType
from typing import Any

import keras

from multiverso._extras import BACKENDS
from multiverso._native.dtypes import require_table_dtype
from multiverso.sync._shares import Shares, share_of_parameter
from multiverso.sync._tensor import Tensor, Tensors


class ModelWeights:
    """The weights of a built model or layer, divided into parameters and statistics."""

    def __init__(self, model: Any) -> None:
        created_trainable = _created_trainable(model)
        weights = list(model.weights)
        #: The weights that gradients change, including those of frozen layers.
        self.parameters = [v for v in weights if id(v) in created_trainable or v.trainable]
        parameter_ids = set(map(id, self.parameters))
        #: The other weights, without the seeds of random layers, which each worker keeps.
        self.statistics = [v for v in weights if id(v) not in parameter_ids]
        #: The model that may be in ``fit``: `model`, or one that contains it.
        self.trained: Any = model
        if not self.parameters:
            raise ValueError(
                f"model: expected parameters, received a {type(model).__name__} without any; build "
                "it or run a batch first"
            )
        for variable in self.parameters:
            require_table_dtype(variable_dtype(variable), f"parameter {variable.path}")


class WeightTensors(Tensors):
    """The tensors of some weights of a model, which must keep all its weights."""

    def __init__(self, model: Any, tensors: list[Tensor]) -> None:
        layers = _layers_of(model)
        super().__init__(
            tensors,
            lambda: [
                part
                for layer in layers
                for name in ("_trainable_variables", "_non_trainable_variables", "_layers")
                for part in getattr(layer, name, ())
            ],
            lambda: {id(weight): f"weight {weight.path}" for weight in model.weights},
            f"model {model.name!r}",
        )
        self._weights = list(model.weights)

    def sources(self) -> list[Any]:
        """Return the weights."""
        return self._weights


def tensors_of(model_weights: ModelWeights, statistics: Shares, average: bool) -> Tensors:
    """Return the tensors of the parameters, and of the statistics that are synchronized."""
    variables = [variable for variable in model_weights.parameters if 0 not in variable.shape]
    shares = [share_of_parameter(variable_dtype(variable), average) for variable in variables]
    for variable in model_weights.statistics:
        share = statistics.of(variable_dtype(variable))
        if share is not None and 0 not in variable.shape:
            variables.append(variable)
            shares.append(share)
    tensors = backend_module().tensors_of(model_weights, variables, shares)
    return WeightTensors(model_weights.trained, tensors)


def backend_module() -> ModuleType:
    """Return the module for the backend of Keras, whose framework it imports."""
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        msg = f"the backend of Keras: expected one of {', '.join(BACKENDS)}, received {backend}"
        raise ValueError(msg)
    return importlib.import_module(f"multiverso.keras_ext._{backend}")


def variable_dtype(variable: Any) -> str:
    """Return the name of the dtype of a variable's values."""
    return str(keras.backend.standardize_dtype(variable.value.dtype))


def _created_trainable(model: Any) -> set[int]:
    """Return the ids of the weights that were created as trainable, including frozen ones.

    A frozen layer reports all its weights as not trainable. Only the list in which it keeps a
    weight distinguishes its kernel from the statistics of batch normalization.
    """
    return {
        id(v) for layer in _layers_of(model) for v in getattr(layer, "_trainable_variables", ())
    }


def _layers_of(model: Any) -> list[Any]:
    """Return a model and all layers in it."""
    flatten = getattr(model, "_flatten_layers", None)
    return [model] if flatten is None else list(flatten(include_self=True, recursive=True))


def sync_state(model: Any) -> None:
    """Copy the state of a model in ``fit`` back to its variables; a no-op the second time."""
    callback = keras.callbacks.Callback()
    callback.set_model(model)
    # The method of the trainer has another name in each version of Keras; this calls it in all.
    _ = callback.model
