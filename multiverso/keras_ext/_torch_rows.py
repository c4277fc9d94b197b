"""Rows of a table in a graph of PyTorch, for `multiverso.keras_ext.layers`."""

from collections.abc import Callable
from typing import Any

import torch

from multiverso.sync._row_gradients import RowGradients


def look_up_with(gradients: RowGradients, insert: bool) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids): rows, whose gradients `gradients` collects.

    With `insert`, keys of a hash table get a row.
    """

    class LookUp(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, connection: Any, ids: Any) -> Any:
            context.ids = ids.detach().cpu().numpy()
            return torch.from_numpy(gradients.rows_of(context.ids, insert)).to(connection.device)

        @staticmethod
        def backward(context: Any, row_gradients: Any) -> tuple[Any, None]:
            # A copy, because later backward passes may change the gradient in place.
            gradients.collect(context.ids, row_gradients.detach().cpu().numpy().copy())
            # A scaler of the loss sees only this number.
            is_finite = torch.isfinite(row_gradients).all()
            return torch.where(is_finite, 0.0, torch.nan), None

    return LookUp.apply  # type: ignore[no-any-return]


def wait_for_gradients() -> None:
    """Return at once: a backward pass ends after its gradients."""
