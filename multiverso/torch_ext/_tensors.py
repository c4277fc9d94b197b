"""Tensors of PyTorch to be kept in step: in place on the CPU, through a copy elsewhere."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from numpy.typing import NDArray

from multiverso._native.dtypes import TABLE_DTYPES
from multiverso.sync._master_copy import MasterCopy
from multiverso.sync._tensor import Group

#: The dtypes of tensors that a table can hold.
DTYPES: Final = {getattr(torch, name): name for name in TABLE_DTYPES}

# Tells autograd that the tensor has changed, so that a backward pass that would need what it was
# before is an error. PyTorch 2.0 has no such function.
_increment_version: Final = getattr(torch.autograd.graph, "increment_version", lambda _: None)


def _increment_each(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        _increment_version(tensor)


def _takes_several() -> bool:
    """Tell whether this PyTorch takes a list of tensors."""
    try:
        _increment_version([])
    except (TypeError, AttributeError):
        return False
    return True


_increment_all: Final = _increment_version if _takes_several() else _increment_each


class TorchTensor:
    """A parameter or a buffer of a module.

    Parameters
    ----------
    tensor : torch.Tensor
        Of one of `DTYPES`. Where its memory lies may change, its shape and dtype may not.
    name : str
        What messages call it.
    share : float
        How much of what this worker's tensor gains is added to the table, 0 to 1. For integers 0
        or 1.

    Attributes
    ----------
    tensor : torch.Tensor
        As given.
    is_whole : bool
        Whether the pass may work on the tensor itself: nothing is cast or averaged.

    """

    is_fixed = False

    def __init__(self, tensor: torch.Tensor, name: str, share: float = 1.0) -> None:
        self.dtype = TABLE_DTYPES[DTYPES[tensor.dtype]]
        self._exact: torch.dtype = getattr(torch, self.dtype.name)
        self.shape = tuple(tensor.shape)
        self.size = tensor.numel()
        self.tensor = tensor
        self.group: Group | None = None
        self._name = name
        self._share = share
        self._kind = (tensor.shape, tensor.dtype)
        self.is_whole = tensor.dtype == self._exact and share == 1
        self._copy: torch.Tensor | None = None  # of the tensor, or of the table's values
        self._master: MasterCopy | None = None  # over the copy, unless the tensor is whole
        self._in_place = False

    def values(self) -> NDArray[Any]:
        """Return a view or a copy of the values."""
        flat: NDArray[Any] = self._now().reshape(-1).numpy()
        return flat

    def assign(self, values: NDArray[Any]) -> None:
        """Set the tensor to `values`."""
        given = torch.from_numpy(values).reshape(self.tensor.shape)
        if not self._can_be_in_place():
            self._make_copy().copy_(given)
        with torch.no_grad():
            self.tensor.copy_(given)
        self._record()

    def address(self) -> int:
        """Return the tensor's own address, or that of a copy with what it has gained."""
        tensor = self.tensor
        if (tensor.shape, tensor.dtype) != self._kind:
            msg = (
                f"{self._name}: expected shape {tuple(self._kind[0])} and dtype {self._kind[1]} as "
                f"when it was attached, received {tuple(tensor.shape)}, {tensor.dtype}"
            )
            raise ValueError(msg)
        self._in_place = self._can_be_in_place()
        if self._in_place:
            return int(tensor.data_ptr())
        copy = self._make_copy()
        if self.is_whole:
            copy.copy_(tensor.detach())
        elif self._master is not None:
            self._master.add_delta(self._now().numpy())
        return int(copy.data_ptr())

    def settle(self) -> None:
        """Set the tensor to what it can hold of the copy, if there is one."""
        if self._in_place:
            _increment_version(self.tensor)
            return
        with torch.no_grad():
            self.tensor.copy_(self._make_copy())
        self._record()

    def _can_be_in_place(self) -> bool:
        tensor = self.tensor
        return self.is_whole and tensor.is_cpu and tensor.is_contiguous()

    def _now(self) -> torch.Tensor:
        """Return the values on the CPU, contiguous and of the table's dtype."""
        return self.tensor.detach().to("cpu", self._exact).contiguous()

    def _make_copy(self) -> torch.Tensor:
        if self._copy is None:
            # Pinned: what a GPU copies at its full speed.
            pinned = self.tensor.device.type == "cuda"
            self._copy = torch.empty(self._kind[0], dtype=self._exact, pin_memory=pinned)
            self._copy.copy_(self.tensor.detach())
            if not self.is_whole:
                self._master = MasterCopy(self._copy.numpy(), self._share)
        return self._copy

    def _record(self) -> None:
        if self._master is not None:
            self._master.record(self._now().numpy())


class TorchGroup:
    """Tensors that the pass works on in place, found all at once.

    Where one of them cannot be worked on in place, each finds its own way.

    Parameters
    ----------
    tensors : list of TorchTensor
        Of one dtype, and whole.

    """

    def __init__(self, tensors: list[TorchTensor]) -> None:
        self.tensors: Sequence[TorchTensor] = tensors
        self.addresses: list[int] | None = None
        self._inner = [one.tensor for one in tensors]
        self._shapes = [tensor.shape for tensor in self._inner]
        self._dtypes = [tensor.dtype for tensor in self._inner]

    def values(self) -> list[NDArray[Any]]:
        """Return the values of each."""
        return [one.values() for one in self.tensors]

    def load(self) -> None:
        """Do nothing: gains are counted from what the tensors are."""

    def gather(self) -> None:
        """Find where they are now."""
        tensors = self._inner
        self.addresses = None
        if (
            [tensor.shape for tensor in tensors] == self._shapes
            and [tensor.dtype for tensor in tensors] == self._dtypes
            and all([tensor.is_cpu and tensor.is_contiguous() for tensor in tensors])
        ):
            self.addresses = [tensor.data_ptr() for tensor in tensors]

    def scatter(self) -> None:
        """Take note that the pass has changed them."""
        if self.addresses is not None:
            _increment_all(self._inner)
            self.addresses = None
