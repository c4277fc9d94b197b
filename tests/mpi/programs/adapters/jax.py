"""A pytree of JAX, synchronized by PytreeSync, for adapter_suite.py.

With MULTIVERSO_TEST_DEVICE its arrays are on a GPU, which is JAX's default device then.
"""

import os
import pickle

import multiverso as mv

if os.environ.get("MULTIVERSO_TEST_DEVICE", "cpu") != "cpu":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # The ranks share the GPU.
    mv.assign_device()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from adapters.base import ManagedModel  # noqa: E402

from multiverso.jax_ext import Embedding, PytreeSync, lookup  # noqa: E402


class Model(ManagedModel):
    DTYPES = ("float32", "float64", "float16", "bfloat16")
    RESUMES = False  # The arrays of a program have not changed; tests/unit/adapters/test_jax.py.

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
    assert all(leaf.devices() == {jax.devices()[0]} for leaf in leaves)
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


def train_rows(table, batches):
    embedding = Embedding(table)
    gradient = jax.jit(jax.grad(lambda rows, ids: lookup(rows, ids).sum()))
    for ids in batches:
        gradient(embedding, jnp.array(ids))
        embedding.step()
