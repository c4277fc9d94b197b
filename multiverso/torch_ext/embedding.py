"""Embedding layers whose rows are in a table of Multiverso.

The rows are no parameters of the module: optimizers, `DistributedDataParallel` and ``state_dict``
do not see them. A layer gets the rows of a batch from the table, collects their gradients, and
sends them in `step`; the table's updater is the optimizer of the rows. A scalar parameter of the
layer has the norm of these gradients as its gradient, see `Connection`.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.nn import functional

from multiverso._native.arguments import choice, flag
from multiverso.sync._row_gradients import RowTable
from multiverso.torch_ext._layer import TableLayer, prefetch
from multiverso.torch_ext._rows import Bags

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection", "layers_of", "prefetch"]

_MODES: Final = ("mean", "sum")


class Embedding(TableLayer):
    """`torch.nn.Embedding` with its rows in a table.

    Parameters
    ----------
    table : MatrixTable or HashTable
        A table of floating-point numbers whose updater takes gradients, or one of the ``tables`` of
        `multiverso.attach` or `multiverso.follow`, whose rows are read and not trained. In `eval`
        mode and without gradients, keys of a hash table get no row.
    padding_idx : int, optional
        A row that gets no gradient. In a matrix, negative numbers count from the end.
    sparse : bool, optional
        Accepted and without effect: the gradients of rows are always sparse.
    max_norm, scale_grad_by_freq : optional
        Not supported: anything but the defaults is a ValueError.

    Attributes
    ----------
    connection : Parameter
        A scalar zero. Its gradient is the norm of the gradients of the rows that wait for `step`,
        and the rows follow it: where the program resets, scales or clips the gradients of the
        module's parameters, or freezes them, it does so to the rows.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import Embedding
    >>> with mv.session():
    ...     table = mv.MatrixTable(1000, 2, updater="sgd", learning_rate=0.5)
    ...     layer = Embedding(table)
    ...     layer(torch.tensor([[1, 7], [7, 2]])).sum().backward()
    ...     layer.step()
    ...     table.get([1, 2, 7])
    True
    array([[-0.5, -0.5],
           [-0.5, -0.5],
           [-1. , -1. ]], dtype=float32)

    """

    def __init__(
        self,
        table: RowTable,
        padding_idx: int | None = None,
        *,
        max_norm: float | None = None,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__(table, padding_idx, max_norm, scale_grad_by_freq, sparse)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (the name of PyTorch)
        """Return the rows of the ids `input`, of shape (*input.shape, num_col), on its device.

        Waits for the get of the rows. In `eval` mode and without gradients nothing is recorded.
        """
        return self._look_up(input)


class EmbeddingBag(TableLayer):
    """`torch.nn.EmbeddingBag` with its rows in a table.

    Parameters
    ----------
    table : MatrixTable or HashTable
        As for `Embedding`.
    mode : {"mean", "sum"}, optional
        How the rows of a bag are combined.
    padding_idx : int, optional
        A row that bags leave out. In a matrix, negative numbers count from the end.
    include_last_offset : bool, optional
        Whether the last of the `offsets` is the end of the last bag, as in a `KeyedJaggedTensor`,
        and not the beginning of another one.
    sparse, max_norm, scale_grad_by_freq : optional
        As for `Embedding`.

    Attributes
    ----------
    connection : Parameter
        As for `Embedding`.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import EmbeddingBag
    >>> with mv.session():
    ...     bag = EmbeddingBag(mv.MatrixTable(1000, 2, 1, updater="sgd"), mode="sum")
    ...     bag(torch.tensor([[1, 7, 7]])).tolist()
    [[3.0, 3.0]]

    """

    def __init__(
        self,
        table: RowTable,
        mode: str = "mean",
        padding_idx: int | None = None,
        *,
        include_last_offset: bool = False,
        max_norm: float | None = None,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__(table, padding_idx, max_norm, scale_grad_by_freq, sparse)
        if mode == "max":
            raise ValueError(
                "mode: expected 'mean' or 'sum', received 'max': get the rows with Embedding, and "
                "use their max(dim=1).values, or torch.segment_reduce(rows, 'max', offsets=...)"
            )
        self.mode = choice(mode, "mode", _MODES)
        self.include_last_offset = flag(include_last_offset, "include_last_offset")

    def forward(
        self,
        input: torch.Tensor,  # noqa: A002 (the name of PyTorch)
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a row per bag, of shape (bags, num_col), on the device of `input`.

        The arguments are those of `torch.nn.EmbeddingBag`: ids of shape (bags, n), or of one
        dimension with the `offsets` at which the bags begin; weights only with mode "sum".
        """
        is_plain = per_sample_weights is None and self.padding_idx is None
        if is_plain and input.numel() and self._has_bags(input, offsets):
            # A copy, because programs may use the memory again before the backward pass.
            begins = None if offsets is None else offsets.clone()
            return self._look_up(input, Bags(self.mode, begins, self.include_last_offset))
        rows = self._look_up(input).reshape(-1, self.embedding_dim)
        if input.dim() == 2 and input.numel() == 0:
            return rows.sum(0, keepdim=True).expand(len(input), -1)
        places = torch.arange(len(rows), device=input.device).reshape(input.shape)
        padding = None
        if self.padding_idx is not None or len(rows) == 0:
            # PyTorch's function needs a row, and knows the padding as one.
            padding = len(rows)
            rows = torch.cat([rows, rows.new_zeros(1, self.embedding_dim)])
            if self.padding_idx is not None:
                places = places.masked_fill(input == self.padding_idx, padding)
        return functional.embedding_bag(
            places,
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )

    def _has_bags(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> bool:
        """Return whether the ids are in bags one after the other, of which none is left out."""
        if offsets is None or ids.dim() != 1 or ids.device.type != "cpu":
            return offsets is None and ids.dim() == 2
        return not self.include_last_offset or (len(offsets) > 0 and int(offsets[-1]) == len(ids))


class EmbeddingBagCollection(torch.nn.Module):  # type: ignore[misc]
    """Layers for several features, which one call looks up. The gets of all tables overlap.

    Parameters
    ----------
    layers : mapping of str to EmbeddingBag
        The layer of each feature. Features may share a layer.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import EmbeddingBag, EmbeddingBagCollection
    >>> with mv.session():
    ...     users = mv.HashTable(4, 1000, updater="sgd")
    ...     items = mv.MatrixTable(50, 8, updater="sgd")
    ...     layers = {"user": EmbeddingBag(users), "item": EmbeddingBag(items)}
    ...     ids = {"user": torch.tensor([[7], [9]]), "item": torch.tensor([[1, 2], [3, 4]])}
    ...     torch.cat(list(EmbeddingBagCollection(layers)(ids).values()), dim=1).shape
    torch.Size([2, 12])

    """

    def __init__(self, layers: Mapping[str, EmbeddingBag]) -> None:
        super().__init__()
        given: Mapping[str, object] = layers
        for feature, layer in given.items():
            if not isinstance(layer, EmbeddingBag):
                msg = f"{feature}: expected an EmbeddingBag, received {type(layer).__name__}"
                raise TypeError(msg)
        different = list(dict.fromkeys(layers.values()))
        self.layers = torch.nn.ModuleList(different)
        self._places = {feature: different.index(layer) for feature, layer in layers.items()}

    def forward(self, features: Any) -> dict[str, torch.Tensor]:
        """Return a tensor of shape (bags, num_col) for each feature.

        Parameters
        ----------
        features : mapping, or a KeyedJaggedTensor of TorchRec
            The ids of each feature, of shape (bags, n); or a tuple of the arguments of its layer:
            ids, offsets and weights; or a `JaggedTensor`, whose B + 1 offsets are of B bags. Other
            features are ignored.

        Raises
        ------
        ValueError
            If a feature is missing.

        """
        given = features.to_dict() if hasattr(features, "to_dict") else features
        if missing := [feature for feature in self._places if feature not in given]:
            msg = f"features: expected {list(self._places)}, received none for {missing}"
            raise ValueError(msg)
        calls = {
            feature: (self.layers[place], _arguments_of(given[feature], self.layers[place]))
            for feature, place in self._places.items()
        }
        ahead = [(layer, layer._begin(arguments[0])) for layer, arguments in calls.values()]
        for layer, rows in ahead:
            layer._offer(rows)
        try:
            return {feature: layer(*arguments) for feature, (layer, arguments) in calls.items()}
        finally:
            for layer, rows in ahead:
                layer._withdraw(rows)


def _arguments_of(feature: Any, layer: EmbeddingBag) -> tuple[Any, ...]:
    """Return the arguments of a layer for a feature."""
    if isinstance(feature, torch.Tensor):
        return (feature,)
    if isinstance(feature, tuple):
        return feature
    offsets = feature.offsets()
    weights = feature.weights_or_none() if hasattr(feature, "weights_or_none") else None
    return feature.values(), offsets if layer.include_last_offset else offsets[:-1], weights


def layers_of(module: torch.nn.Module) -> list[TableLayer]:
    """Return the layers of a module that have their rows in a table.

    Examples
    --------
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext.embedding import EmbeddingBag, layers_of
    >>> with mv.session():
    ...     bag = EmbeddingBag(mv.MatrixTable(1000, 2, updater="sgd"))
    ...     layers_of(torch.nn.Sequential(bag, torch.nn.Linear(2, 1))) == [bag]
    True

    """
    return [layer for layer in module.modules() if isinstance(layer, TableLayer)]
