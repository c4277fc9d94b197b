"""Fills a module from a session that trains it in other processes."""

import torch

from multiverso.readers import View
from multiverso.sync import _live
from multiverso.sync._shares import SyncStatistics
from multiverso.torch_ext.param_manager import tensors_of

__all__ = ["load_live"]


def load_live(
    module: torch.nn.Module,
    view: View,
    sync_buffers: SyncStatistics = "average",
    *,
    name: str | None = None,
) -> int | None:
    """Set the parameters and buffers of a module to those that a running session has for it.

    The workers of the session synchronize a module with `TorchParamManager` or
    `DistributedOptimizer`, whose tensors have the same shapes and dtypes in the same order. This
    process only reads; see `multiverso.attach` and `multiverso.follow`. Rows of `Embedding` layers
    are not loaded: create the layers with the tables of the view.

    Parameters
    ----------
    module : torch.nn.Module
        The module, on any device.
    view : multiverso.tables.View
        The session, or its folder.
    sync_buffers : {"average", "master", False}, optional
        The argument of the workers.
    name : str, optional
        The class of the workers' module, or the name of its table in ``view.tables``, if several
        fit. By default, a module of the same class, or else the only one that fits.

    Returns
    -------
    int or None
        The step of the version that was loaded. If the session has not published, the current
        values are loaded, and None is returned.

    Raises
    ------
    TypeError, ValueError, StateError, OperationTimeout
        If no module of the session fits, or several do; as for `multiverso.tables.View.cut`.

    Examples
    --------
    >>> import os
    >>> import multiverso as mv
    >>> import torch
    >>> from multiverso.torch_ext import TorchParamManager, load_live
    >>> with mv.session(name="job"):  # in the training job
    ...     trained = torch.nn.Linear(2, 1)
    ...     manager = TorchParamManager(trained)
    ...     version = mv.publish(step=100)
    ...     with mv.attach(os.getpid()) as view:  # in any other process
    ...         model = torch.nn.Linear(2, 1)
    ...         step = load_live(model, view)
    ...         print(step, bool((model.weight == trained.weight).all()))
    100 True

    """
    tensors = tensors_of(module, sync_buffers, False)
    return _live.load_live(type(module).__name__, name, tensors, view)
