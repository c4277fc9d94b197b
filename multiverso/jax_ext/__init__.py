"""Multiverso for programs written with JAX.

    from multiverso.jax_ext import PytreeSync

    with mv.session():
        sync = PytreeSync(params)
        params = sync.params  # the master's
        for batch in batches:  # this worker's part of them
            params, state = step(params, state, batch)
            params = sync.sync(params)

Parameters are pytrees, as Flax makes them and Optax updates them.
"""

from multiverso.jax_ext.pytree import PytreeSync

__all__ = ["PytreeSync"]
