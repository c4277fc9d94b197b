"""Calls with tensors that stand for others, and calls while a mode of PyTorch sees all operators.

A tensor such as those of torch.func or FakeTensor has no memory. PyTorch makes a call with it
through an operator (`c10d::allreduce_`), for which the class of the tensor, or a transformation of
functions, puts in the tensors with memory. Modes such as CommDebugMode count operators, or note
them (make_fx). So this module calls the operator, and takes over when it has come to tensors with
memory and the last mode.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily
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
        """Make a call; leave it to the classes of its tensors and to the modes around it first."""
        if types and not _are_fake(types):
            return NotImplemented
        tensors = [leaf for leaf in tree_leaves(args) if _is_tensor(leaf)]
        if types or func.namespace != "c10d" or any(tensor.is_meta for tensor in tensors):
            return func(*args, **(kwargs or {}))
        if is_seen():
            with _pop_mode_temporarily() as mode, self:
                return mode.__torch_dispatch__(func, types, args, kwargs or {})
        self.work = self._make(tensors)
        kinds = [str(returned.type) for returned in func._schema.returns]
        found = tuple(args[0] if "Tensor" in kind else self.work.boxed() for kind in kinds)
        return found if len(found) > 1 else found[0]


#: Returns whether a mode of PyTorch sees the operators that this thread calls.
is_seen: Final = torch._C._len_torch_dispatch_stack


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
