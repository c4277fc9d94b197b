"""Weights of Keras on JAX.

While a model is in ``fit`` its variables hold nothing: their values are in a state that the
trainer passes from step to step. ``jax_state_sync()`` puts it back into the variables, and the
trainer takes it from there again. A trainer that is known to go on with the very lists in which it
keeps the state spares that: the weights are read and replaced in the lists.
"""

from typing import Any, Final

import jax
import keras

from multiverso._staging import StagedGroup, Staging
from multiverso._tensor_sync import Tensor
from multiverso.jax_ext._arrays import DTYPES, ArrayCopier
from multiverso.keras_ext._variables import Access, grouped

#: The releases whose trainer does.
_GOES_ON_WITH_ITS_LISTS: Final = ("3.15.",)

_KINDS: Final = ("trainable_variables", "non_trainable_variables")


class _Store:
    """Variables of one dtype."""

    is_dense = False

    def __init__(self, access: Access, variables: list[Any]) -> None:
        self._access = access
        self._variables = variables
        self._copier = ArrayCopier([variable.value for variable in variables])
        self._places = _Places(variables)

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        state = _state_of(self._access.trained)
        if state is not None and (places := self._places.within(self._access.trained, state)):
            arrays = [state[kind][index] for kind, index in places]
        else:
            _put_back(self._access.trained)
            arrays = [variable.value for variable in self._variables]
        self._copier.read(arrays, staging)

    def write(self, staging: Staging) -> None:
        """Replace the values."""
        arrays = self._copier.arrays_of(staging)
        state = _state_of(self._access.trained)
        if state is not None and (places := self._places.within(self._access.trained, state)):
            for (kind, index), array in zip(places, arrays, strict=True):
                state[kind][index] = array
            return
        _put_back(self._access.trained)
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.assign(array)


class _Places:
    """Where in the state of a trainer variables are."""

    def __init__(self, variables: list[Any]) -> None:
        self._variables = variables
        self._key: tuple[Any, ...] = ()
        self._found: list[tuple[str, int]] | None = None

    def within(self, trained: Any, state: dict[str, list[jax.Array]]) -> Any:
        """Return (kind, index) for each variable, or None if not all are there."""
        # When the model is compiled anew, others may be trainable, and so be elsewhere.
        lengths = [len(state[kind]) for kind in _KINDS]
        key = (trained, trained.train_function, *lengths)
        if key != self._key:
            self._key = key
            lists = [getattr(trained, kind) for kind in _KINDS]
            where = {
                id(variable): (kind, index)
                for kind, variables in zip(_KINDS, lists, strict=True)
                for index, variable in enumerate(variables)
            }
            places = [where[id(v)] for v in self._variables if id(v) in where]
            complete = len(places) == len(self._variables)
            self._found = places if complete and lengths == list(map(len, lists)) else None
        return self._found


def _state_of(model: Any) -> dict[str, list[jax.Array]] | None:
    """Return the state of a model in fit, if changes of its lists are changes of it."""
    state: dict[str, list[jax.Array]] | None = getattr(model, "_jax_state", None)
    if not state or getattr(model, "_jax_state_synced", True):
        return None
    if not keras.__version__.startswith(_GOES_ON_WITH_ITS_LISTS):
        return None
    return state if all(isinstance(state.get(kind), list) for kind in _KINDS) else None


def _put_back(model: Any) -> None:
    """Put the state of a model in fit back into its variables."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def tensors_of(access: Access, variables: list[Any], shares: list[float]) -> list[Tensor]:
    """Return the tensors of those `variables` that have elements."""
    tensors: dict[int, Tensor] = {}
    _put_back(access.trained)
    for (dtype, share), places in grouped(variables, shares).items():
        group = StagedGroup(
            _Store(access, [variables[place] for place in places]),
            [tuple(variables[place].shape) for place in places],
            DTYPES[dtype],
            is_exact=DTYPES[dtype].name == dtype,
            share=share,
        )
        tensors |= zip(places, group.tensors, strict=True)
    return [tensor for _, tensor in sorted(tensors.items())]
