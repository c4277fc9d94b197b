"""The base class of the layers for PyTorch, which have their rows in a table."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch

from multiverso._native import supported
from multiverso._native.arguments import flag, integer
from multiverso.sync._row_gradients import RowLayer
from multiverso.tables import MatrixTable
from multiverso.tables._options import UpdaterName
from multiverso.torch_ext._connection import ConnectedGradients, Connection
from multiverso.torch_ext._rows import Bags, Batch, LookUp, PlainLookUp, Rows
from multiverso.torch_ext._tensors import dtype_of

if TYPE_CHECKING:
    from typing import Self


def _untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that torch.compile does not trace, since it calls the C library.

    PyTorch's own decorator imports the compiler, which takes seconds, so this one uses it only in a
    program that has imported the compiler.
    """
    disabled: list[Callable[..., Any]] = []

    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return method(*arguments)
        if not disabled:
            disabled.append(sys.modules["torch._dynamo"].disable(method))
        return disabled[0](*arguments)

    return call


class _Ahead(deque[Rows]):
    """Rows that have been prefetched for the next look-ups, in their order."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Ahead:
        """Return an empty one, for a copy of the layer."""
        return _Ahead()


#: What programs look for in PyTorch's layers, and why it is not there.
_ABSENT: Final = {
    "weight": (
        "a layer with its rows in a table has no weight: read rows with layer.table.peek(ids), "
        "train them with layer.step(), and load them with multiverso.load"
    ),
    "num_embeddings": "the keys of a hash table have no fixed number; len(layer.table) counts them",
}


#: What a look-up raises in `torch.export`, whose compiler cannot ask the library for it.
_EXPORTED: Final = supported.refusal_of("layers", "export")


class TableLayer(RowLayer, torch.nn.Module):  # type: ignore[misc]
    """A layer whose rows are in a table, and whose only parameter is a scalar `Connection`."""

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
            raise ValueError(
                "max_norm: expected None, because all workers share the rows, and a layer only "
                "reads them; to limit the steps, give the table clipnorm= or clipvalue="
            )
        if flag(scale_grad_by_freq, "scale_grad_by_freq"):
            raise ValueError(
                "scale_grad_by_freq: expected False, because a row's gradient is the sum over the "
                "batches of a step; divide the loss instead"
            )
        self.sparse = flag(sparse, "sparse")
        self._gradients = ConnectedGradients(table)
        self.padding_idx = (
            None if padding_idx is None else _checked_padding(padding_idx, self._gradients.num_row)
        )
        self.max_norm, self.scale_grad_by_freq = None, False
        self.connection = Connection(
            torch.zeros((), dtype=getattr(torch, self._gradients.dtype.name))
        )
        self.connection.rows = self._gradients
        # PyTorch's layers begin with a padding of zeros, unless the program gives them all rows.
        self._has_zero_padding = padding_idx is not None and self._gradients.has_initial_rows()
        self._ahead = _Ahead()

    @property
    def num_embeddings(self) -> int:
        """The number of rows of a matrix. A hash table has none, so this raises AttributeError."""
        if self._gradients.num_row is None:
            raise AttributeError(_ABSENT["num_embeddings"])
        return self._gradients.num_row

    @property
    def embedding_dim(self) -> int:
        """The number of columns of the table."""
        return self._gradients.num_col

    def __getattr__(self, name: str) -> Any:
        """Return a parameter, a buffer or a module of the layer, or say why there is none."""
        if name in _ABSENT:  # PyTorch also calls this when a property raises AttributeError.
            raise AttributeError(_ABSENT[name])
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a weight would have no effect and raises AttributeError."""
        if name == "weight":
            raise AttributeError(_ABSENT[name])
        super().__setattr__(name, value)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: torch.Tensor,
        freeze: bool = True,
        *,
        updater: UpdaterName = "sgd",
        table_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Create a matrix with given rows, and a layer for it. Collective over all ranks.

        Parameters
        ----------
        embeddings : Tensor of shape (num_row, num_col)
            The rows; those of the master count.
        freeze : bool, optional
            Whether the layer only reads the rows; ``layer.requires_grad_()`` ends that.
        updater : str, optional
            The updater of the table, as for `multiverso.MatrixTable`.
        table_options : mapping, optional
            More arguments of the table, such as ``{"learning_rate": 0.1}``.
        **options : optional
            The arguments of the layer.

        Raises
        ------
        TypeError, ValueError, MismatchError, MemoryError, StateError
            If `embeddings` has not two dimensions; as for `multiverso.MatrixTable` and the layer.

        """
        if embeddings.dim() != 2:
            msg = f"embeddings: expected two dimensions, received shape {tuple(embeddings.shape)}"
            raise ValueError(msg)
        values = embeddings.detach().cpu()
        if values.dtype.itemsize == 2:  # The table rounds; NumPy does not know all types.
            values = values.float()
        given = {"dtype": dtype_of(embeddings), **(table_options or {})}
        num_row, num_col = values.shape
        table = MatrixTable(num_row, num_col, values.numpy(), updater=updater, **given)
        layer = cls(table, **options)
        layer.requires_grad_(not flag(freeze, "freeze"))
        return layer

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
        self._gradients.require_prefetch()
        self._offer(self._begin(ids, fresh=fresh))

    def _offer(self, rows: Rows) -> None:
        """Let the next look-up of the ids of these rows use them."""
        self._ahead.append(rows)

    def _withdraw(self, rows: Rows) -> None:
        """Let no later look-up use these rows."""
        if rows in self._ahead:
            self._ahead.remove(rows)

    def _settle(self, scale: float = 1.0) -> float | None:
        return self._gradients.settle(scale)

    def _is_training(self) -> bool:
        """Return whether a look-up is recorded for the step."""
        return bool(self.training and torch.is_grad_enabled() and self.connection.requires_grad)

    def _begin(self, ids: torch.Tensor, *, fresh: bool = False) -> Rows:
        """Begin to get the rows of a later look-up in the mode of now."""
        return self._get(ids, self._is_training(), is_ahead=True, fresh=fresh)

    def _get(
        self, ids: torch.Tensor, is_training: bool, *, is_ahead: bool = False, fresh: bool = False
    ) -> Rows:
        if ids.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"ids: expected a tensor of int64 or int32, received {ids.dtype}")
        return Rows(
            # A copy, because programs may use the memory again before the backward pass.
            ids.detach().to("cpu", torch.int64, copy=True),
            self._gradients,
            distinct=ids.is_cuda,  # Then fewer bytes travel to the device.
            is_training=is_training,
            is_ahead=is_ahead,
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
        return self._get(ids, is_training)

    def _look_up(self, ids: torch.Tensor, bags: Bags | None = None) -> torch.Tensor:
        """Return the rows of a batch, of shape (*ids.shape, num_col), or those of its bags."""
        is_exporting = torch.jit.is_tracing() or getattr(torch.compiler, "is_exporting", bool)()
        if is_exporting and _EXPORTED is not None:
            raise _EXPORTED.error(_EXPORTED.sentence)
        return self._found(ids, bags)

    @_untraced
    def _found(self, ids: torch.Tensor, bags: Bags | None) -> torch.Tensor:
        is_training = self._is_training()
        if is_training:
            self._gradients.note_look_up()
        connection = self.connection if is_training else self.connection.detach()
        if not torch._C._are_functorch_transforms_active():
            found: torch.Tensor = PlainLookUp.apply(connection, ids, Batch(self, is_training, bags))
            return found
        rows: torch.Tensor = LookUp.apply(connection, ids, Batch(self, is_training))
        return rows if bags is None else bags.combine(rows)

    def _collect(self, row_ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Keep the gradients of rows until the step, except that of the padding."""
        if self.padding_idx is not None:
            is_kept = row_ids != self.padding_idx
            row_ids, gradients = row_ids[is_kept], gradients[is_kept]
        self._gradients.collect(row_ids.numpy(), gradients.numpy())

    def _apply(self, *arguments: Any) -> Self:
        """Convert the layer; PyTorch replaces a parameter that it cannot convert in place."""
        super()._apply(*arguments)
        plain: torch.nn.Parameter = self.connection
        if not isinstance(plain, Connection):
            self.connection = Connection(plain.detach(), plain.requires_grad)
            self.connection.rows = self._gradients
        return self

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


def _checked_padding(padding_idx: object, num_row: int | None) -> int:
    """Return the row of the padding. Negative numbers count from the end of a matrix."""
    index = integer(padding_idx, "padding_idx", -(2**63))
    if num_row is not None:
        if not -num_row <= index < num_row:
            raise ValueError(f"padding_idx: expected {-num_row} to {num_row - 1}, received {index}")
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
        If `depth` is less than 1, or in an elastic session.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import Embedding, prefetch
    >>> with mv.session():
    ...     layer = Embedding(mv.MatrixTable(1000, 2, updater="sgd"))
    ...     batches = [{"ids": torch.tensor([step])} for step in range(3)]
    ...     for batch in prefetch(batches, layer, key="ids"):  # gets the rows of the next batch
    ...         rows = layer(batch["ids"])

    """
    depth = integer(depth, "depth", 1)
    layer._gradients.require_prefetch()
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
            ahead.append((batch, layer._begin(ids_of(batch), fresh=fresh)))
        if not ahead:
            return
        batch, rows = ahead.popleft()
        layer._offer(rows)
        try:
            yield batch
        finally:
            # A loop may end early, and its rows are soon too old for another look-up.
            layer._withdraw(rows)
