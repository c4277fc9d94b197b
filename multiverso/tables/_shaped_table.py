"""Tables whose elements all have a place in one array: their creation and their shape."""

import math
from collections.abc import Callable, Mapping
from ctypes import c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso import _session, initializers
from multiverso._native import arrays, capi
from multiverso._native.arguments import integer
from multiverso.tables._table import Table


class ShapedTable(Table):
    """A table whose elements all have a place in one array."""

    __slots__ = (
        "_count_argument",
        "_fast_add_shape",
        "_handle_argument",
        "_input_shapes",
        "_scalar",
        "_shape",
    )

    def __init__(
        self,
        checked_shape: Callable[[], tuple[int, ...]],
        init_value: object,
        given: Mapping[str, Any],
    ) -> None:
        """Create the table together with all ranks; `checked_shape` raises for an invalid shape."""

        def configure(raw: capi.MV_TableOptions) -> NDArray[Any] | None:
            nonlocal init_value
            session = _session.current()
            self._shape = checked_shape()
            raw.num_row, raw.num_col = (*self._shape, 1)[:2]
            self._input_shapes = input_shapes(self._shape)
            # nan_policy="error" must scan every delta, so it disables the fast path of adds.
            self._fast_add_shape = None if self._requires_finite else self._shape
            if init_value is None and given.get("max_bytes") is not None:
                init_value = initializers.Zeros()
            if isinstance(init_value, initializers.Initializer):
                initializers.set_initializer(raw, init_value, self._dtype)
                self._initializer = init_value
                init_value = None
            # If ranks may be lost, any worker may become the master, so each passes its values.
            return _initial_values(
                init_value, self._dtype, self._input_shapes, session.may_be_master
            )

        super().__init__(configure, given)
        # Arguments that ctypes need not convert in each call.
        self._handle_argument = c_void_p.from_param(self._handle.value)
        self._count_argument = c_int64.from_param(math.prod(self._shape))
        self._scalar: Any = np.ctypeslib.as_ctypes_type(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table: (size,), or (num_row, num_col)."""
        return self._shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    def _size_text(self) -> str:
        return " x ".join(map(str, self._shape))


def input_shapes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a delta for elements of a shape: that one, or flat."""
    return (shape,) if len(shape) == 1 else (shape, (math.prod(shape),))


def _initial_values(
    value: object, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], is_used: bool
) -> NDArray[Any] | None:
    """Return the initial values for the library; None means zeros, or that they are not used."""
    if value is None:
        return None
    given = arrays.as_array(value, "init_value")
    if given.dtype.kind in "OU":
        msg = "init_value: expected an array, or an initializer such as mv.initializers."
        raise TypeError(f"{msg}RandomUniform(), received {value!r}")
    is_scalar = given.ndim == 0
    allowed = ((),) if is_scalar else shapes
    if not is_used:
        # An unused value is checked too, so that an invalid one raises on the rank that passes it.
        arrays.checked_input(given, dtype, allowed, "init_value")
        return None
    array = arrays.as_input(given, dtype, allowed, "init_value")
    if not is_scalar:
        return array
    # A new table is zero already; passing zeros would touch all of its pages.
    return np.full(shapes[0], array, dtype) if any(array.tobytes()) else None


def array_shape(size: object) -> tuple[int]:
    """Return the shape of an array of that size; raise an error if the size is invalid."""
    if isinstance(size, list | tuple) and len(size) == 2:
        raise TypeError(f"size: expected an int, received {size!r}; for a matrix, use MatrixTable")
    return (integer(size, "size", 1),)


def matrix_shape(num_row: object, num_col: object) -> tuple[int, int]:
    """Return the shape of a matrix; raise an error if a number is invalid."""
    rows = integer(num_row, "num_row", 1)
    columns = integer(num_col, "num_col", 1)
    integer(rows * columns, "num_row * num_col", 1)
    return rows, columns
