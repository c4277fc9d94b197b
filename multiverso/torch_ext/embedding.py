"""Embedding layers whose rows are in a table of Multiverso.

The table is not a parameter of the module: optimizers, `DistributedDataParallel` and ``state_dict``
do not see it. A layer gets the rows of a batch from the table, collects their gradients, and sends
them in `step`; the table's updater is the optimizer of the rows.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from multiverso._native.arguments import integer
from multiverso.sync._row_gradients import RowGradients, RowTable, begin_rows
from multiverso.tables import MatrixTableHandler

__all__ = ["Embedding", "EmbeddingBag", "layers_of", "prefetch"]


class _Rows:
    """The rows of a batch of ids, which are got in the background.

    Attributes
    ----------
    ids : Tensor of int64
        The ids of the batch, on the CPU.
    row_ids : ndarray of int64
        The ids of the rows: those of the batch in their order, or the distinct ones.
    places : Tensor of int64 or None
        If the rows are distinct, the index of each id in `row_ids`, with the shape of `ids`.

    """

    def __init__(
        self,
        ids: torch.Tensor,
        table: RowTable,
        *,
        distinct: bool,
        pins: bool,
        insert: bool,
        fresh: bool,
    ) -> None:
        self.ids = ids
        self.places: torch.Tensor | None = None
        row_ids = ids.reshape(-1)
        if distinct:
            row_ids, self.places = torch.unique(ids, return_inverse=True)
        self.row_ids = row_ids.numpy()
        dtype = getattr(torch, table.value_dtype.name)
        self._values = torch.empty((len(row_ids), table.num_col), dtype=dtype, pin_memory=pins)
        self._future = begin_rows(
            table, self.row_ids, self._values.numpy(), insert=insert, fresh=fresh
        )

    def values(self, device: torch.device) -> torch.Tensor:
        """Wait for the rows, and return them on that device."""
        self._future.result()
        return self._values.to(device, non_blocking=True)


class _TableLayer(torch.nn.Module):  # type: ignore[misc]
    """What both layers have in common."""

    table: RowTable

    def __init__(self, table: Any, padding_idx: int | None) -> None:
        super().__init__()
        self._gradients = RowGradients(table)
        if padding_idx is not None:
            padding_idx = integer(padding_idx, "padding_idx", -(2**63))
            if isinstance(table, MatrixTableHandler) and not 0 <= padding_idx < table.num_row:
                msg = f"padding_idx: expected 0 to {table.num_row - 1}, received {padding_idx}"
                raise ValueError(msg)
        self.table = table
        self.padding_idx = padding_idx
        self._ahead: deque[_Rows] = deque()
        self._waiting: list[tuple[_Rows, torch.Tensor]] = []

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
        self._ahead.append(self._start(ids, fresh))

    def step(self, scale: float = 1.0) -> bool:
        """Send the gradients of all backward passes since the last step, in the background.

        Call it after the optimizer's step; `DistributedOptimizer` does that itself. In sync mode
        every worker calls it equally often, also without a batch.

        Parameters
        ----------
        scale : float, optional
            The factor of the loss, which the gradients are divided by: ``scaler.get_scale()`` with
            a gradient scaler, from before its update.

        Returns
        -------
        bool
            False if a gradient is not finite although the loss was scaled. Then nothing is sent.

        Raises
        ------
        StateError, OperationTimeout, PeerLostError, AbortedError
            As for the table's `add_async`.

        """
        waiting, self._waiting = self._waiting, []
        for rows, leaf in waiting:
            if leaf.grad is None:
                continue
            row_ids, gradient = rows.row_ids, leaf.grad.detach().cpu().numpy()
            if self.padding_idx is not None:
                is_kept = row_ids != self.padding_idx
                row_ids, gradient = row_ids[is_kept], gradient[is_kept]
            self._gradients.collect(row_ids, gradient)
        return self._gradients.send(scale)

    def discard(self) -> None:
        """Forget the gradients that `step` would send."""
        self._waiting.clear()

    def _needs_distinct_rows(self, ids: torch.Tensor) -> bool:
        """Return whether to get each row once; then fewer bytes travel to the device."""
        return bool(ids.is_cuda)

    def _start(self, ids: torch.Tensor, fresh: bool = False) -> _Rows:
        if ids.dtype not in (torch.int64, torch.int32):
            msg = f"ids: expected a tensor of int64 or int32, received {ids.dtype}"
            raise TypeError(msg)
        return _Rows(
            ids.detach().to("cpu", torch.int64),
            self.table,
            distinct=self._needs_distinct_rows(ids),
            pins=ids.is_cuda,
            insert=self.training and torch.is_grad_enabled(),
            fresh=fresh,
        )

    def _rows_of(self, ids: torch.Tensor) -> _Rows:
        if self._ahead:
            wanted = ids.detach().to("cpu", torch.int64)
            while self._ahead:
                rows = self._ahead.popleft()
                if rows.ids.shape == wanted.shape and torch.equal(rows.ids, wanted):
                    return rows
        return self._start(ids)

    def _look_up(self, ids: torch.Tensor) -> tuple[_Rows, torch.Tensor]:
        """Return the rows of a batch, and their values as a leaf of the graph."""
        rows = self._rows_of(ids)
        values = rows.values(ids.device)
        if self.training and torch.is_grad_enabled():
            values.requires_grad_()
            self._waiting.append((rows, values))
        return rows, values

    def extra_repr(self) -> str:
        """Return the table and the padding for the module's description."""
        text = repr(self.table)
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class Embedding(_TableLayer):
    """`torch.nn.Embedding` with its rows in a table.

    Parameters
    ----------
    table : MatrixTableHandler or HashTableHandler
        A table of floating-point numbers whose updater takes gradients. In `eval` mode and without
        gradients, keys of a hash table get no row.
    padding_idx : int, optional
        A row that gets no gradient.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import Embedding
    >>> with mv.session():
    ...     table = mv.MatrixTableHandler(1000, 2, updater="sgd", learning_rate=0.5)
    ...     layer = Embedding(table)
    ...     layer(torch.tensor([[1, 7], [7, 2]])).sum().backward()
    ...     layer.step()
    ...     table.get([1, 2, 7])
    True
    array([[-0.5, -0.5],
           [-0.5, -0.5],
           [-1. , -1. ]], dtype=float32)

    """

    def __init__(self, table: RowTable, padding_idx: int | None = None) -> None:
        super().__init__(table, padding_idx)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of `ids`, of shape (*ids.shape, num_col), on the device of `ids`.

        Waits for the get of the rows. In `eval` mode and without gradients nothing is recorded.
        """
        rows, values = self._look_up(ids)
        if rows.places is None or ids.numel() == 0:
            # A copy, because programs may change the result in place, but not a leaf of the graph.
            return values.clone().reshape(*ids.shape, self.embedding_dim)
        return functional.embedding(rows.places.to(ids.device, non_blocking=True), values)


class EmbeddingBag(_TableLayer):
    """`torch.nn.EmbeddingBag` with its rows in a table.

    Parameters
    ----------
    table : MatrixTableHandler or HashTableHandler
        A table of floating-point numbers whose updater takes gradients. In `eval` mode and without
        gradients, keys of a hash table get no row.
    mode : {"mean", "sum"}, optional
        How the rows of a bag are combined.
    padding_idx : int, optional
        A row that bags leave out.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    """

    def __init__(self, table: RowTable, mode: str = "mean", padding_idx: int | None = None) -> None:
        super().__init__(table, padding_idx)
        if mode not in ("mean", "sum"):
            msg = f"mode: expected 'mean' or 'sum', received {mode!r}"
            raise ValueError(msg)
        self.mode = mode

    def _needs_distinct_rows(self, ids: torch.Tensor) -> bool:
        return True  # Torch's function knows the padding as one row.

    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a row per bag, of shape (bags, num_col), on the device of `ids`.

        The arguments are those of `torch.nn.EmbeddingBag`: ids of shape (bags, n), or of one
        dimension with the `offsets` at which the bags begin; weights only with mode "sum".
        """
        rows, values = self._look_up(ids)
        if rows.places is None or ids.numel() == 0:
            bags = len(ids) if offsets is None else len(offsets)
            return values.sum(0, keepdim=True).expand(bags, -1)
        padding = None
        if self.padding_idx is not None:
            place = int(np.searchsorted(rows.row_ids, self.padding_idx))
            if place < len(rows.row_ids) and rows.row_ids[place] == self.padding_idx:
                padding = place
        return functional.embedding_bag(
            rows.places.to(ids.device, non_blocking=True),
            values,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            padding_idx=padding,
        )


def layers_of(module: torch.nn.Module) -> list[_TableLayer]:
    """Return the layers of a module that have their rows in a table."""
    return [layer for layer in module.modules() if isinstance(layer, _TableLayer)]


def prefetch(
    loader: Iterable[Any],
    layer: _TableLayer,
    key: Any = None,
    depth: int = 1,
    *,
    fresh: bool = False,
) -> Iterator[Any]:
    """Yield the batches of a loader, and get the rows of the next ones in the background.

    The rows of a batch are requested `depth` steps before you use them, so they lack the changes
    that all workers make meanwhile.

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
    ahead: deque[Any] = deque()
    while True:
        while len(ahead) <= depth:
            try:
                batch = next(batches)
            except StopIteration:
                yield from ahead
                return
            layer.prefetch(ids_of(batch), fresh=fresh)
            ahead.append(batch)
        yield ahead.popleft()
