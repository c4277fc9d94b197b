"""The gradients of rows of a table, from their computation to their add, and the layers' steps."""

import math
import threading
import warnings
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from multiverso._native import capi, supported
from multiverso._native.arguments import finite
from multiverso._native.ids import ids_of_any_shape
from multiverso.api import current_session
from multiverso.readers import ViewTable
from multiverso.tables import Future, HashTable, MatrixTable

#: A table whose rows are named by ids: row numbers or keys.
RowTable = MatrixTable | HashTable | ViewTable


#: A list of gradients is merged when it has twice as many rows as after the last time, and as many.
_MERGES_FROM: Final = 1 << 16

#: The most bytes of gradients that are added at once on one node.
_MOST_BYTES_AT_ONCE: Final = 1 << 18

_NEVER_SENT: Final = (
    "{table}: a second backward pass has come, and step() of the layer has never been called. The "
    "gradients of its rows wait until then, and the rows are not trained. Call the step() of the "
    "layer after that of the optimizer, or train with multiverso's optimizer or callback, which "
    "calls it. While you accumulate the gradients of several batches, all is well"
)


class RowReader:
    """The rows of a table, read outside training: in no round, and without new keys."""

    def __init__(self, table: Any) -> None:
        is_array = isinstance(table, ViewTable) and len(table.shape) == 1
        if is_array or not isinstance(table, RowTable):
            received = repr(table) if is_array else type(table).__name__
            advice = "; make one with mv.MatrixTable(num_row, num_col)" if received == "int" else ""
            msg = f"table: expected a MatrixTable or HashTable, received {received}{advice}"
            raise TypeError(msg)
        #: A `RowTable`.
        self.table = found = cast("Any", table)
        #: Whether the table is one of a view, so that its rows can only be read.
        self.is_view = isinstance(table, ViewTable)
        self._peek = found.get if self.is_view else found.peek
        self.num_col: int = found.shape[1] if self.is_view else found.num_col
        #: The number of rows, or None if the rows have keys.
        self.num_row: int | None = None
        if self.is_view or isinstance(table, MatrixTable):
            self.num_row = found.shape[0]
        #: The dtype of rows and gradients.
        self.dtype: np.dtype[Any] = found.dtype if self.is_view else found.value_dtype

    def has_initial_rows(self) -> bool:
        """Return whether rows that nobody has changed have computed values, not given ones."""
        return bool(self.table.has_rows if self.is_view else self.table.initializer is not None)

    def peek(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of ids of any shape, in an array of shape (*ids.shape, num_col)."""
        flat = ids_of_any_shape(ids, "ids").reshape(-1)
        rows: NDArray[Any] = self._peek(flat)
        return rows.reshape(*ids.shape, self.num_col)


def _insertion(table: RowTable, insert: bool) -> dict[str, bool]:
    return {"insert": insert} if isinstance(table, HashTable) else {}


class _Parts:
    """Ids of rows and their gradients, merged now and then to limit the memory."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
        self._rows = 0
        self._merges_from = _MERGES_FROM

    def append(self, ids: NDArray[np.int64], gradients: NDArray[Any]) -> None:
        """Add the gradients of a batch, without a copy."""
        self.parts.append((ids, gradients))
        self._rows += len(ids)
        if self._rows > self._merges_from:
            self.merge()

    def merge(self) -> None:
        """Sum the gradients of each row."""
        if not self.parts:
            return
        ids, gradients = self.joined()
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        firsts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
        if len(firsts) < len(ids):
            gradients = np.add.reduceat(gradients[order], firsts, axis=0)
            ids = ids[firsts]
        else:
            gradients = gradients[order]
        self.parts = [(ids, gradients)]
        self._rows = len(ids)
        self._merges_from = max(2 * self._rows, _MERGES_FROM)

    def joined(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return all ids and gradients in two arrays."""
        if len(self.parts) == 1:
            return self.parts[0]
        ids, gradients = zip(*self.parts, strict=True)
        return np.concatenate(ids), np.concatenate(gradients)

    def multiply(self, factor: float) -> None:
        """Multiply all gradients by a number."""
        with np.errstate(invalid="ignore", over="ignore"):
            self.parts = [(ids, part * part.dtype.type(factor)) for ids, part in self.parts]

    def is_finite(self) -> bool:
        """Return whether no gradient is infinite or NaN."""
        return all(bool(np.isfinite(part).all()) for _, part in self.parts)

    def take(self) -> "_Parts":
        """Return the gradients, and keep none."""
        taken = _Parts()
        taken.parts, self.parts = self.parts, []
        self._rows, self._merges_from = 0, _MERGES_FROM
        return taken

    def extend(self, others: "_Parts") -> None:
        """Add all gradients of another object."""
        for ids, gradients in others.parts:
            self.append(ids, gradients)


class RowGradients(RowReader):
    """Collects the gradients of rows until they are sent to the table as one add.

    Frameworks compute gradients in threads of their own, so `collect` may be called from any.

    A layer has one scalar weight, its connection with the optimizer. The gradient of this weight is
    the `norm` of the gradients that wait, so that it counts where the program clips the norm of all
    gradients. What the program does to that number is done to the rows: `multiply` them, or `drop`
    them.

    The table is a MatrixTable or HashTable of floating-point numbers whose updater takes gradients,
    or one of a view, whose rows are looked up only.
    """

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        features = ["layers", *([] if self.dtype.kind == "f" else ["integers"])]
        if isinstance(table, MatrixTable | HashTable):
            features.append({"add": "add", "easgd": "easgd"}.get(table.updater, "updater"))
        supported.check(*features)
        #: Whether something calls `send`, so that no warning is needed.
        self.has_sender = False
        self._mutex = threading.Lock()
        self._waiting = _Parts()
        # An optimizer has made its step since, so these are no longer dropped.
        self._accepted = _Parts()
        # These are already divided by their scale.
        self._unscaled = _Parts()
        self._has_got = False  # Whether rows were got for training since the last `send`.
        self._is_collected = False  # Since rows were looked up.
        self._is_second = False

    def rows_of(self, ids: NDArray[Any], insert: bool) -> NDArray[Any]:
        """Return the rows of ids, of shape (*ids.shape, num_col).

        With `insert` they are for training: the get is a part of the round, and new keys get a row.
        """
        if insert:
            self.note_look_up()
        flat = ids_of_any_shape(ids, "ids").reshape(-1)
        rows = np.empty((len(flat), self.num_col), self.dtype)
        self.get_rows(flat, rows, insert=insert)
        return rows.reshape(*ids.shape, self.num_col)

    def get_rows(self, ids: NDArray[np.int64], out: NDArray[Any], *, insert: bool) -> None:
        """Get the rows of ids in one dimension, as `rows_of` does."""
        if insert and not self.is_view:
            self._has_got = True
            self.table.get(ids, out=out, **_insertion(self.table, True))
        else:
            self._peek(ids, out=out)

    def begin_rows(
        self, ids: NDArray[np.int64], out: NDArray[Any], *, insert: bool, fresh: bool
    ) -> Future[Any] | None:
        """Begin to get the rows, or get them at once if that is part of no round."""
        if self.is_view or (
            not insert and not fresh and current_session().options.mode != capi.MV_MODE_ASYNC
        ):
            self.get_rows(ids, out, insert=False)
            return None
        self._has_got = self._has_got or insert
        future: Future[Any] = self.table.get_async(
            ids, out, fresh=fresh, **_insertion(self.table, insert)
        )
        return future

    def require_prefetch(self) -> None:
        """Raise an error if rows cannot be got before their look-up."""
        if not self.is_view:
            supported.check("prefetch", *current_session().features())

    def require_training(self) -> None:
        """Raise an error if the rows cannot be trained, which a layer calls in a backward pass."""
        if self.is_view:
            supported.check("layers of a view", "training rows")

    def note_look_up(self) -> None:
        """Note that rows are looked up for training. Later gradients are of another batch."""
        self._is_second = self._is_second or self._is_collected
        self._is_collected = False

    def collect(self, ids: NDArray[Any], gradients: NDArray[Any]) -> None:
        """Keep the gradients of the rows `ids`, of shape (*ids.shape, num_col), without a copy."""
        self.require_training()
        flat_ids = ids_of_any_shape(ids, "ids").reshape(-1)
        flat = np.ascontiguousarray(gradients, self.dtype).reshape(-1, self.num_col)
        if self._is_second and not self.has_sender:
            self.has_sender = True  # One warning is enough.
            warnings.warn(_NEVER_SENT.format(table=self.table), RuntimeWarning, stacklevel=2)
        self._is_collected = True
        with self._mutex:
            self._waiting.append(flat_ids, flat)

    def is_waiting(self) -> bool:
        """Return whether gradients have been collected that nothing has accepted or dropped."""
        return bool(self._waiting.parts)

    def norm(self) -> float:
        """Return the Euclidean norm of the waiting gradients, as of one sum for each row."""
        with self._mutex, np.errstate(over="ignore"):
            self._waiting.merge()
            squares = (np.square(part, dtype=np.float64) for _, part in self._waiting.parts)
            return math.sqrt(sum(float(square.sum()) for square in squares))

    def multiply(self, factor: float) -> None:
        """Multiply the waiting gradients by a number."""
        with self._mutex:
            self._waiting.multiply(factor)

    def drop(self) -> None:
        """Forget the waiting gradients."""
        with self._mutex:
            self._waiting.take()

    def accept(self, *, is_unscaled: bool) -> None:
        """Keep the waiting gradients until `send`, since an optimizer has made its step with them.

        With `is_unscaled`, `send` does not divide them by its scale.
        """
        with self._mutex:
            kept = self._unscaled if is_unscaled else self._accepted
            kept.extend(self._waiting.take())

    def discard(self) -> None:
        """Forget all gradients that `send` would send."""
        self._is_collected = False
        with self._mutex:
            for parts in (self._waiting, self._accepted, self._unscaled):
                parts.take()

    def unscale(self, scale: float | None) -> bool:
        """Divide the gradients since the last call by a finite `scale`; return whether it did.

        They are dropped instead if `scale` is None, or one that was scaled is not finite.
        """
        if scale is not None:
            scale = finite(scale, "scale")
        with self._mutex:
            self._accepted.extend(self._waiting.take())
            accepted = self._accepted.take()
            if scale is None:
                return False
            if scale != 1.0:
                accepted.parts = [
                    (ids, part / part.dtype.type(scale)) for ids, part in accepted.parts
                ]
                if not accepted.is_finite():
                    return False
            self._unscaled.extend(accepted)
        return True

    def _prepare_add(self) -> None:
        """Prepare the table for the add that follows. The get of its round has begun."""

    def send(self, scale: float | None = 1.0) -> bool:
        """Send the gradients, divided by `scale` unless that was done before, in the background.

        In sync mode this is an add of the round also if there are none. If no rows were got since
        the last call, because there was no batch, it makes that get too.

        The result is False if `scale` is None, or a gradient is not finite although it was scaled.
        Then those since the last call of `unscale` are dropped.
        """
        self.has_sender = True
        is_sent = self.unscale(scale)
        if self.is_view:
            return is_sent  # There are no gradients.
        mode = current_session().options.mode
        no_ids, no_rows = np.empty(0, np.int64), np.empty((0, self.num_col), self.dtype)
        if mode == capi.MV_MODE_SYNC and not self._has_got:
            self.begin_rows(no_ids, no_rows, insert=True, fresh=False)
        self._has_got = False
        self._prepare_add()
        with self._mutex:
            unscaled = self._unscaled.take()
        if unscaled.parts:
            ids, gradients = unscaled.joined()
        elif mode == capi.MV_MODE_ASYNC:
            return is_sent
        else:
            ids, gradients = no_ids, no_rows
        # The thread that makes calls in the background wakes up more slowly than it adds few rows.
        is_quick = mode == capi.MV_MODE_ASYNC and gradients.nbytes <= _MOST_BYTES_AT_ONCE
        if is_quick and current_session().num_nodes == 1 and self.table._background.is_idle():
            self.table.add(gradients, ids)
        else:
            self.table.add_async(gradients, ids)
        return is_sent


class RowLayer:
    """What the layers of all frameworks have in common: their table, `step` and `discard`."""

    #: The gradients of the layer's rows.
    _gradients: RowGradients

    @property
    def table(self) -> RowTable:
        """The table."""
        table: RowTable = self._gradients.table
        return table

    def _settle(self, scale: float = 1.0) -> float | None:
        """Wait for gradients that are still computed, and return the scale of the loss in them."""
        return scale

    def step(self, scale: float = 1.0) -> bool:
        """Send the gradients of all backward passes since the last step, in the background.

        Call it after the optimizer's step; the optimizers and callbacks of multiverso do that
        themselves. In sync mode every worker calls it equally often, also without a batch.

        It raises the errors of the table's [`add_async`][multiverso.tables.MatrixTable.add_async].

        Parameters
        ----------
        scale : float, optional
            The factor of the loss, which the gradients are divided by: ``scaler.get_scale()`` with
            a gradient scaler, from before its update.

        Returns
        -------
        bool
            False if a gradient is not finite although the loss was scaled. Then nothing is sent.

        """
        return self._gradients.send(self._settle(scale))

    def discard(self) -> None:
        """Forget the gradients that `step` would send."""
        self._settle()
        self._gradients.discard()

    def expect_steps(self) -> None:
        """Say that something calls `step`, so that the layer need not warn that nothing does."""
        self._gradients.has_sender = True
