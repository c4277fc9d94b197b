"""Fills a module from a session that trains it in other processes."""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch

from multiverso._native.arguments import text
from multiverso.readers import View
from multiverso.sync._layout import groups_of, tables_of
from multiverso.sync._shares import SyncStatistics
from multiverso.sync._tensor import Tensor
from multiverso.torch_ext.param_manager import tensors_of

__all__ = ["load_live"]

#: What `tables_of` calls the tables of a model.
_OF_MODEL: Final = re.compile(
    r"(?P<name>.*?)( \d+)?(, shape \(.*\)| \((?P<count>\d+) tensors, layout [0-9a-f]{8}\))"
)

#: Tables that have room for all tensors, with their names in the view, and the tensors of each.
_Fit: TypeAlias = list[tuple[str, Any, list[Tensor]]]


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
    wanted = type(module).__name__ if name is None else text(name, "name")
    shown = view.tables
    fits, named = _fits(wanted, tensors, shown)
    chosen = named or (list(fits) if name is None else [])
    if len(chosen) != 1:
        names = ", ".join(map(repr, fits))
        msg = f"name: expected which of {names} to load, which fit the module, received {name!r}"
        raise ValueError(msg if fits else _difference(tensors, shown))
    fit = fits[chosen[0]]
    step = None
    values: list[Any]  # No table has keys.
    if all(table.is_published for _, table, _ in fit):
        cut = view.cut([key for key, _, _ in fit])
        step, values = cut.step, list(cut.values())
    else:
        values = [table.get() for _, table, _ in fit]
    groups = groups_of(list(tensors))
    for group in groups:
        group.load()
    for (_, _, part), array in zip(fit, values, strict=True):
        first = 0
        for tensor in part:
            tensor.assign(array[first : first + tensor.size])
            first += tensor.size
    for group in groups:
        group.scatter()
    return step


def _fits(
    wanted: str, tensors: Sequence[Tensor], shown: dict[str, Any]
) -> tuple[dict[str, _Fit], list[str]]:
    """Return all fits by the name of their first table, and the names of those that are wanted."""
    found = (_OF_MODEL.fullmatch(table.name) for table in shown.values())
    models = dict.fromkeys([wanted, *(match["name"] for match in found if match)])
    filled = sum(tensor.size > 0 for tensor in tensors)
    fits: dict[str, _Fit] = {}
    named = []
    for model in models:
        # The workers may exchange the model in fragments, each of which has tables of its own.
        for fragments in range(1, max(2, min(filled, len(shown)) + 1)):
            parts = [entry for part in tables_of(model, tensors, fragments) for entry in part]
            names = {name for name, _ in parts}
            tables = [item for item in shown.items() if item[1].name in names]
            # Models of one class have tables of the same names, one model after the other.
            for first in range(0, len(tables), max(len(parts), 1)):
                places = zip(tables[first : first + len(parts)], parts, strict=False)
                fit = [(key, table, part) for (key, table), (_, part) in places]
                sizes = [(sum(tensor.size for tensor in part),) for _, part in parts]
                if [table.shape for _, table, _ in fit] == sizes and fit[0][0] not in fits:
                    fits[fit[0][0]] = fit
                    if wanted in (model, fit[0][0]):
                        named.append(fit[0][0])
    return fits, named


def _difference(tensors: Sequence[Tensor], shown: dict[str, Any]) -> str:
    """Return what the models of a session have, and what no one of them fits."""
    models: dict[str, dict[str, int]] = {}  # the number of tensors in each table of a model
    sizes: dict[str, int] = {}
    for table in shown.values():
        if match := _OF_MODEL.fullmatch(table.name):
            models.setdefault(match["name"], {})[table.name] = int(match["count"] or 1)
            sizes[match["name"]] = sizes.get(match["name"], 0) + table.shape[0]
    listed = ", ".join(
        f"{name!r} of {sum(counts.values())} tensors with {sizes[name]} elements"
        for name, counts in models.items()
    )
    return (
        f"module: expected the shapes and dtypes of a model of the session, {listed or 'of none'}, "
        f"received {len(tensors)} tensors with {sum(tensor.size for tensor in tensors)} elements"
    )
