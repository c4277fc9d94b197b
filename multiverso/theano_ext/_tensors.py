"""Shared variables of PyTensor, Theano and Aesara as tensors to be kept in step."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import arrays
from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._master_copy import MasterCopy
from multiverso.sync._tensor import Group
from multiverso.theano_ext._backend import is_shared_variable


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

    Attributes
    ----------
    variable : shared variable
        As given.
    is_whole : bool
        Whether the table's gain is simply that of the value: then the pass may work on the value.

    """

    is_fixed = False

    def __init__(self, variable: Any, share: float = 1.0) -> None:
        value = checked_value(variable)
        self.dtype = TABLE_DTYPES[value.dtype.name]
        self.shape = value.shape
        self.size = value.size
        self.variable = variable
        self.group: Group | None = None
        self._own_dtype = value.dtype.newbyteorder("=")
        self._share = share
        self.is_whole = share == 1 and self._own_dtype == self.dtype
        self._copy: NDArray[Any] | None = None  # of the value, or of the table's values
        self._master: MasterCopy | None = None  # over the copy, unless the value is whole
        self._in_place = False

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the value."""
        return self._now().astype(self.dtype, copy=False).reshape(-1)

    def assign(self, values: NDArray[Any]) -> None:
        """Set the variable to a copy of `values`.

        Not in place: the program may still use the array it made the variable from.
        """
        given = values.reshape(self.shape)
        if not self.is_whole:
            np.copyto(self._make_copy(), given)
        self.variable.set_value(given.astype(self._own_dtype), borrow=True)
        self._record()

    def address(self) -> int:
        """Return the value's own address, or that of a copy with what it has gained."""
        now = self._now()
        if now.shape != self.shape:
            msg = (
                f"expected {name_of(self.variable)} to have the shape it was attached with,"
                f" {self.shape}, received {now.shape}"
            )
            raise ValueError(msg)
        self._in_place = self.is_whole and now.flags.carray and now.dtype == self.dtype
        if self._in_place:
            return _address(now)
        copy = self._make_copy()
        if self.is_whole:
            np.copyto(copy, now)
        elif self._master is not None:
            self._master.add_delta(now.astype(self.dtype))
        return arrays.address(copy)

    def settle(self) -> None:
        """Set the variable to what it can hold of the copy, if there is one."""
        if self._in_place:
            return
        copy = self._make_copy()
        stored = self._stored()
        if type(stored) is np.ndarray and stored.flags.writeable and stored.shape == self.shape:
            np.copyto(stored, copy, casting="same_kind")
        else:  # on another device, read-only, or a NumPy scalar that an update has left
            self.variable.set_value(copy.astype(self._own_dtype), borrow=True)
        self._record()

    def _stored(self) -> Any:
        return self.variable.get_value(borrow=True, return_internal_type=True)

    def _now(self) -> NDArray[Any]:
        stored = self._stored()
        if type(stored) is np.ndarray:
            return stored
        return np.asarray(self.variable.get_value(borrow=True))

    def _make_copy(self) -> NDArray[Any]:
        if self._copy is None:
            self._copy = np.empty(self.shape, self.dtype)
            np.copyto(self._copy, self._now())
            if not self.is_whole:
                self._master = MasterCopy(self._copy, self._share)
        return self._copy

    def _record(self) -> None:
        if self._master is not None:
            self._master.record(self._now().astype(self.dtype))


class SharedGroup:
    """Variables whose values the pass works on in place, found all at once.

    Of each array that was found the address is kept, and holds for as long as a variable has that
    very array: what is seen by a weak reference NumPy does not resize, so its memory stays where it
    is. All else that may change in an array is looked at each time. Where one of the values
    cannot be worked on in place, each finds its own way.

    Parameters
    ----------
    tensors : list of SharedTensor
        Of one dtype, and whole.

    """

    def __init__(self, tensors: list[SharedTensor]) -> None:
        self.tensors: Sequence[SharedTensor] = tensors
        self.addresses: list[int] | None = None
        self._dtype = tensors[0].dtype
        self._places = [(one.variable, one.shape) for one in tensors]
        self._seen: list[tuple[Any, tuple[int, ...], Callable[[], Any]]] = []  # the last weak
        self._found: list[int] | None = None  # where what was seen is

    def values(self) -> list[NDArray[Any]]:
        """Return the values of each."""
        return [one.values() for one in self.tensors]

    def load(self) -> None:
        """Do nothing: gains are counted from what the values are."""

    def gather(self) -> None:
        """Find where the values are now."""
        if self._found is None or not self._are_as_seen():
            self._found = self._find()
        self.addresses = self._found

    def scatter(self) -> None:
        """Forget where they were."""
        self.addresses = None

    def _are_as_seen(self) -> bool:
        dtype = self._dtype
        # In one loop, and from the storage itself: a batch has left nothing of this in the caches.
        for variable, shape, seen in self._seen:
            value = variable.container.storage[0]
            if (
                value is not seen()
                or value.shape != shape
                or value.dtype != dtype
                or not value.flags.carray
            ):
                return False
        return True

    def _find(self) -> list[int] | None:
        dtype = self._dtype
        self._seen, found = [], []
        for variable, shape in self._places:
            value = variable.container.storage[0]
            if (
                type(value) is not np.ndarray
                or value.shape != shape
                or value.dtype != dtype
                or not value.flags.carray
            ):
                return None
            self._seen.append((variable, shape, weakref.ref(value)))
            found.append(_address(value))
        return found


def _address(value: NDArray[Any]) -> int:
    """Return where an array that is C-contiguous and can be written to begins."""
    return ctypes.addressof(arrays.pin(value))  # sooner than array.ctypes.data


def checked_value(variable: Any) -> NDArray[Any]:
    """Return the value of a shared variable as an array, if there can be a table for it.

    Raises
    ------
    TypeError
        It is no shared variable, or its value is no dense array of one of `TABLE_DTYPES`.

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
    if value.dtype.name not in TABLE_DTYPES:
        msg = (
            f"expected {name_of(variable)} to be of one of the dtypes {', '.join(TABLE_DTYPES)},"
            f" received {value.dtype.name}"
        )
        raise TypeError(msg)
    return np.asarray(value)


def name_of(variable: Any) -> str:
    """Return what messages call a variable."""
    return f"shared variable {variable.name!r}" if variable.name else "a shared variable"
