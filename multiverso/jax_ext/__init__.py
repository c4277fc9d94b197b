"""Multiverso for programs written with JAX.

    from multiverso.jax_ext import PytreeSync

    with mv.session():
        sync = PytreeSync(params)
        params = sync.params  # the master's
        for batch in batches:  # this worker's part of them
            params, state = step(params, state, batch)
            params = sync.sync(params)

Parameters are pytrees, such as those that Flax creates and Optax updates. `Embedding` makes a table
of rows a part of them, and `lookup` returns rows in differentiated and compiled functions.
"""

from multiverso._extras import needs

with needs("multiverso.jax_ext", jax="jax"):
    from multiverso.jax_ext.embedding import Embedding, lookup
    from multiverso.jax_ext.pytree import PytreeSync

__all__ = ["Embedding", "PytreeSync", "lookup"]
