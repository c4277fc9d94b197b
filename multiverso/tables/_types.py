"""The types of the arguments and results of tables, for type checkers."""

from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar


class ArrayMemory(Protocol):
    """An array, or an object that shares the memory of one, such as a torch CPU tensor."""

    @property
    def shape(self) -> Any:
        """The lengths of its dimensions."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""


Values: TypeAlias = NDArray[Any]
#: The array that receives values and is the result; without one, the result is a new array.
Out = TypeVar("Out", bound=ArrayMemory, default=Values)
Scalar: TypeAlias = "np.number[Any]"
Position: TypeAlias = "SupportsIndex | slice | EllipsisType"
Index: TypeAlias = "Position | tuple[Position, ...]"
Element: TypeAlias = "SupportsIndex | tuple[SupportsIndex, ...]"
