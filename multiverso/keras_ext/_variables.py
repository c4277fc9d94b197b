"""The weights of a model as tensors to be kept in step, on whichever backend Keras has."""

import importlib
from typing import Any

import keras

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._param_manager import Shares
from multiverso.sync._tensor import Tensor


class Access:
    """A model's weights, and the way to their values at any moment.

    Attributes
    ----------
    parameters : list of keras.Variable
        What gradients change, or would change if it were not frozen.
    statistics : list of keras.Variable
        The other weights. Seeds of random layers are none: each worker has its own.
    trained : keras.Model
        The model that may be in ``fit``: the one given, or one that it is a part of.

    """

    def __init__(self, model: Any) -> None:
        made_trainable = _made_trainable(model)
        weights = list(model.weights)
        self.parameters = [v for v in weights if id(v) in made_trainable or v.trainable]
        chosen = set(map(id, self.parameters))
        self.statistics = [v for v in weights if id(v) not in chosen]
        self.trained: Any = model
        if not self.parameters:
            msg = (
                f"model: expected parameters, received a {type(model).__name__} without any; build "
                "it, or run a batch, before"
            )
            raise ValueError(msg)
        for variable in self.parameters:
            if variable_dtype(variable) not in TABLE_DTYPES:
                known = ", ".join(TABLE_DTYPES)
                msg = (
                    f"parameter {variable.path}: expected one of the dtypes {known}, received "
                    f"{variable_dtype(variable)}"
                )
                raise TypeError(msg)


def tensors_of(access: Access, statistics: Shares) -> list[Tensor]:
    """Return the tensors, in the order of `parameters` and `statistics`.

    Parameters
    ----------
    access : Access
        The weights.
    statistics : Shares
        What becomes of those that are no parameters.

    """
    variables = [variable for variable in access.parameters if 0 not in variable.shape]
    shares = [1.0] * len(variables)
    for variable in access.statistics if statistics.are_synced else ():
        dtype = variable_dtype(variable)
        if dtype in TABLE_DTYPES and 0 not in variable.shape:
            variables.append(variable)
            shares.append(statistics.of(is_float=TABLE_DTYPES[dtype].kind == "f"))
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow", "torch"):
        msg = f"expected Keras on jax, tensorflow or torch, it is on {backend}"
        raise ValueError(msg)
    # The others' modules import their frameworks.
    module = importlib.import_module(f"multiverso.keras_ext._{backend}")
    tensors: list[Tensor] = module.tensors_of(access, variables, shares)
    return tensors


def variable_dtype(variable: Any) -> str:
    """Return the dtype of a variable's values."""
    return str(keras.backend.standardize_dtype(variable.value.dtype))


def _made_trainable(model: Any) -> set[int]:
    """Return the ids of the weights that were made to be trained, also of frozen layers.

    A frozen layer says of all its weights that they are not trainable; only where it keeps them
    tells its kernel from the statistics of batch normalisation.
    """
    flatten = getattr(model, "_flatten_layers", None)
    layers = [model] if flatten is None else flatten(include_self=True, recursive=True)
    return {id(v) for layer in layers for v in getattr(layer, "_trainable_variables", ())}
