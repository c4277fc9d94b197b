"""Synchronizes the parameters and buffers of a module between all workers."""

from typing import TYPE_CHECKING

import torch

from multiverso.sync._param_manager import ParamManager
from multiverso.sync._shares import Shares, SyncStatistics
from multiverso.sync._tensor import Tensors
from multiverso.torch_ext._module_tensors import ModuleTensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from multiverso.sync._options import ManagerOptions

__all__ = ["TorchParamManager"]


class TorchParamManager(ParamManager):
    """Synchronizes a module that each worker trains, through tables.

    The constructor is collective: all ranks pass modules of the same architecture. When it returns,
    the modules of all workers have the master's values. Do not sync between a forward pass and its
    backward pass, which needs the same parameters.

    Parameters
    ----------
    module : torch.nn.Module
        Contiguous parameters of float32 and float64 on the CPU are updated in place; those on a
        GPU are copied through pinned memory. float16 and bfloat16 are summed in float32.
        Tensors that the module replaces by others of the same shape are followed. Tensors that
        share their whole memory, such as tied parameters, are synchronized once. Nothing else in
        the module changes, so saving, copying and pickling it work as before.
    sync_buffers : {"average", "master", False}, optional
        How buffers such as running means are synchronized. "average", the default, averages the
        workers' deltas; integers, such as counts of batches, are taken from the master. "master"
        takes all buffers from the master. With False, each worker keeps its own buffers from the
        start, as always for buffers of other dtypes, such as masks.
    overlap, average, **options : optional
        As for `multiverso.sync.ParamSync`. With `sync_every`, `fragments` or
        `fragment_sync_delay`, call `step` after each step of training.

    Raises
    ------
    TypeError, ValueError
        If `module` is not a module or has no parameters, or a tensor cannot be synchronized: it is
        complex, quantized or sparse, has no values yet, or shares a part of its memory with another
        or among its elements, as after ``expand``.
    MismatchError, MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.sync.ParamSync`.

    Examples
    --------
    >>> import torch
    >>> import multiverso as mv
    >>> from multiverso.torch_ext import TorchParamManager
    >>> with mv.session():
    ...     model = torch.nn.Linear(2, 1)
    ...     manager = TorchParamManager(model)
    ...     _ = torch.nn.init.ones_(model.weight)  # training
    ...     manager.sync()
    ...     manager.tables[0].get()[:2].round(3)
    array([1., 1.], dtype=float32)

    """

    def __init__(
        self,
        module: torch.nn.Module,
        sync_buffers: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool = False,
        **options: "Unpack[ManagerOptions]",
    ) -> None:
        self.module = module
        super().__init__(
            lambda: tensors_of(module, sync_buffers, average),
            type(module).__name__,
            overlap=overlap,
            average=average,
            **options,
        )

    def _projections(self) -> str:
        is_limited = any(getattr(m, "max_norm", None) is not None for m in self.module.modules())
        return "layers with max_norm" if is_limited else ""


def tensors_of(module: object, sync_buffers: object, average: bool) -> Tensors:
    """Return the parameters and buffers that are synchronized; raise if an argument is invalid."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, received {type(module).__name__}")
    return ModuleTensors(module, Shares(sync_buffers, "sync_buffers", average), average)
