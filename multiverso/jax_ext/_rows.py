"""Rows of a table in functions that JAX differentiates and compiles."""

import functools
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from multiverso._native.ids import ids_of_any_shape
from multiverso.sync._row_gradients import RowGradients, RowReader

#: JAX copies arguments of host calls from 100 KB on in threads of its pool, and the call waits for
#: the copy. On one core the pool has one thread, which executes the compiled function that waits.
_LARGEST_ARGUMENT: Final = 96 * 1024


def as_ids(ids: Any) -> jax.Array:
    """Return ids as integers of JAX, which has 64 bits only if the program enables them."""
    leaves = jax.tree.leaves(ids)
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        # Values are unknown in a function that JAX traces, types are not.
        for leaf in leaves:
            if not jnp.issubdtype(dtype := jnp.result_type(leaf), jnp.integer):
                raise TypeError(f"ids: expected integers, received {dtype}")
        return jnp.asarray(ids)
    given = ids_of_any_shape(ids, "ids")
    converted = jnp.asarray(given)
    if given.dtype != converted.dtype and (given != np.asarray(converted)).any():
        raise ValueError(
            "ids: expected integers of 32 bits, received larger ones; call "
            "jax.config.update('jax_enable_x64', True) first"
        )
    return converted


def rows_of(
    table: RowReader, ids: jax.Array, get_rows: Callable[[Any], Any] | None = None
) -> jax.Array:
    """Return the rows of ids of any shape, by default only read, also in a compiled function."""
    get_rows = get_rows or table.peek

    @custom_vmap  # type: ignore[untyped-decorator]
    def get(ids: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(
            (*ids.shape, table.num_col), jax.dtypes.canonicalize_dtype(table.dtype)
        )

        # One get for all pieces, because in sync mode all workers' gets are equal in number.
        def rows(*pieces: Any) -> Any:
            all_ids = np.concatenate([np.asarray(piece) for piece in pieces]).reshape(ids.shape)
            return get_rows(all_ids).astype(shape.dtype, copy=False)

        flat = ids.reshape(-1)
        length = _piece_length(len(flat), flat.dtype.itemsize)
        pieces = [flat[i : i + length] for i in range(0, max(len(flat), 1), length)]
        found: jax.Array = jax.pure_callback(rows, shape, *pieces)
        return found

    # A batch of ids has one more dimension.
    get.def_vmap(lambda size, are_batched, ids: (get(ids), True))
    found: jax.Array = get(ids)
    return found


def look_up_with(gradients: RowGradients, insert: bool = True) -> Callable[[Any, Any], Any]:
    """Return look_up(connection, ids), whose rows' gradients are collected; `insert` adds keys."""

    def collect(ids: Any, row_gradients: Any) -> None:
        # JAX may use the memory again after the call.
        gradients.collect(np.array(ids), np.array(row_gradients))

    def collect_piece(carry: None, piece: Any) -> tuple[None, None]:
        io_callback(collect, None, *piece)
        return None, None

    @custom_vmap  # type: ignore[untyped-decorator]
    def send(ids: jax.Array, row_gradients: jax.Array) -> jax.Array:
        ids = ids.reshape(-1)
        row_gradients = row_gradients.reshape(-1, gradients.num_col)
        # The id is the larger one of the two if the rows have one column.
        row_size = gradients.num_col * row_gradients.dtype.itemsize
        length = _piece_length(len(ids), max(row_size, ids.dtype.itemsize))
        whole = len(ids) // length * length
        if whole:
            pieces = tuple(
                array[:whole].reshape(-1, length, *array.shape[1:])
                for array in (ids, row_gradients)
            )
            jax.lax.scan(collect_piece, None, pieces)
        if whole < len(ids):
            collect_piece(None, (ids[whole:], row_gradients[whole:]))
        # A scaler of the loss sees only this number.
        return jnp.where(jnp.isfinite(row_gradients).all(), 0.0, jnp.nan)

    def send_batch(size: int, are_batched: list[bool], *arrays: jax.Array) -> tuple[Any, bool]:
        ids, row_gradients = (
            array if is_batched else jnp.broadcast_to(array, (size, *array.shape))
            for array, is_batched in zip(arrays, are_batched, strict=True)
        )
        return jnp.broadcast_to(send(ids, row_gradients), (size,)), True

    send.def_vmap(send_batch)

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def look_up(connection: jax.Array, ids: jax.Array) -> jax.Array:
        return rows_of(gradients, ids)

    def forward(connection: jax.Array, ids: jax.Array) -> tuple[jax.Array, Any]:
        gradients.require_training()  # Errors of the calls of the host are wrapped.
        get_rows = functools.partial(gradients.rows_of, insert=insert)
        return rows_of(gradients, ids, get_rows), (ids, connection)

    def backward(kept: Any, row_gradients: jax.Array) -> tuple[jax.Array, None]:
        ids, connection = kept
        return send(ids, row_gradients).astype(connection.dtype), None

    look_up.defvjp(forward, backward)
    return look_up  # type: ignore[no-any-return]


def _piece_length(count: int, size: int) -> int:
    """Return how many of `count` elements of `size` bytes are an argument of a host call."""
    # With another device, the threads that copy do not execute the compiled function.
    if jax.default_backend() != "cpu":
        return max(count, 1)
    return max(_LARGEST_ARGUMENT // size, 1)


def wait_for_gradients() -> None:
    """Wait until the compiled functions that have been called have collected their gradients."""
    jax.effects_barrier()
