"""The gradients of rows of a table, from their computation to their add: for embedding layers."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiverso._native import capi
from multiverso.api import current_session
from multiverso.tables import Future, HashTableHandler, MatrixTableHandler
from multiverso.tables._ids import ids_of_any_shape

#: A table whose rows are named by ids: row numbers or keys.
RowTable = MatrixTableHandler | HashTableHandler

_NOT_GRADIENTS = ("add", "easgd")


def rows_of(table: RowTable, ids: NDArray[Any], insert: bool) -> NDArray[Any]:
    """Return the rows of ids of any shape, in an array of shape (*ids.shape, num_col).

    With `insert`, keys of a hash table get a row.
    """
    flat = ids_of_any_shape(ids, "ids").reshape(-1)
    rows: NDArray[Any] = table.get(flat, **_insertion(table, insert))
    return rows.reshape(*ids.shape, table.num_col)


def begin_rows(
    table: RowTable, ids: NDArray[np.int64], out: NDArray[Any], *, insert: bool, fresh: bool
) -> Future:
    """Begin to get the rows of ids in one dimension, as `rows_of` does."""
    return table.get_async(ids, out, fresh=fresh, **_insertion(table, insert))


def _insertion(table: RowTable, insert: bool) -> dict[str, bool]:
    return {"insert": insert} if isinstance(table, HashTableHandler) else {}


class RowGradients:
    """Collects the gradients of rows until they are sent to the table as one add.

    Frameworks compute gradients in threads of their own, so `collect` may be called from any.

    Parameters
    ----------
    table : MatrixTableHandler or HashTableHandler
        A table of floating-point numbers whose updater takes gradients.

    Raises
    ------
    TypeError, ValueError
        If it is something else.

    """

    def __init__(self, table: Any) -> None:
        if not isinstance(table, RowTable):
            msg = (
                f"table: expected a MatrixTableHandler or HashTableHandler, received "
                f"{type(table).__name__}"
            )
            raise TypeError(msg)
        if table.value_dtype.kind != "f" or table.updater in _NOT_GRADIENTS:
            msg = (
                f"table: expected a float table whose updater takes gradients, such as 'sgd' or "
                f"'rowwise_adagrad', received {table.dtype} with '{table.updater}'"
            )
            raise ValueError(msg)
        self.table: RowTable = table
        self._mutex = threading.Lock()
        self._waiting: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
        # Of earlier batches, and already divided by their scale.
        self._unscaled: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def collect(self, ids: NDArray[Any], gradients: NDArray[Any]) -> None:
        """Keep the gradients of the rows `ids`, of shape (*ids.shape, num_col), without a copy."""
        flat_ids = ids_of_any_shape(ids, "ids").reshape(-1)
        flat = np.ascontiguousarray(gradients, self.table.value_dtype)
        flat = flat.reshape(-1, self.table.num_col)
        with self._mutex:
            self._waiting.append((flat_ids, flat))

    def discard(self) -> None:
        """Forget the gradients that `send` would send."""
        with self._mutex:
            self._waiting.clear()
            self._unscaled.clear()

    def unscale(self, scale: float | None) -> bool:
        """Divide the gradients since the last call by `scale`.

        Returns
        -------
        bool
            False if they are dropped: if `scale` is None, or one that was scaled is not finite.

        """
        with self._mutex:
            waiting, self._waiting = self._waiting, []
        if scale is None:
            return False
        if scale != 1.0:
            waiting = [(ids, part / part.dtype.type(scale)) for ids, part in waiting]
            if not all(bool(np.isfinite(part).all()) for _, part in waiting):
                return False
        self._unscaled += waiting
        return True

    def send(self, scale: float = 1.0) -> bool:
        """Send the gradients, divided by `scale` unless `unscale` did that, in the background.

        In sync mode this is an add of the round also if there are none.

        Returns
        -------
        bool
            False if a gradient is not finite although it was scaled. Then those since the last
            call of `unscale` are dropped.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for the table's `add_async`.

        """
        is_sent = self.unscale(scale)
        unscaled, self._unscaled = self._unscaled, []
        ids = [part for part, _ in unscaled]
        gradients = [part for _, part in unscaled]
        if not ids:
            if current_session().options.mode == capi.MV_MODE_ASYNC:
                return is_sent
            ids = [np.empty(0, np.int64)]
            gradients = [np.empty((0, self.table.num_col), self.table.value_dtype)]
        if len(ids) == 1:
            self.table.add_async(gradients[0], ids[0])
        else:
            self.table.add_async(np.concatenate(gradients), np.concatenate(ids))
        return is_sent
