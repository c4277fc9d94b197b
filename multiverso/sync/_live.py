"""Loads the tensors of a model from the tables of a session that another process reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multiverso.sync._layout import groups_of, shortened, tables_of, with_layout
from multiverso.sync._tensor import Tensor

if TYPE_CHECKING:
    from multiverso.tables import View


def load_live(name: str, tensors: Sequence[Tensor], view: View) -> int | None:
    """Set tensors to the values that a session has for the same tensors; return their step.

    The session's workers gave them `name`, and they have the same number, shapes and dtypes there.
    The step is None if the session has published nothing, so that the values are the current ones.
    """
    filled = sum(tensor.size > 0 for tensor in tensors)
    # The workers may exchange the model in fragments, each of which has tables of its own.
    for fragments in range(1, max(2, min(filled, len(view.tables)) + 1)):
        wanted = [table for part in tables_of(name, tensors, fragments) for table in part]
        names = {table_name for table_name, _ in wanted}
        tables = [(key, table) for key, table in view.tables.items() if table.name in names]
        expected = [(sum(tensor.size for tensor in part),) for _, part in wanted]
        if [table.shape for _, table in tables] == expected:
            parts = [part for _, part in wanted]
            break
    else:
        wanted_name = with_layout(shortened(name), tensors)
        given = ", ".join(f"'{table.name}'" for table in view.tables.values())
        msg = (
            f"expected a session that trains '{wanted_name}', received one with "
            f"{given or 'no tables'}: the model must have the same class and the same tensors as "
            "that of the workers"
        )
        raise ValueError(msg)
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
