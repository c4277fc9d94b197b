"""Atomic calls on single elements of a table."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, Any, Final

from multiverso._native.library import checked
from multiverso.tables._parts import element_of
from multiverso.tables._shaped_table import ShapedTable

if TYPE_CHECKING:
    from multiverso.tables._types import Element, Scalar

#: Integers from -_SMALL on and below _SMALL fit all dtypes.
_SMALL: Final = 2**31


class AtomicCalls(ShapedTable):
    """The calls of a table that change one element and return its value before."""

    __slots__ = ()

    def _note_rows(self, first: int, count: int) -> None:
        """Record that this object is about to change rows."""

    def fetch_add(self, index: Element, delta: Any = 1) -> Scalar:
        """Add to one element, and return its value before, as one atomic step.

        So a table is a counter that all workers share: no two calls return the same value. The
        updater must be "add", and the dtype must not have 16 bits. With bounded staleness the call
        counts and waits for nothing.

        Parameters
        ----------
        index : int or pair of int
            The element; an int for an array, a pair for a matrix. A negative number counts from the
            end.
        delta : scalar, optional
            What to add; it is cast as `add` casts its data. Integers wrap around.

        Returns
        -------
        scalar of the table's dtype
            The value before.

        Raises
        ------
        TypeError, ValueError, IndexError
            If an argument is invalid.
        UnsupportedError
            If the table has another updater or 16 bits, or the session is in sync mode.
        StateError
            If this rank is not a worker, or the session has been shut down.
        OperationTimeout, PeerLostError
            In a job of several nodes, if the server does not answer.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     counter = mv.ArrayTable(1, dtype="int64")
        ...     [int(counter.fetch_add(0)) for _ in range(3)]
        [0, 1, 2]

        """
        row, column = element_of(index, self._shape)
        source, before = self._scalar_of(delta, "delta"), self._scalar()
        self._note_rows(row, 1)
        checked.MV_TableFetchAdd(self._handle, row, column, byref(source), byref(before))
        value: Scalar = self._dtype.type(before.value)
        return value

    def compare_swap(self, index: Element, expected: Any, new: Any) -> Scalar:
        """Set one element to `new` if it equals `expected`, and return its value before.

        This is one atomic step, which has changed the element if the result equals `expected`. NaN
        equals nothing. Everything else, also the result and the errors, is as for
        [`fetch_add`][multiverso.tables.ArrayTable.fetch_add].

        Parameters
        ----------
        index : int or pair of int
            The element, as for `fetch_add`.
        expected, new : scalar
            The values; they are cast as `add` casts its data.

        Examples
        --------
        >>> import multiverso as mv
        >>> with mv.session():
        ...     owner = mv.ArrayTable(10, dtype="int32")
        ...     if owner.compare_swap(3, 0, 7) == 0:
        ...         print("item 3 belongs to 7")
        item 3 belongs to 7

        """
        row, column = element_of(index, self._shape)
        old, source = self._scalar_of(expected, "expected"), self._scalar_of(new, "new")
        before = self._scalar()
        self._note_rows(row, 1)
        checked.MV_TableCompareSwap(
            self._handle, row, column, byref(old), byref(source), byref(before)
        )
        value: Scalar = self._dtype.type(before.value)
        return value

    def _scalar_of(self, value: Any, what: str) -> Any:
        """Return a ctypes object with a value that the library can add or store."""
        if type(value) is int and -_SMALL <= value < _SMALL:
            return self._scalar(value)
        return self._scalar.from_buffer_copy(self._delta_of(value, ((),), what))
