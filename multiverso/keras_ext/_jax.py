"""Weights of Keras on JAX.

During ``fit`` the variables of a model are empty: their values are in a state that the trainer
passes from step to step. ``jax_state_sync()`` copies the state back to the variables, one by one,
and the trainer then collects the state again, which takes longer than the rest of a sync.

So weights on the CPU are changed in place in the state itself. JAX arrays must not change while the
program can see them, but the program cannot see the state: a compiled step has just returned its
arrays, in memory of their own, and the next step will consume them. A callback that accesses its
model between steps makes Keras call ``jax_state_sync()``; then the arrays are replaced instead.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.jax_ext._arrays import ArrayCopier, buffers_of, memory_of
from multiverso.jax_ext._rows import (
    look_up_with as look_up_with,  # for `layers`
    wait_for_gradients as wait_for_gradients,
)
from multiverso.keras_ext._variables import ModelWeights, sync_state, variable_dtype
from multiverso.sync._host_copy import HostCopy, Store, host_copy_tensors
from multiverso.sync._table_copy import Share
from multiverso.sync._tensor import Tensor

#: The keys of the trainer's state: weights, and the other variables that steps change.
_WEIGHTS: Final = ("trainable_variables", "non_trainable_variables")
_OTHERS: Final = ("optimizer_variables", "metrics_variables")


class _StateArrays:
    """The arrays of some variables in the state of a trainer during ``fit``."""

    def __init__(self, model_weights: ModelWeights, variables: list[Any]) -> None:
        self._model_weights = model_weights
        self._variables = variables
        # `_places` is valid for `_model` while `_weights` have the `trainable` flags in `_flags`.
        self._model: Any = None
        self._weights: list[Any] = []
        self._flags: list[bool] = []
        self._places: list[tuple[str, int]] | None = None

    def arrays(self) -> list[Any] | None:
        """Return the variables' arrays, or None if the state does not allow writing in place."""
        model = self._model_weights.trained
        state = getattr(model, "_jax_state", None)
        if (
            not state
            or getattr(model, "_jax_state_synced", True)
            or model.run_eagerly
            or not model.jit_compile
        ):
            return None
        # A weight moves within the state when it is frozen or unfrozen.
        if model is not self._model or self._flags != [v.trainable for v in self._weights]:
            self._model = model
            self._weights = list(model.weights)
            self._flags = [variable.trainable for variable in self._weights]
            self._places = self._find_places(model, state)
        if self._places is None:
            return None
        arrays = [state[key][index] for key, index in self._places]
        # A model that was made for the CPU may be trained on another device.
        is_on_cpu = all(next(iter(array.devices())).platform == "cpu" for array in arrays)
        return arrays if is_on_cpu else None

    def _find_places(self, model: Any, state: dict[str, Any]) -> list[tuple[str, int]] | None:
        found: dict[int, tuple[str, int]] = {}
        for key in _WEIGHTS:
            variables = getattr(model, key)  # The order is that of jax_state_sync().
            shapes = [tuple(variable.shape) for variable in variables]
            if shapes != [array.shape for array in state[key]]:
                return None
            found |= {id(variable): (key, index) for index, variable in enumerate(variables)}
        # A step may return one array for two variables, such as those of the optimizer.
        arrays = [array for key in _WEIGHTS + _OTHERS for array in state.get(key) or ()]
        pointers = [array.unsafe_buffer_pointer() for array in arrays if array.size]
        if len(set(pointers)) != len(pointers):
            return None
        places = [found.get(id(variable)) for variable in self._variables]
        return None if None in places else places  # type: ignore[return-value]


class _VariableStore:
    """The store of `variables`, which are of one dtype."""

    is_dense = False

    def __init__(self, model_weights: ModelWeights, variables: list[Any]) -> None:
        self._model_weights = model_weights
        self._variables = variables
        arrays = [variable.value for variable in variables]
        self._copier = ArrayCopier(arrays)
        self._is_exact = TABLE_DTYPES[arrays[0].dtype.name] == arrays[0].dtype
        self._state_arrays = (
            _StateArrays(model_weights, variables) if self._copier.is_on_cpu else None
        )
        self._copies: list[Any] | None = None

    def read(self, host_copy: HostCopy) -> None:
        """Copy the values to `host_copy`."""
        arrays = self.arrays()
        if arrays is None:
            sync_state(self._model_weights.trained)
            arrays = [variable.value for variable in self._variables]
        elif self._is_exact:
            _copy_arrays(buffers_of(arrays), host_copy.addresses, host_copy)
            return
        self._copier.read(arrays, host_copy)

    def write(self, host_copy: HostCopy) -> None:
        """Set the values to `host_copy`, in place in the trainer's state or by new arrays."""
        arrays = self.arrays()
        if arrays is None:
            self._replace(self._copier.arrays_of(host_copy))
        elif self._is_exact:
            _copy_arrays(host_copy.addresses, buffers_of(arrays), host_copy)
        else:
            for array, view in zip(arrays, host_copy.views, strict=True):
                np.copyto(memory_of(array), view, casting="same_kind")

    def expose(self) -> list[int] | None:
        """Return the addresses of the values in the state, or of copies that `accept` assigns."""
        self._copies = None
        arrays = self.arrays()
        if arrays is not None:
            return buffers_of(arrays)
        sync_state(self._model_weights.trained)
        copies = self._copier.copies_of([variable.value for variable in self._variables])
        if copies is None:
            return None
        self._copies, addresses = copies
        return addresses

    def accept(self) -> None:
        """Assign the copies, unless the native pass has changed the state."""
        if self._copies is not None:
            self._replace(self._copies)
            self._copies = None

    def arrays(self) -> list[Any] | None:
        """Return the arrays to write in place, which JAX may still be computing, or None."""
        return None if self._state_arrays is None else self._state_arrays.arrays()

    def _replace(self, arrays: list[Any]) -> None:
        sync_state(self._model_weights.trained)
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.assign(array)


def _copy_arrays(sources: list[int], targets: list[int], host_copy: HostCopy) -> None:
    """Copy arrays of the sizes of those in `host_copy` from `sources` to `targets`."""
    for source, target, view in zip(sources, targets, host_copy.views, strict=True):
        ctypes.memmove(target, source, view.nbytes)


def train_step_of(model: Any, keeps_weights: bool) -> Callable[[Any], Any]:
    """Return a function that trains `model` on a batch; see `_training.train_step_of`."""
    lists = [
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    ]
    step = model.train_step if model.run_eagerly else jax.jit(model.train_step)
    first_changed = 1 if keeps_weights else 0  # Assignments take time.

    def train(data: Any) -> None:
        state = tuple([variable.value for variable in variables] for variables in lists)
        _, state = step(state, data)
        for variables, values in list(zip(lists, state, strict=True))[first_changed:]:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    return train


def store_of(model_weights: ModelWeights, variables: list[Any]) -> Store:
    """Return the store of variables of one dtype, which may be those of the optimizer."""
    return _VariableStore(model_weights, variables)


def tensors_of(
    model_weights: ModelWeights, variables: list[Any], shares: list[Share]
) -> list[Tensor]:
    """Return the tensors of `variables`."""
    sync_state(model_weights.trained)
    return host_copy_tensors(
        [tuple(variable.shape) for variable in variables],
        [variable_dtype(variable) for variable in variables],
        shares,
        lambda indices: store_of(model_weights, [variables[index] for index in indices]),
    )
