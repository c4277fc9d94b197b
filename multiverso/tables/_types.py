"""The types of the arguments and results of tables, for type checkers."""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray


class ArrayMemory(Protocol):
    """An array, or an object that shares the memory of one, such as a torch CPU tensor."""

    @property
    def shape(self) -> Any:
        """The lengths of its dimensions."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""


Out = TypeVar("Out", bound=ArrayMemory)
Values: TypeAlias = NDArray[Any]
Scalar: TypeAlias = "np.number[Any]"
Position: TypeAlias = "SupportsIndex | slice | EllipsisType"
Index: TypeAlias = "Position | tuple[Position, ...]"
Element: TypeAlias = "SupportsIndex | tuple[SupportsIndex, ...]"
