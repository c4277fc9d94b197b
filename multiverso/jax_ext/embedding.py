"""Rows of a table of Multiverso in functions that JAX differentiates and compiles."""

from typing import Any

import jax
import jax.numpy as jnp

from multiverso.jax_ext._rows import as_ids, look_up_with, rows_of, wait_for_gradients
from multiverso.sync._row_gradients import RowGradients, RowLayer, RowReader, RowTable

__all__ = ["Embedding", "lookup"]


class _Shared:
    """What all copies of an Embedding have in common; equal only to itself."""

    def __init__(self, table: Any) -> None:
        self.gradients = RowGradients(table)
        self.look_up = look_up_with(self.gradients)


@jax.tree_util.register_pytree_node_class
class Embedding(RowLayer):
    """A table as a part of a pytree of parameters.

    JAX computes gradients of parameters only, so the pytree has one leaf, a scalar zero, on which
    `lookup` appears to depend. Its gradient is zero, or NaN if a gradient of a row is not finite,
    which scalers of the loss look for. The gradients of the rows are collected, and `step` sends
    them; the table's updater is the optimizer of the rows.

    Parameters
    ----------
    table : MatrixTable or HashTable
        A table of floating-point numbers whose updater takes gradients, or one of the ``tables`` of
        `multiverso.attach` or `multiverso.follow`, whose rows are read and not trained.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import multiverso as mv
    >>> from multiverso.jax_ext import Embedding, lookup
    >>> with mv.session():
    ...     table = mv.MatrixTable(1000, 2, updater="sgd", learning_rate=0.5)
    ...     embedding = Embedding(table)
    ...     loss = lambda embedding, ids: lookup(embedding, ids).sum()
    ...     gradients = jax.jit(jax.grad(loss))(embedding, jnp.array([1, 7, 7]))
    ...     embedding.step()
    ...     table.get([1, 2, 7])
    True
    array([[-0.5, -0.5],
           [ 0. ,  0. ],
           [-1. , -1. ]], dtype=float32)

    """

    def __init__(self, table: RowTable) -> None:
        self._shared = _Shared(table)
        self._connection: Any = jnp.zeros(())

    @property
    def _gradients(self) -> RowGradients:  # type: ignore[override]
        return self._shared.gradients

    def _settle(self, scale: float = 1.0) -> float:
        wait_for_gradients()
        return scale

    def tree_flatten(self) -> tuple[tuple[Any], _Shared]:
        """Return the leaf and what does not change, for JAX."""
        return (self._connection,), self._shared

    @classmethod
    def tree_unflatten(cls, shared: _Shared, leaves: Any) -> "Embedding":
        """Return a copy with another leaf, for JAX."""
        embedding = cls.__new__(cls)
        embedding._shared = shared
        (embedding._connection,) = leaves
        return embedding

    def __repr__(self) -> str:
        """Return the table."""
        return f"Embedding({self.table!r})"


def lookup(table: Embedding | RowTable, ids: Any) -> jax.Array:
    """Return the rows of `ids`, in functions that JAX compiles too.

    Parameters
    ----------
    table : Embedding, MatrixTable or HashTable
        Gradients of an `Embedding` are collected. A table itself, also of a view, is only read.
    ids : array of int of any shape
        The row ids.

    Returns
    -------
    jax.Array
        Shape (*ids.shape, num_col).

    Raises
    ------
    TypeError, ValueError
        If an id is no integer, or needs more than 32 bits and JAX has not been told to use 64.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import multiverso as mv
    >>> from multiverso.jax_ext import lookup
    >>> with mv.session():
    ...     table = mv.MatrixTable(1000, 2, 1)
    ...     lookup(table, jnp.array([[1, 7]])).shape
    (1, 2, 2)

    """
    ids = as_ids(ids)
    if isinstance(table, Embedding):
        rows: jax.Array = table._shared.look_up(table._connection, ids)
        return rows
    return rows_of(RowReader(table), ids)
