"""Synchronizes the parameters and buffers of a module between all workers."""

from collections.abc import Iterator
from typing import Any

import torch

from multiverso._native.dtypes import require_table_dtype
from multiverso.sync import _array_tensors
from multiverso.sync._movable import grouped
from multiverso.sync._param_manager import ParamManager, Shares, SyncStatistics
from multiverso.sync._tensor import Tensor
from multiverso.torch_ext._connection import Connection
from multiverso.torch_ext._tensors import TorchGroup, TorchTensor, dtype_of

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
        Parameters that you register later are not synchronized. Nothing else in the module
        changes, so saving, copying and pickling it work as before.
    sync_buffers : {"average", "master", False}, optional
        How buffers such as running means are synchronized. "average", the default, averages the
        workers' deltas; integers, such as counts of batches, are taken from the master. "master"
        takes all buffers from the master. With False, each worker keeps its own buffers from the
        start, as always for buffers of other dtypes, such as masks.
    overlap : bool, optional
        As for `multiverso.sync.ParamSync`.
    average : bool, optional
        Whether each delta is divided by the number of workers, see `multiverso.sync.ParamSync`.
    **options : optional
        `fragments`, `sync_every`, `wire` and `weight`, as for `multiverso.sync.ParamSync`; call
        `step` after each step of training.

    Raises
    ------
    ValueError
        If the module has no parameters, lazy parameters without a shape, or two parameters that
        share memory; if `sync_buffers` is invalid.
    TypeError
        If `module` is not a module, or a parameter has another dtype, such as complex.
    MismatchError
        If the parameters of another rank's module differ in number, shape or dtype.
    MemoryError, StateError, OperationTimeout, PeerLostError, AbortedError
        As for `multiverso.ArrayTableHandler`.

    Examples
    --------
    >>> import torch
    >>> import multiverso as mv
    >>> from multiverso.torch_ext import TorchParamManager
    >>> with mv.session():
    ...     model = torch.nn.Linear(2, 1)
    ...     manager = TorchParamManager(model)
    ...     _ = torch.nn.init.ones_(model.weight)  # training
    ...     manager.sync_all_param()
    ...     manager.tables[0].get()[:2]
    array([1., 1.], dtype=float32)

    """

    def __init__(
        self,
        module: torch.nn.Module,
        sync_buffers: SyncStatistics = "average",
        *,
        overlap: bool = False,
        average: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            lambda: tensors_of(module, sync_buffers, average),
            type(module).__name__,
            overlap,
            average,
            **options,
        )
        self.module = module


def tensors_of(module: object, sync_buffers: object, average: bool) -> list[Tensor]:
    """Return the parameters and buffers that are synchronized; raise if an argument is invalid."""
    if not isinstance(module, torch.nn.Module):
        msg = f"module: expected a torch.nn.Module, received {type(module).__name__}"
        raise TypeError(msg)
    shares = Shares(sync_buffers, "sync_buffers", average)
    parameters = list(_parameters_of(module, average))
    if not parameters:
        msg = f"module: expected parameters, received a {type(module).__name__} without any"
        raise ValueError(msg)
    buffers = [
        TorchTensor(buffer, f"buffer {name}", share)
        for name, buffer in module.named_buffers()
        if (share := shares.of(dtype_of(buffer))) is not None
    ]
    return grouped([*parameters, *buffers], TorchGroup)


def _parameters_of(module: torch.nn.Module, average: bool) -> Iterator[TorchTensor]:
    arrays = []
    for name, parameter in module.named_parameters():
        if isinstance(parameter, Connection):  # It stays zero on all workers.
            continue
        if torch.nn.parameter.is_lazy(parameter):
            msg = f"parameter {name}: expected a shape, received a lazy one; run a batch first"
            raise ValueError(msg)
        require_table_dtype(dtype_of(parameter), f"parameter {name}", average)
        if parameter.device.type == "cpu" and parameter.dtype != torch.bfloat16:
            arrays.append(parameter.detach().numpy())
        yield TorchTensor(parameter, f"parameter {name}")
    _array_tensors.require_apart(arrays, "parameters")
