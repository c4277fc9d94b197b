"""Weights of Keras on JAX.

While a model is in ``fit`` its variables hold nothing: their values are in a state that the
trainer passes from step to step. ``jax_state_sync()`` puts it back into the variables, one by one,
and the trainer collects it from there again, which takes longer than all the rest of a sync.

So weights on the CPU are worked on in the state itself, in place. Arrays of JAX must not change
where somebody else may see them, but nobody can see these: they have just come out of a compiled
step, which shares no memory with what went into it, and will be gone into the next. Who looks at
weights in between, in a callback, has put the state back before, and then they are replaced as
everywhere else.
"""

import ctypes
from typing import Any, Final

import numpy as np

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.jax_ext._arrays import ArrayCopier, buffers_of, memory_of
from multiverso.keras_ext._variables import Access, variable_dtype
from multiverso.sync._staging import Staging, staged_tensors
from multiverso.sync._tensor import Tensor

#: By which names the trainer keeps its state: weights, and what else steps change.
_WEIGHTS: Final = ("trainable_variables", "non_trainable_variables")
_OTHERS: Final = ("optimizer_variables", "metrics_variables")


class _State:
    """Where some variables are in the state of a trainer whose ``fit`` is under way."""

    def __init__(self, access: Access, variables: list[Any]) -> None:
        self._access = access
        self._variables = variables
        self._model: Any = None  # whose state `_places` is about
        self._flags: list[bool] = []  # of all its weights then: whether they are trained
        self._weights: list[Any] = []
        self._places: list[tuple[str, int]] | None = None

    def arrays(self) -> list[Any] | None:
        """Return the variables' arrays; None if they are not in a state, or not to be written."""
        model = self._access.trained
        held = getattr(model, "_jax_state", None)
        if not held or model._jax_state_synced or model.run_eagerly or not model.jit_compile:
            return None
        # What is frozen, or trained again, moves within the state.
        if model is not self._model or self._flags != [v.trainable for v in self._weights]:
            self._model = model
            self._weights = list(model.weights)
            self._flags = [variable.trainable for variable in self._weights]
            self._places = self._find(model, held)
        if self._places is None:
            return None
        return [held[key][index] for key, index in self._places]

    def _find(self, model: Any, held: dict[str, Any]) -> list[tuple[str, int]] | None:
        found: dict[int, tuple[str, int]] = {}
        for key in _WEIGHTS:
            variables = getattr(model, key)  # as jax_state_sync() has it
            shapes = [tuple(variable.shape) for variable in variables]
            if shapes != [array.shape for array in held[key]]:
                return None
            found |= {id(variable): (key, index) for index, variable in enumerate(variables)}
        # A step may return one array for two variables, of the optimiser perhaps.
        arrays = [array for key in _WEIGHTS + _OTHERS for array in held.get(key) or ()]
        pointers = [array.unsafe_buffer_pointer() for array in arrays if array.size]
        if len(set(pointers)) != len(pointers):
            return None
        places = [found.get(id(variable)) for variable in self._variables]
        return None if None in places else places  # type: ignore[return-value]


class _Store:
    """Variables of one dtype."""

    is_dense = False

    def __init__(self, access: Access, variables: list[Any]) -> None:
        self._access = access
        self._variables = variables
        arrays = [variable.value for variable in variables]
        self._copier = ArrayCopier(arrays)
        self._is_exact = TABLE_DTYPES[arrays[0].dtype.name] == arrays[0].dtype
        self._state = _State(access, variables) if self._copier.is_plain else None
        self._copies: list[Any] | None = None

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        arrays = self.arrays()
        if arrays is None:
            _put_back(self._access.trained)
            arrays = [variable.value for variable in self._variables]
        elif self._is_exact:
            _copy(buffers_of(arrays), staging.addresses, staging)
            return
        self._copier.read(arrays, staging)

    def write(self, staging: Staging) -> None:
        """Replace the values, or set them in place."""
        arrays = self.arrays()
        if arrays is None:
            self._replace(self._copier.arrays_of(staging))
        elif self._is_exact:
            _copy(staging.addresses, buffers_of(arrays), staging)
        else:
            for array, view in zip(arrays, staging.views, strict=True):
                np.copyto(memory_of(array), view, casting="same_kind")

    def expose(self) -> list[int] | None:
        """Return where the values are in the state, or copies that are to replace them."""
        self._copies = None
        arrays = self.arrays()
        if arrays is not None:
            return buffers_of(arrays)
        _put_back(self._access.trained)
        made = self._copier.copies_of([variable.value for variable in self._variables])
        if made is None:
            return None
        self._copies, addresses = made
        return addresses

    def accept(self) -> None:
        """Replace the values, if it was copies."""
        if self._copies is not None:
            self._replace(self._copies)
            self._copies = None

    def arrays(self) -> list[Any] | None:
        """Return the arrays that may be written in place, which may not be computed yet."""
        return None if self._state is None else self._state.arrays()

    def _replace(self, arrays: list[Any]) -> None:
        _put_back(self._access.trained)
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.assign(array)


def _copy(sources: list[int], targets: list[int], staging: Staging) -> None:
    """Copy arrays that are as long as those of `staging` from some addresses to others."""
    for source, target, view in zip(sources, targets, staging.views, strict=True):
        ctypes.memmove(target, source, view.nbytes)


def _put_back(model: Any) -> None:
    """Put the state of a model in fit back into its variables; nothing to do the second time."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def tensors_of(access: Access, variables: list[Any], shares: list[float]) -> list[Tensor]:
    """Return the tensors of `variables`."""
    _put_back(access.trained)
    return staged_tensors(
        [tuple(variable.shape) for variable in variables],
        [variable_dtype(variable) for variable in variables],
        shares,
        lambda places: _Store(access, [variables[place] for place in places]),
    )
