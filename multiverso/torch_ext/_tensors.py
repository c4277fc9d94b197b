"""PyTorch tensors: changed in place on the CPU if possible, otherwise through a copy."""

from typing import Any, Final

import torch
from numpy.typing import NDArray

from multiverso.sync._movable import MovableGroup, MovableTensor
from multiverso.sync._table_copy import Share

# Tells autograd that a tensor has changed, so that a backward pass that needs the earlier values
# raises an error. PyTorch 2.0 has no such function.
_increment_version: Final = getattr(torch.autograd.graph, "increment_version", lambda _: None)


def _increment_each(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        _increment_version(tensor)


def _accepts_list() -> bool:
    """Return whether `_increment_version` of this PyTorch accepts a list of tensors."""
    try:
        _increment_version([])
    except (TypeError, AttributeError):
        return False
    return True


_increment_all: Final = _increment_version if _accepts_list() else _increment_each


class TorchTensor(MovableTensor):
    """A parameter or a buffer of a module, of one of `TABLE_DTYPES`, on any device."""

    def __init__(self, tensor: torch.Tensor, name: str, share: Share = 1.0) -> None:
        super().__init__(tuple(tensor.shape), dtype_of(tensor), share)
        self.tensor = tensor
        self._table_dtype: torch.dtype = getattr(torch, self.dtype.name)
        self.name = name
        self._expected = (tensor.shape, tensor.dtype)

    def locate(self) -> int | None:
        """Return the address of a contiguous tensor on the CPU; None for any other tensor."""
        tensor = self.tensor
        if (tensor.shape, tensor.dtype) != self._expected:
            shape, dtype = self._expected
            raise ValueError(
                f"{self.name}: expected shape {tuple(shape)} and dtype {dtype} as when it was "
                f"attached, received {tuple(tensor.shape)}, {tensor.dtype}"
            )
        if self.needs_table_copy or not tensor.is_cpu or not tensor.is_contiguous():
            return None
        return int(tensor.data_ptr())

    def read(self) -> NDArray[Any]:
        """Return the values on the CPU."""
        if self.tensor.is_cuda:
            copy = self.allocate()
            self.read_into(copy)
            return copy
        values = self.tensor.detach().to("cpu", self._table_dtype).contiguous()
        array: NDArray[Any] = values.numpy()
        return array

    def read_into(self, copy: NDArray[Any]) -> None:
        """Copy the values from their device directly to `copy`."""
        # The device of the tensor converts it, since a GPU does so faster.
        torch.from_numpy(copy).copy_(self.tensor.detach().to(self._table_dtype))

    def write(self, values: NDArray[Any]) -> None:
        """Set the tensor to `values`."""
        given = torch.from_numpy(values).reshape(self.tensor.shape)
        if self.needs_table_copy:
            given = given.to(self.tensor.device)  # which converts it
        with torch.no_grad():
            self.tensor.copy_(given)

    def mark_changed(self) -> None:
        """Tell autograd that the tensor has changed."""
        _increment_version(self.tensor)

    def allocate(self) -> NDArray[Any]:
        """Return pinned memory for a tensor on a GPU, which copies it at full speed."""
        is_pinned = self.tensor.device.type == "cuda"
        # The device is named, because a program may make another one PyTorch's default.
        copy: NDArray[Any] = torch.empty(
            self.shape, dtype=self._table_dtype, device="cpu", pin_memory=is_pinned
        ).numpy()
        return copy


def dtype_of(tensor: torch.Tensor) -> str:
    """Return the dtype of a tensor by the name that NumPy and `TABLE_DTYPES` use."""
    return str(tensor.dtype).removeprefix("torch.")


class TorchGroup(MovableGroup):
    """Tensors that the native pass changes in place, located together to save time."""

    def __init__(self, tensors: list[TorchTensor]) -> None:
        super().__init__(tensors)
        self._torch_tensors: list[torch.Tensor] = []
        self._shapes = [tensor.tensor.shape for tensor in tensors]
        self._dtypes = [tensor.tensor.dtype for tensor in tensors]
        self._apart: list[int] = []  # The last addresses, which are known to differ.

    def gather(self) -> None:
        """Set `addresses` if all are contiguous, on the CPU and unchanged in shape and dtype."""
        self._torch_tensors = tensors = [tensor.tensor for tensor in self.tensors]
        self.addresses = None
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._apart:
            self._require_apart(addresses)
            self._apart = addresses
        if (
            [tensor.shape for tensor in tensors] == self._shapes
            and [tensor.dtype for tensor in tensors] == self._dtypes
            and all([tensor.is_cpu and tensor.is_contiguous() for tensor in tensors])
        ):
            self.addresses = addresses

    def _require_apart(self, addresses: list[int]) -> None:
        """Raise ValueError if a program has given two tensors the same memory."""
        holders: dict[int, TorchTensor] = {}
        for tensor, address in zip(self.tensors, addresses, strict=True):
            if tensor.size and holders.setdefault(address, tensor) is not tensor:
                one, other = holders[address].name, tensor.name
                msg = f"expected tensors with separate memory, but {one} and {other} share"
                raise ValueError(msg)

    def scatter(self) -> None:
        """Tell autograd that the native pass has changed the tensors."""
        if self.addresses is not None:
            _increment_all(self._torch_tensors)
            self.addresses = None
