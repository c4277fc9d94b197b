"""A pytree of JAX, synchronized by PytreeSync, for adapter_suite.py."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
from adapters.base import ManagedModel

from multiverso.jax_ext import PytreeSync


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16")

    def __init__(self, shapes, dtype, value):
        jax.config.update("jax_enable_x64", dtype == "float64")
        leaves = [jnp.full(shape, value, dtype) for shape in shapes]
        self.params = {"first": leaves[:1], "others": tuple(leaves[1:])}

    def attach(self, **options):
        self.manager = PytreeSync(self.params, **{"average": False} | options)
        self.params = self.manager.params

    def values(self):
        return values_of(self.params)

    def add(self, delta):
        self.params = jax.tree.map(lambda leaf: leaf + jnp.asarray(delta, leaf.dtype), self.params)

    def sync(self):
        self.params = self.manager.sync(self.params)

    def wait(self):
        self.params = self.manager.wait(self.params)

    def saved_and_loaded(self, folder):
        return values_of(pickle.loads(pickle.dumps(self.params)))  # safe: its own bytes


def values_of(params):
    leaves = jax.tree.leaves(params)
    return np.concatenate([np.asarray(leaf).astype(np.float64).ravel() for leaf in leaves])


def descend(inputs, steps, rate, average):
    sync = PytreeSync({"w": jnp.ones(2)}, average=average)
    params = sync.params

    @jax.jit
    def step(params):
        gradients = jax.grad(lambda params: (params["w"] * inputs).sum())(params)
        return jax.tree.map(lambda weight, gradient: weight - rate * gradient, params, gradients)

    for _ in range(steps):
        params = sync.sync(step(params))
    return params["w"]
