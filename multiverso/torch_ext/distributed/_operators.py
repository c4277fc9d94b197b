"""Calls with tensors that stand for others, such as those of torch.func or FakeTensor.

Such a tensor has no memory. PyTorch makes a call with it through an operator (`c10d::allreduce_`),
for which the class of the tensor, or a transformation of functions, puts in the tensors with
memory. So this module calls the operator, and takes over when it has come to those.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from multiverso.torch_ext.distributed._arguments import ArgumentTypeError
from multiverso.torch_ext.distributed._tensors import NoMemoryError


class _WithMemory(TorchDispatchMode):  # type: ignore[misc]  # PyTorch has no types for it.
    """Makes the calls of the operators of PyTorch whose tensors have memory."""

    def __init__(self, make: Callable[[list[torch.Tensor]], Any]) -> None:
        super().__init__()
        self._make = make
        #: What the last call has returned. PyTorch's object for it in C++ does not keep it.
        self.work: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make a call; leave one whose tensors stand for others to their classes."""
        if types and not _are_fake(types):
            return NotImplemented
        if types or func.namespace != "c10d":
            return func(*args, **(kwargs or {}))
        self.work = self._make([leaf for leaf in tree_leaves(args) if _is_tensor(leaf)])
        kinds = [str(returned.type) for returned in func._schema.returns]
        found = tuple(args[0] if "Tensor" in kind else self.work.boxed() for kind in kinds)
        return found if len(found) > 1 else found[0]


def through_operator(
    group: Any, method: Callable[..., Any], args: Any, named: dict[str, Any], ours: dict[str, Any]
) -> Any:
    """Make a call of a group through the operator of PyTorch, and return its Work.

    `method` of the group makes it, with tensors that have memory in the places of those in `args`
    and `ours`, which are `named` as in PyTorch.
    """
    leaves, form = tree_flatten((args, ours))

    def make(tensors: list[torch.Tensor]) -> Any:
        given = iter(tensors)
        filled = [next(given) if _is_tensor(leaf) else leaf for leaf in leaves]
        places, names = tree_unflatten(filled, form)
        try:
            return method(group, *places, **names)
        except NoMemoryError as error:
            raise ArgumentTypeError(str(error)) from None

    with _WithMemory(make) as mode:
        work = getattr(group.through_operators(), method.__name__)(*args, **named)
    return mode.work or work


def group_of_operators(
    store: distributed.Store, rank: int, size: int, backend: Any
) -> distributed.ProcessGroup:
    """Return a group of PyTorch's own class, whose calls are operators."""
    group = distributed.ProcessGroup(store, rank, size)
    kind = distributed.ProcessGroup.BackendType.GLOO
    group._set_default_backend(kind)
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, backend)
    return group


def _are_fake(types: Sequence[type]) -> bool:
    """Return whether one of the classes is that of tensors of which no call is made."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and any(issubclass(kind, module.FakeTensor) for kind in types)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)
