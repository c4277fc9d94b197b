"""Shared variables of PyTensor, Theano and Aesara as tensors to be kept in step."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from multiverso import _arrays
from multiverso.theano_ext._backend import is_shared_variable

#: The dtype of a variable, and of its table: half precision is summed up in single precision.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float16": np.dtype(np.float32),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}


class SharedTensor:
    """The value of a shared variable.

    Where it is may change, and does with every update by a function; its shape may not. A
    C-contiguous array of the table's dtype is worked on in place. What is of half precision, on
    another device, in another layout, or shared in part goes through a copy.

    Parameters
    ----------
    variable : shared variable
        One that `checked_value` accepts.
    share : float, optional
        How much of what this worker's variable gains is added to the table, 0 to 1. For integers
        0 or 1.

    """

    is_fixed = False

    def __init__(self, variable: Any, share: float = 1.0) -> None:
        value = checked_value(variable)
        self.dtype = DTYPES[value.dtype.name]
        self.shape = value.shape
        self.size = value.size
        self._variable = variable
        self._own_dtype = value.dtype.newbyteorder("=")
        self._share = share
        # Whether the table's gain is simply that of the value: then the pass takes the value.
        self._is_whole = share == 1 and self._own_dtype == self.dtype
        self._copy: NDArray[Any] | None = None  # of the table's values as this worker knows them
        self._last: NDArray[Any] | None = None  # the value as it was last written
        self._in_place = False

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the value."""
        return self._now().astype(self.dtype, copy=False).reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Set the variable to a copy of `values`.

        Not in place: the program may still use the array it made the variable from.
        """
        given = values.reshape(self.shape)
        if not self._is_whole:
            np.copyto(self._make_copy(), given)
        self._variable.set_value(given.astype(self._own_dtype), borrow=True)
        self._note()

    def address(self) -> int:
        """Return the value's own address, or that of a copy with what it has gained."""
        now = self._now()
        if now.shape != self.shape:
            msg = (
                f"expected {name_of(self._variable)} to have the shape it was attached with,"
                f" {self.shape}, received {now.shape}"
            )
            raise ValueError(msg)
        self._in_place = self._is_whole and now.flags.carray and now.dtype == self.dtype
        if self._in_place:
            return _arrays.address(now)
        copy = self._make_copy()
        if self._is_whole:
            np.copyto(copy, now)
        elif self._share:
            if self._last is not None:
                copy += (now.astype(self.dtype) - self._last) * self.dtype.type(self._share)
            self._last = now.astype(self.dtype)
        return _arrays.address(copy)

    def settle(self) -> None:
        """Set the variable to what it can hold of the copy, if there is one."""
        if self._in_place:
            return
        copy = self._make_copy()
        stored = self._stored()
        if type(stored) is np.ndarray and stored.flags.writeable and stored.shape == self.shape:
            np.copyto(stored, copy, casting="same_kind")
        else:  # on another device, read-only, or a NumPy scalar that an update has left
            self._variable.set_value(copy.astype(self._own_dtype), borrow=True)
        self._note()

    def _stored(self) -> Any:
        return self._variable.get_value(borrow=True, return_internal_type=True)

    def _now(self) -> NDArray[Any]:
        stored = self._stored()
        if type(stored) is np.ndarray:
            return stored
        return np.asarray(self._variable.get_value(borrow=True))

    def _make_copy(self) -> NDArray[Any]:
        if self._copy is None:
            self._copy = np.empty(self.shape, self.dtype)
            np.copyto(self._copy, self._now())
        return self._copy

    def _note(self) -> None:
        if self._share and not self._is_whole:
            self._last = self._now().astype(self.dtype)


def checked_value(variable: Any) -> NDArray[Any]:
    """Return the value of a shared variable as an array, if there can be a table for it.

    Raises
    ------
    TypeError
        It is no shared variable, or its value is no dense array of one of `DTYPES`.

    """
    if not is_shared_variable(variable):
        msg = (
            "expected a shared variable of PyTensor, Theano or Aesara, received"
            f" {type(variable).__name__}"
        )
        raise TypeError(msg)
    value = variable.get_value(borrow=True)
    if not isinstance(value, np.ndarray | np.generic):
        msg = (
            f"expected {name_of(variable)} to hold a dense array or a scalar, received"
            f" {type(value).__name__}"
        )
        raise TypeError(msg)
    if value.dtype.name not in DTYPES:
        msg = (
            f"expected {name_of(variable)} to be of one of the dtypes {', '.join(DTYPES)},"
            f" received {value.dtype.name}"
        )
        raise TypeError(msg)
    return np.asarray(value)


def name_of(variable: Any) -> str:
    """Return what messages call a variable."""
    return f"shared variable {variable.name!r}" if variable.name else "a shared variable"
