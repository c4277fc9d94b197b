"""One table of a view, wherever its values lie."""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiverso._native import arrays
from multiverso._native.ids import as_ids
from multiverso.errors import UnsupportedError


class ViewTable:
    """One table of a `View`, which can only be read.

    Attributes
    ----------
    name : str
    shape : tuple of int
        (size,), (num_row, num_col), or of a hash table, (None, num_col).
    dtype : numpy.dtype
        The dtype of results.
    is_hash : bool
        Whether the rows have keys.
    is_live : bool
        Whether `get` returns the values as they are now. Otherwise they are those of a version: the
        view follows a folder, or the session is in sync mode, or its table lies on several nodes.
    is_published : bool
        Whether the last version has the table.
    has_rows : bool
        Whether only some rows exist: those of the keys of a hash table, or those that have ever
        changed, of a matrix with an initializer.
    rows : range
        The rows that can be read: all, except that each node of a session on several nodes shows
        to `multiverso.attach` only its own rows of a hash table or of a table with an initializer.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> with mv.session(name="job"):
    ...     table = mv.MatrixTable(3, 2, 1, name="w")
    ...     with mv.attach(os.getpid()) as view:
    ...         view.tables["w"].get([0, 2]).tolist(), view.tables["w"].contains([1])
    ([[1.0, 1.0], [1.0, 1.0]], array([ True]))

    """

    is_live = False
    is_published = True

    def __init__(
        self, name: str, shape: tuple[int | None, ...], dtype: np.dtype[Any], has_rows: bool
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.has_rows = has_rows
        self.is_hash = shape[0] is None
        self.rows = range(shape[0] or 0)
        self._num_col = (shape[1] or 0) if len(shape) == 2 else 1
        self._needs_ids = self.is_hash

    def get(
        self, ids: ArrayLike | None = None, out: Any = None, *, default: float | None = None
    ) -> NDArray[Any]:
        """Return the table or some of its rows.

        Each row is complete. If the table `is_live`, pieces of 64 KiB may be of different moments;
        `View.cut` returns one.

        Parameters
        ----------
        ids : array_like of int, optional
            The row ids of a matrix, or the keys of a hash table, which requires them. So does a
            matrix with an initializer in a folder.
        out : ndarray, optional
            An array of the right shape and dtype to write to.
        default : float, optional
            The value of the elements of rows that do not exist, over a folder; by default that of
            `multiverso.follow`, or the initial value.

        Returns
        -------
        numpy.ndarray
            `out` itself, or a new array.

        Raises
        ------
        IndexError
            If an id is not a row of the table, or a row does not exist, its initial values are
            random, and there is no default.
        StateError
            After `View.close`; if the view has no such table any more; if the session has ended
            and `is_live` is true, or has published nothing and `is_live` is false.
        OperationTimeout
            If a rank was suspended while it changed the table.
        UnsupportedError
            If there is a `default` for the rows in the memory of a session.

        """
        if ids is None and self._needs_ids:
            raise TypeError(f"table '{self.name}': expected ids, because only some rows exist")
        numbers = None if ids is None else self._row_ids(ids)
        shape = self._row_shape((self.shape[0] or 0) if numbers is None else len(numbers))
        buffer, target = arrays.as_output(
            np.empty(shape, self.dtype) if out is None else out, self.dtype, shape
        )
        self._read(numbers, buffer, default)
        arrays.copy_out(buffer, target)
        return target

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each of the keys, or of the row ids, has a row.

        Raises UnsupportedError if only some rows exist, in the memory of a session.
        """
        numbers = self._row_ids(ids)
        return self._find(numbers) if self.has_rows else np.ones(len(numbers), bool)

    def _row_shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if len(self.shape) == 1 else (rows, self._num_col)

    def _row_ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return ids as an array; a subclass checks that they are rows."""
        if len(self.shape) == 1:
            raise TypeError(f"table '{self.name}': expected no ids, because an array has no rows")
        return as_ids(ids, "keys" if self.is_hash else "row_ids", self.shape[0])

    def _read(
        self, ids: NDArray[np.int64] | None, out: NDArray[Any], default: float | None
    ) -> None:
        """Write the table, or its rows of ids, to a C-contiguous array of its dtype."""
        raise NotImplementedError

    def _find(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the ids have a row."""
        raise UnsupportedError(
            f"table '{self.name}': the memory of a session does not tell which rows exist, so "
            "contains() and default= need a view of a folder: multiverso.follow"
        )

    def __array__(self, *arguments: object, **options: object) -> NoReturn:
        """Raise TypeError: NumPy would otherwise make an array of one object, the table."""
        raise TypeError("a table of a view is not an array: call get(), which returns one")

    def __repr__(self) -> str:
        return f"<ViewTable '{self.name}': {self.shape} {self.dtype}>"
