"""What the layers for PyTorch have in common: they get rows of a table and collect gradients."""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn import functional

from multiverso._native.arguments import flag, integer
from multiverso.sync._row_gradients import RowLayer, RowTable, begin_rows
from multiverso.tables import MatrixTableHandler
from multiverso.torch_ext._connection import ConnectedGradients, Connection


class Rows:
    """The rows of a batch of ids, which are got in the background.

    Attributes
    ----------
    ids : Tensor of int64
        The ids of the batch, on the CPU.
    is_training : bool
        Whether the rows are for training.

    """

    def __init__(
        self, ids: torch.Tensor, table: RowTable, *, distinct: bool, is_training: bool, fresh: bool
    ) -> None:
        self.ids = ids
        self.is_training = is_training
        self._row_ids = ids.reshape(-1)
        # If each row is got once, the index of each id in `_row_ids`.
        self._places: torch.Tensor | None = None
        shape: tuple[int, ...] = ids.shape
        if distinct:
            self._row_ids, self._places = torch.unique(ids, return_inverse=True)
            shape = self._row_ids.shape
        self._dtype: torch.dtype = getattr(torch, table.value_dtype.name)
        self._num_col = table.num_col
        # Only a GPU gets each row once, and copies faster from pinned memory.
        values = torch.empty((*shape, self._num_col), dtype=self._dtype, pin_memory=distinct)
        self._values: Any = values
        self._future = begin_rows(
            table,
            self._row_ids.numpy(),
            values.view(-1, self._num_col).numpy(),
            insert=is_training,
            fresh=fresh,
        )

    def take(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Wait for the rows, and return that of each id, for the only time."""
        self._future.result()
        values, self._values = self._values, None
        values = values.to(device, dtype, non_blocking=True)
        if self._places is None:
            return values
        self._places = self._places.to(device, non_blocking=True)
        return functional.embedding(self._places, values)

    def gradients(self, gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row ids and their gradients on the CPU, from the gradient of what `take` gave."""
        flat = gradients.detach().reshape(-1, self._num_col)
        if self._places is None:
            # A copy, because later backward passes may change the gradient in place.
            return self._row_ids, flat.to("cpu", self._dtype, copy=True)
        shape = (len(self._row_ids), self._num_col)
        sums = torch.zeros(shape, dtype=self._dtype, device=flat.device)
        sums.index_add_(0, self._places.reshape(-1), flat.to(self._dtype))
        return self._row_ids, sums.cpu()


class _Batch:
    """One look-up of a layer, from which the layer collects the gradients of its rows."""

    def __init__(self, layer: "TableLayer", is_training: bool) -> None:
        self.layer = layer
        self.is_training = is_training
        self.rows: Rows | None = None

    def take(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        self.rows = self.layer._rows_of(ids, self.is_training)
        return self.rows.take(ids.device, dtype)

    def collect(self, gradients: torch.Tensor) -> None:
        if self.rows is not None:
            self.layer._collect(*self.rows.gradients(gradients))


class _LookUp(torch.autograd.Function):  # type: ignore[misc]
    """The rows of ids. They seem to depend on the layer's connection, whose gradient is zero."""

    @staticmethod
    def forward(connection: torch.Tensor, ids: torch.Tensor, batch: _Batch) -> torch.Tensor:
        return batch.take(ids, connection.dtype)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: torch.Tensor) -> None:
        connection, _, context.batch = inputs
        context.zero = functools.partial(connection.new_zeros, ())

    @staticmethod
    def backward(context: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        context.batch.collect(gradients)
        return context.zero(), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, connection: Any, ids: Any, batch: _Batch) -> Any:
        if in_dims[0] is not None:
            msg = (
                "vmap: expected ids with a dimension more, received parameters of several layers, "
                "whose rows are in several tables"
            )
            raise ValueError(msg)
        return _LookUp.apply(connection, ids.movedim(in_dims[1], 0), batch), 0


class _Ahead(deque[Rows]):
    """Rows that have been prefetched for the next look-ups, in their order."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Ahead":
        """Return an empty one, for a copy of the layer."""
        return _Ahead()


class TableLayer(RowLayer, torch.nn.Module):  # type: ignore[misc]
    """A layer whose rows are in a table.

    Its only parameter, `connection`, is a scalar zero. See `Connection`.
    """

    _gradients: ConnectedGradients

    def __init__(
        self,
        table: Any,
        padding_idx: int | None,
        max_norm: float | None,
        scale_grad_by_freq: bool,
        sparse: bool,
    ) -> None:
        super().__init__()
        if max_norm is not None:
            msg = (
                "max_norm: expected None, because all workers share the rows, and a layer only "
                "reads them; to limit the steps, give the table clipvalue= or weight_decay="
            )
            raise ValueError(msg)
        if flag(scale_grad_by_freq, "scale_grad_by_freq"):
            msg = (
                "scale_grad_by_freq: expected False, because a row's gradient is the sum over the "
                "batches of a step; divide the loss instead"
            )
            raise ValueError(msg)
        self.sparse = flag(sparse, "sparse")
        self._gradients = ConnectedGradients(table)
        self.padding_idx = None if padding_idx is None else _checked_padding(padding_idx, table)
        self.max_norm, self.scale_grad_by_freq = None, False
        self.connection = Connection(torch.zeros((), dtype=getattr(torch, table.value_dtype.name)))
        self.connection.rows = self._gradients
        self._ahead = _Ahead()

    @property
    def table(self) -> RowTable:
        """The table."""
        return self._gradients.table

    @property
    def embedding_dim(self) -> int:
        """The number of columns of the table."""
        return self.table.num_col

    def prefetch(self, ids: torch.Tensor, *, fresh: bool = False) -> None:
        """Begin to get the rows of a later `forward` with equal ids. The gets are used in order.

        Parameters
        ----------
        ids : Tensor of int64 or int32
            The ids of that batch.
        fresh : bool, optional
            By default the rows lack what this worker sends between the prefetch and the `forward`.
            With True, which async mode offers, `forward` waits for those adds and reads their rows
            again.

        """
        self._ahead.append(self._begin(ids, self._is_training(), fresh))

    def _settle(self, scale: float = 1.0) -> float | None:
        return self._gradients.settle(scale)

    def _is_training(self) -> bool:
        """Return whether a look-up is recorded for the step."""
        return bool(self.training and torch.is_grad_enabled() and self.connection.requires_grad)

    def _begin(self, ids: torch.Tensor, is_training: bool, fresh: bool = False) -> Rows:
        if ids.dtype not in (torch.int64, torch.int32):
            msg = f"ids: expected a tensor of int64 or int32, received {ids.dtype}"
            raise TypeError(msg)
        return Rows(
            ids.detach().to("cpu", torch.int64),
            self.table,
            distinct=ids.is_cuda,  # Then fewer bytes travel to the device.
            is_training=is_training,
            fresh=fresh,
        )

    def _rows_of(self, ids: torch.Tensor, is_training: bool) -> Rows:
        """Return the rows of ids, which may have been prefetched in the same mode."""
        if any(rows.is_training == is_training for rows in self._ahead):
            wanted = ids.detach().to("cpu", torch.int64)
            for rows in tuple(self._ahead):
                if rows.is_training == is_training:
                    self._ahead.remove(rows)
                    if rows.ids.shape == wanted.shape and torch.equal(rows.ids, wanted):
                        return rows
        return self._begin(ids, is_training)

    def _look_up(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of a batch, of shape (*ids.shape, num_col)."""
        is_training = self._is_training()
        if is_training:
            self._gradients.note_look_up()
        connection = self.connection if is_training else self.connection.detach()
        rows: torch.Tensor = _LookUp.apply(connection, ids, _Batch(self, is_training))
        return rows

    def _collect(self, row_ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Keep the gradients of rows until the step, except that of the padding."""
        if self.padding_idx is not None:
            is_kept = row_ids != self.padding_idx
            row_ids, gradients = row_ids[is_kept], gradients[is_kept]
        self._gradients.collect(row_ids.numpy(), gradients.numpy())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.pop(f"{prefix}connection", None)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *lists: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *lists)
        if (name := f"{prefix}connection") in missing:
            missing.remove(name)

    def extra_repr(self) -> str:
        """Return the table and the padding for the module's description."""
        text = repr(self.table)
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


def _checked_padding(padding_idx: object, table: RowTable) -> int:
    """Return the row of the padding. Negative numbers count from the end of a matrix."""
    index = integer(padding_idx, "padding_idx", -(2**63))
    if isinstance(table, MatrixTableHandler):
        num_row = table.num_row
        if not -num_row <= index < num_row:
            msg = f"padding_idx: expected {-num_row} to {num_row - 1}, received {index}"
            raise ValueError(msg)
        index %= num_row
    return index


def prefetch(
    loader: Iterable[Any],
    layer: TableLayer,
    key: Any = None,
    depth: int = 1,
    *,
    fresh: bool = False,
) -> Iterator[Any]:
    """Yield the batches of a loader, and get the rows of the next ones in the background.

    The rows of a batch are requested `depth` steps before you use them, so they lack the changes
    that all workers make meanwhile. Only a look-up between the batch and the next one uses them, in
    the mode, `train` or `eval`, in which they were requested.

    Parameters
    ----------
    loader : iterable
        The batches.
    layer : Embedding or EmbeddingBag
        The layer that looks up the ids, in the order of the batches.
    key : str, int or callable, optional
        Where the ids are in a batch: ``batch[key]``, ``key(batch)``, or the batch itself.
    depth : int, optional
        The number of batches ahead, 1 or more.
    fresh : bool, optional
        In async mode: add this worker's own changes to the rows when you use them. The step then
        waits until the last step's gradients are in the table.

    Yields
    ------
    object
        The batches, unchanged.

    Raises
    ------
    ValueError
        If `depth` is less than 1.

    """
    depth = integer(depth, "depth", 1)
    ids_of: Callable[[Any], torch.Tensor] = key if callable(key) else lambda batch: batch[key]
    if key is None:
        ids_of = lambda batch: batch  # noqa: E731
    batches = iter(loader)
    ahead: deque[tuple[Any, Rows]] = deque()
    while True:
        while len(ahead) <= depth:
            try:
                batch = next(batches)
            except StopIteration:
                break
            ahead.append((batch, layer._begin(ids_of(batch), layer._is_training(), fresh)))
        if not ahead:
            return
        batch, rows = ahead.popleft()
        layer._ahead.append(rows)
        try:
            yield batch
        finally:
            # A loop may end early, and its rows are soon too old for another look-up.
            if rows in layer._ahead:
                layer._ahead.remove(rows)
