"""Loads the tensors of a model from the tables of a session that another process reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from multiverso._native.arguments import text
from multiverso.sync._layout import groups_of, tables_of
from multiverso.sync._tensor import Tensor

if TYPE_CHECKING:
    from multiverso.publishing import FollowedView
    from multiverso.tables import View

#: What `tables_of` calls the tables of a model.
_OF_MODEL: Final = re.compile(
    r"(?P<name>.*?)( \d+)?(, shape \(.*\)| \((?P<count>\d+) tensors, layout [0-9a-f]{8}\))"
)


class _Fit(NamedTuple):
    """Tables of a view that have room for the tensors, by name, and the tensors of each."""

    tables: list[tuple[str, Any]]  # with their names in the view
    parts: list[list[Tensor]]
    fragments: int


def load_live(
    class_name: str, name: str | None, tensors: Sequence[Tensor], view: View | FollowedView
) -> int | None:
    """Set tensors to the values that a session has for tensors of the same layout.

    If several models of the session have it, that of `name` is meant, or by default the one whose
    workers gave it `class_name`. Return the step of the values, which is None if the session has
    published nothing, so that they are the current ones.
    """
    tables, parts, _ = _fit_of(class_name, name, tensors, view)
    step = None
    values: list[Any]  # No table has keys.
    if all(table.is_published for _, table in tables):
        cut = view.cut([key for key, _ in tables])
        step, values = cut.step, list(cut.values())
    else:
        values = [table.get() for _, table in tables]
    groups = groups_of(list(tensors))
    for group in groups:
        group.load()
    for part, array in zip(parts, values, strict=True):
        first = 0
        for tensor in part:
            tensor.assign(array[first : first + tensor.size])
            first += tensor.size
    for group in groups:
        group.scatter()
    return step


def _fit_of(
    class_name: str, name: str | None, tensors: Sequence[Tensor], view: View | FollowedView
) -> _Fit:
    """Return the tables to load, or raise ValueError."""
    shown = view.tables
    fits = _fits(tensors, shown)
    wanted = class_name if name is None else text(name, "name")
    named = [
        fit
        for fit in fits
        if fit.tables[0][0] == wanted
        or fit.tables[0][1].name == tables_of(wanted, tensors, fit.fragments)[0][0][0]
    ]
    chosen = named or ([] if name is not None else fits)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(f"'{fit.tables[0][0]}'" for fit in chosen)
        msg = f"name: expected which of {names} to load, since all fit the model, received {name!r}"
    elif fits:
        names = ", ".join(f"'{fit.tables[0][0]}'" for fit in fits)
        msg = f"name: expected a model that fits, {names}, received {name!r}"
    else:
        msg = _difference(wanted, name, tensors, shown)
    raise ValueError(msg)


def _fits(tensors: Sequence[Tensor], shown: dict[str, Any]) -> list[_Fit]:
    """Return all tables that have the layout of the tensors, whatever their model is called."""
    filled = sum(tensor.size > 0 for tensor in tensors)
    found = []
    # The workers may exchange the model in fragments, each of which has tables of its own.
    for fragments in range(1, max(2, min(filled, len(shown)) + 1)):
        wanted = tables_of("", tensors, fragments)
        parts = [held for fragment in wanted for _, held in fragment]
        pieces = [_pieces(fragment, shown) for fragment in wanted]
        for model in pieces[0]:
            # Models of one class have tables of the same names, one after the other.
            for fit in zip(*(piece.get(model, ()) for piece in pieces), strict=False):
                found.append(_Fit([item for piece in fit for item in piece], parts, fragments))
    return found


def _pieces(
    fragment: list[tuple[str, list[Tensor]]], shown: dict[str, Any]
) -> dict[str, list[list[tuple[str, Any]]]]:
    """Return, by model, the tables that have room for a fragment of the tensors."""
    ending = fragment[0][0]
    sizes = [(sum(tensor.size for tensor in held),) for _, held in fragment]
    models: dict[str, list[list[tuple[str, Any]]]] = {}
    for key, table in shown.items():
        match = _OF_MODEL.fullmatch(table.name)
        if match and table.name == match["name"] + ending:
            # Of a long name, a large index of a fragment leaves less before its checksum.
            model = match["name"].rpartition("~")[2]
            pieces = models.setdefault(model, [[]])
            if len(pieces[-1]) == len(sizes):
                pieces.append([])
            pieces[-1].append((key, table))
    return {
        model: fits
        for model, pieces in models.items()
        if (fits := [p for p in pieces if [table.shape for _, table in p] == sizes])
    }


def _difference(
    wanted: str, name: str | None, tensors: Sequence[Tensor], shown: dict[str, Any]
) -> str:
    """Return in which way a model that has no fit differs from those of the session."""
    models: dict[str, tuple[int, int]] = {}  # the tensors and the elements of each
    counted = set()
    for table in shown.values():
        if match := _OF_MODEL.fullmatch(table.name):
            count, size = models.get(match["name"], (0, 0))
            # A model with several dtypes has several tables of one name.
            count += 0 if table.name in counted else int(match["count"] or 1)
            models[match["name"]] = count, size + table.shape[0]
            counted.add(table.name)
    names = ", ".join(f"'{each}'" for each in models or shown) or "no tables"
    if not models:
        return f"view: expected a session that synchronizes a model, received one with {names}"
    if name is not None and name not in models:
        return f"name: expected a model of the session, {names}, received {name!r}"
    model = wanted if wanted in models else next(iter(models))
    if model != wanted and len(models) > 1:
        return f"module: expected the tensors of one of the workers' models, {names}; none has them"
    count, size = models[model]
    mine = len(tensors), sum(tensor.size for tensor in tensors)
    if mine[0] != count:
        expected = f"{count} tensors", f"{mine[0]}; pass such a module, or their sync_buffers="
    elif mine[1] != size:
        expected = f"{size} elements in {count} tensors", f"{mine[1]}"
    else:
        expected = f"the shapes and dtypes of its {count} tensors in their order", "others"
    return (
        f"module: expected what '{model}' of the workers has, {expected[0]}, received {expected[1]}"
    )
