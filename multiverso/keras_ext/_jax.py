"""Weights of Keras on JAX.

While a model is in ``fit`` its variables hold nothing: their values are in a state that the
trainer passes from step to step. ``jax_state_sync()`` puts it back into the variables, and the
trainer takes it from there again.
"""

from typing import Any

from multiverso._staging import StagedGroup, Staging
from multiverso._tensor_sync import Tensor
from multiverso.jax_ext._arrays import DTYPES, ArrayCopier
from multiverso.keras_ext._variables import Access, grouped


class _Store:
    """Variables of one dtype."""

    is_dense = False

    def __init__(self, access: Access, variables: list[Any]) -> None:
        self._access = access
        self._variables = variables
        self._copier = ArrayCopier([variable.value for variable in variables])

    def read(self, staging: Staging) -> None:
        """Copy the values there."""
        _put_back(self._access.trained)
        self._copier.read([variable.value for variable in self._variables], staging)

    def write(self, staging: Staging) -> None:
        """Replace the values."""
        _put_back(self._access.trained)
        arrays = self._copier.arrays_of(staging)
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.assign(array)


def _put_back(model: Any) -> None:
    """Put the state of a model in fit back into its variables; nothing to do the second time."""
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
