"""The rows of a batch, from their get to their gradients, as a part of a graph of PyTorch."""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.nn import functional

from multiverso.sync._row_gradients import RowGradients

if TYPE_CHECKING:
    from multiverso.tables import Future


class Rows:
    """The rows of a batch of ids, which are got in the background if `is_ahead`."""

    def __init__(
        self,
        #: The ids of the batch, int64 on the CPU.
        ids: torch.Tensor,
        gradients: RowGradients,
        *,
        distinct: bool,
        #: Whether the rows are for training.
        is_training: bool,
        is_ahead: bool,
        fresh: bool,
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
        self._dtype: torch.dtype = getattr(torch, gradients.dtype.name)
        self._num_col = gradients.num_col
        # Only a GPU gets each row once, and copies faster from pinned memory.
        shape = (*shape, self._num_col)
        values = torch.empty(shape, dtype=self._dtype, device="cpu", pin_memory=distinct)
        self._values: Any = values
        self._future: Future[Any] | None = None
        row_ids, out = self._row_ids.numpy(), values.view(-1, self._num_col).numpy()
        if is_ahead:
            self._future = gradients.begin_rows(row_ids, out, insert=is_training, fresh=fresh)
        else:
            gradients.get_rows(row_ids, out, insert=is_training)

    def take(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Wait for the rows, and return that of each id, for the only time."""
        if self._future is not None:
            self._future.result()
        values, self._values = self._values, None
        values = values.to(device, dtype, non_blocking=True)
        if self._places is None:
            return values
        self._places = self._places.to(device, non_blocking=True)
        return functional.embedding(self._places, values)

    def gradients(
        self, gradients: torch.Tensor, *, is_copy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row ids and their gradients on the CPU, from the gradient of what `take` gave."""
        flat = gradients.detach().reshape(-1, self._num_col)
        if self._places is None:
            # A copy, because later backward passes may change the gradient in place.
            return self._row_ids, flat.to("cpu", self._dtype, copy=not is_copy)
        shape = (len(self._row_ids), self._num_col)
        sums = torch.zeros(shape, dtype=self._dtype, device=flat.device)
        sums.index_add_(0, self._places.reshape(-1), flat.to(self._dtype))
        return self._row_ids, sums.cpu()


class Bags(NamedTuple):
    """How the rows of ids become those of bags: of each row of ids, or of those from an offset on.

    PyTorch's function for bags sorts the ids in its backward pass, which takes most of a step.
    """

    mode: str
    offsets: torch.Tensor | None
    include_last_offset: bool

    def combine(self, rows: torch.Tensor) -> torch.Tensor:
        """Return a row for each bag."""
        if self.offsets is None:
            return rows.sum(1) if self.mode == "sum" else rows.mean(1)
        return functional.embedding_bag(
            torch.arange(len(rows), device=rows.device),
            rows,
            self.offsets,
            mode=self.mode,
            include_last_offset=self.include_last_offset,
        )

    def spread(self, gradients: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the row of each id in new memory, from those of the bags."""
        if self.offsets is None:
            gradients = gradients if self.mode == "sum" else gradients / ids.shape[1]
            return gradients.repeat_interleave(ids.shape[1], 0)
        begins = self.offsets.numpy()
        ends = begins[1:] if self.include_last_offset else np.append(begins[1:], len(ids))
        counts = ends - begins[: len(ends)]
        if self.mode == "mean":
            gradients = gradients / torch.from_numpy(counts).clamp(min=1)[:, None]
        if gradients.dtype is torch.bfloat16:  # NumPy does not know it.
            gradients = gradients.float()
        # PyTorch's function takes twice as long, because it makes an index of all ids first.
        return torch.from_numpy(np.repeat(gradients.detach().numpy(), counts, axis=0))


class Layer(Protocol):
    """What a batch uses of its layer."""

    padding_idx: int | None
    _has_zero_padding: bool

    def _rows_of(self, ids: torch.Tensor, is_training: bool) -> Rows: ...

    def _collect(self, row_ids: torch.Tensor, gradients: torch.Tensor) -> None: ...


class Batch:
    """One look-up of a layer, from which the layer collects the gradients of its rows."""

    def __init__(self, layer: Layer, is_training: bool, bags: Bags | None = None) -> None:
        self.layer = layer
        self.is_training = is_training
        self.bags = bags
        self.rows: Rows | None = None

    def take(self, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        self.rows = self.layer._rows_of(ids, self.is_training)
        values = self.rows.take(ids.device, dtype)
        if self.layer._has_zero_padding:
            values[ids == self.layer.padding_idx] = 0
        return values if self.bags is None else self.bags.combine(values)

    def collect(self, gradients: torch.Tensor) -> None:
        if self.rows is not None:
            if self.bags is not None:
                gradients = self.bags.spread(gradients, self.rows.ids)
            is_copy = self.bags is not None
            self.layer._collect(*self.rows.gradients(gradients, is_copy=is_copy))


class _Collect(torch.autograd.Function):  # type: ignore[misc]
    """Collects gradients, which `torch.func.grad` wraps everywhere but in a function."""

    @staticmethod
    def forward(gradients: torch.Tensor, batch: Batch) -> torch.Tensor:
        batch.collect(gradients)
        return gradients.new_zeros(())

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: torch.Tensor) -> None:
        pass


class LookUp(torch.autograd.Function):  # type: ignore[misc]
    """The rows of ids. They seem to depend on the layer's connection, whose gradient is zero."""

    @staticmethod
    def forward(connection: torch.Tensor, ids: torch.Tensor, batch: Batch) -> torch.Tensor:
        return batch.take(ids, connection.dtype)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: torch.Tensor) -> None:
        connection, _, context.batch = inputs
        context.zero = functools.partial(connection.new_zeros, ())

    @staticmethod
    def backward(context: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        _Collect.apply(gradients, context.batch)
        return context.zero(), None, None


class PlainLookUp(torch.autograd.Function):  # type: ignore[misc]
    """The same outside `torch.func`, whose functions take longer than a small batch."""

    @staticmethod
    def forward(
        context: Any, connection: torch.Tensor, ids: torch.Tensor, batch: Batch
    ) -> torch.Tensor:
        LookUp.setup_context(context, (connection, ids, batch), connection)
        return batch.take(ids, connection.dtype)

    @staticmethod
    def backward(context: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        if torch._C._are_functorch_transforms_active():
            return LookUp.backward(context, gradients)
        context.batch.collect(gradients)
        return context.zero(), None, None
