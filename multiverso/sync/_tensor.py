"""The interfaces through which `TensorSync` accesses the parameters of a model."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Tensor(Protocol):
    """One array of parameters, with a fixed number of elements."""

    #: The dtype of the table that keeps the parameters.
    dtype: np.dtype[Any]
    #: The shape of the parameters, which must be the same on all ranks.
    shape: tuple[int, ...]
    size: int
    #: Whether the native pass works on the tensor's memory, at an address that never changes.
    is_fixed: bool
    #: The group through which the framework is accessed, or None.
    group: Any

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the parameters in one dimension, as `dtype`."""

    def assign(self, values: NDArray[Any]) -> None:
        """Set the parameters to `values` (one dimension, `dtype`), where the next delta starts."""

    def address(self) -> int:
        """Return the address of the values for the native pass, C-contiguous and of `dtype`."""

    def settle(self) -> None:
        """Copy the result of the native pass to the parameters, unless it changed them in place."""


class Tensors(list[Any]):
    """The tensors of a model, each a `Tensor`, which must keep its parameters.

    `names_of` returns the names of the parameters by the framework's objects, or other keys, and
    `what` names the model in messages. `parts`, compared by identity, is cheap, because it is
    called before each sync.
    """

    def __init__(
        self,
        tensors: Iterable[Any],
        parts: Callable[[], list[Any]] = list,
        names_of: Callable[[], dict[Any, str]] = dict,
        what: str = "",
    ) -> None:
        super().__init__(tensors)
        self._parts = parts
        self._last_parts = parts()
        self._names_of = names_of
        self._names = names_of()
        self._what = what

    def follow(self) -> None:
        """Call `update` if the model has other parts, and again the next time if it raises."""
        parts = self._parts()
        last = self._last_parts
        if len(parts) != len(last) or not all(map(operator.is_, parts, last)):
            self.update()
            self._last_parts = parts

    def update(self) -> None:
        """Raise ValueError if the parameters are others; a subclass then accesses those of now."""
        now, then = self._names_of(), self._names
        changes = [f"{name} is new" for key, name in now.items() if key not in then]
        changes += [f"{name} is missing" for key, name in then.items() if key not in now]
        if changes:
            more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise ValueError(
                f"{self._what}: expected the parameters with which the sync was set up, but "
                f"{', '.join(changes[:3])}{more}; set it up again, on all ranks"
            )

    def sources(self) -> list[Any]:
        """Return the framework's objects of the parameters, if it has any."""
        return list(self._names)


class TensorGroup(Protocol):
    """Tensors of one dtype that are read from and written to a framework together."""

    tensors: Sequence[Any]
    #: The addresses of the tensors between `gather` and `scatter`, if the group knows them. Then
    #: `address` and `settle` of the tensors are not called.
    addresses: list[int] | None

    def values(self) -> Sequence[NDArray[Any]]:
        """Return the current values of the tensors in the framework, without side effects."""

    def load(self) -> None:
        """Copy the values, from which the next delta starts, to the tensors' memory."""

    def gather(self) -> None:
        """Copy the values or deltas to the tensors' memory, for the native pass."""

    def scatter(self) -> None:
        """Return the tensors' memory to the framework."""
