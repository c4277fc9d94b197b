"""Rows of a table in functions that JAX differentiates and compiles."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from multiverso.sync import _row_gradients
from multiverso.sync._row_gradients import RowGradients
from multiverso.tables import MatrixTableHandler


def rows_of(table: MatrixTableHandler, ids: Any) -> jax.Array:
    """Return the rows of ids of any shape, also inside a compiled function."""
    ids = jnp.asarray(ids)
    shape = jax.ShapeDtypeStruct(
        (*ids.shape, table.num_col), jax.dtypes.canonicalize_dtype(table.value_dtype)
    )

    def rows(ids: Any) -> Any:
        return _row_gradients.rows_of(table, np.asarray(ids)).astype(shape.dtype, copy=False)

    found: jax.Array = jax.pure_callback(rows, shape, ids)
    return found


def look_up_with(gradients: RowGradients) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids): rows, whose gradients `gradients` collects."""

    def collect(ids: Any, row_gradients: Any) -> None:
        # JAX may use the memory again after the call.
        gradients.collect(np.array(ids), np.array(row_gradients))

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def look_up(connection: jax.Array, ids: jax.Array) -> jax.Array:
        return rows_of(gradients.table, ids)

    def forward(connection: jax.Array, ids: jax.Array) -> tuple[jax.Array, Any]:
        return rows_of(gradients.table, ids), (ids, connection)

    def backward(kept: Any, row_gradients: jax.Array) -> tuple[jax.Array, None]:
        ids, connection = kept
        io_callback(collect, None, ids, row_gradients)
        return jnp.zeros_like(connection), None

    look_up.defvjp(forward, backward)
    return look_up  # type: ignore[no-any-return]


def wait_for_gradients() -> None:
    """Wait until the compiled functions that have been called have collected their gradients."""
    jax.effects_barrier()
