"""Shared variables of PyTensor, Theano and Aesara as tensors to be synchronized."""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.dtypes import require_table_dtype
from multiverso.sync._movable import MovableGroup, MovableTensor
from multiverso.sync._table_copy import Share
from multiverso.theano_ext._backend import is_shared_variable


class SharedTensor(MovableTensor):
    """The value of a shared variable, whose array any function with updates may replace.

    A C-contiguous array of the table's dtype is changed in place. A value of half precision, on
    another device or in another layout needs a copy.
    """

    def __init__(self, variable: Any, share: Share = 1.0) -> None:
        value = checked_value(variable)
        super().__init__(value.shape, value.dtype.name, share)
        self.variable = variable
        self._own_dtype = value.dtype.newbyteorder("=")

    def locate(self) -> int | None:
        """Return the address of the value, or None unless the value is a suitable array."""
        stored = self._stored()
        if (shape := np.shape(stored)) != self.shape:
            raise ValueError(
                f"expected {name_of(self.variable)} to have the shape it was attached with,"
                f" {self.shape}, received {shape}"
            )
        if self.needs_table_copy or not _is_suitable(stored, self.dtype):
            return None
        return _address(stored)

    def read(self) -> NDArray[Any]:
        """Return a view or a copy of the value."""
        stored = self._stored()
        if type(stored) is not np.ndarray:
            stored = np.asarray(self.variable.get_value(borrow=True))
        values: NDArray[Any] = stored.astype(self.dtype, copy=False)
        return values

    def write(self, values: NDArray[Any]) -> None:
        """Copy `values` to the variable's array if possible, otherwise give it a new array."""
        stored = self._stored()
        if type(stored) is np.ndarray and stored.flags.writeable and stored.shape == self.shape:
            np.copyto(stored, values, casting="same_kind")
        else:  # The value is on another device, read-only, or a NumPy scalar of an update.
            self.replace(values)

    def replace(self, values: NDArray[Any]) -> None:
        """Give the variable a new array, because the program may still use the old array."""
        self.variable.set_value(values.astype(self._own_dtype), borrow=True)

    def _stored(self) -> Any:
        return self.variable.get_value(borrow=True, return_internal_type=True)


class SharedGroup(MovableGroup):
    """Variables whose arrays the native pass changes in place, located together to save time.

    An address stays valid while the variable holds the same array: NumPy does not resize an array
    that has a weak reference. Each sync checks everything else that can change about an array.
    """

    def __init__(self, tensors: list[SharedTensor]) -> None:
        super().__init__(tensors)
        self._dtype = tensors[0].dtype
        self._variables = [(tensor.variable, tensor.shape) for tensor in tensors]
        # Each variable with its shape and a weak reference to its array, valid with the addresses.
        self._located: list[tuple[Any, tuple[int, ...], Callable[[], Any]]] = []
        self._found_addresses: list[int] | None = None

    def gather(self) -> None:
        """Set `addresses` if all values are suitable arrays."""
        if self._found_addresses is None or not self._is_unchanged():
            self._found_addresses = self._find_addresses()
        self.addresses = self._found_addresses

    def _is_unchanged(self) -> bool:
        dtype = self._dtype
        # One loop reads the storage itself, because after a batch no variable is in the caches.
        for variable, shape, located_array in self._located:
            value = variable.container.storage[0]
            if (
                value is not located_array()
                or value.shape != shape
                or value.dtype != dtype
                or not value.flags.carray
            ):
                return False
        return True

    def _find_addresses(self) -> list[int] | None:
        dtype = self._dtype
        self._located, addresses = [], []
        for variable, shape in self._variables:
            value = variable.container.storage[0]
            if not _is_suitable(value, dtype) or value.shape != shape:
                return None
            self._located.append((variable, shape, weakref.ref(value)))
            addresses.append(_address(value))
        return addresses


def _is_suitable(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether the native pass can work on `value`, a shared variable's stored value."""
    return type(value) is np.ndarray and value.flags.carray and value.dtype == dtype


def _address(value: NDArray[Any]) -> int:
    """Return the address of a C-contiguous, writable array, faster than `array.ctypes.data`."""
    return ctypes.addressof(arrays.pin(value))


def checked_value(variable: Any) -> NDArray[Any]:
    """Return the value of a shared variable, a dense array of one of `TABLE_DTYPES`."""
    if not is_shared_variable(variable):
        raise TypeError(
            "expected a shared variable of PyTensor, Theano or Aesara, received"
            f" {type(variable).__name__}"
        )
    value = variable.get_value(borrow=True)
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(
            f"expected {name_of(variable)} to hold a dense array or a scalar, received"
            f" {type(value).__name__}"
        )
    require_table_dtype(value.dtype.name, name_of(variable))
    return np.asarray(value)


def name_of(variable: Any) -> str:
    """Return the name of a variable in messages."""
    return f"shared variable {variable.name!r}" if variable.name else "a shared variable"
