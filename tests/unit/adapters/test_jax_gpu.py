"""The JAX adapter with arrays on a GPU, against the same programs on the CPU and NumPy."""

import os

import numpy as np
import pytest
from programs import run_program
from requirements import is_installed, needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if is_installed("jax"):
    # Other processes use the GPU too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    from multiverso.jax_ext import Embedding, PytreeSync, lookup

ROWS, COLUMNS = 40, 4
START = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")

#: Ends with an address that is not of the CPU, if the default device decides where copies are.
DEFAULT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
import multiverso as mv
from multiverso.jax_ext import PytreeSync

near, far = jax.devices("cpu")[0], jax.devices()[-1]
with mv.session():
    for inner, outer in ((near, far), (far, near), (near, None), (far, None)):
        with jax.default_device(inner):
            sync = PytreeSync({"w": jnp.zeros(300)}, average=False)
            params = sync.sync({"w": sync.params["w"] + 1})
        with jax.default_device(outer):
            for turn in (2, 3):
                sync.tables[0].add(np.ones(300))
                params = sync.sync(params)
                assert (np.asarray(params["w"]) == turn).all(), (turn, inner, outer, params)
                assert params["w"].devices() == {inner}, (inner, outer, params["w"].devices())
print("done")
"""


def plus_one(params):
    return jax.tree.map(lambda leaf: leaf + 1, params)


@needs("jax")
class TestDefaultDevice(SessionTestCase):
    def test_programs_may_change_the_default_device(self):
        # In a program of its own, which may have several devices without a GPU too.
        flags = "--xla_force_host_platform_device_count=2"
        code, output, errors = run_program(
            DEFAULT_DEVICES, XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false"
        )
        self.assertEqual((code, output), (0, "done\n"), errors)


@needs("jax")
class GpuTestCase(SessionTestCase):
    def setUp(self):
        if jax.default_backend() != "gpu":
            self.skipTest("needs JAX with a GPU")
        super().setUp()

    def require_gpu(self, params):
        for leaf in jax.tree.leaves(params):
            self.assertEqual({device.platform for device in leaf.devices()}, {GPU})


GPU = "gpu"

#: The rows of a matrix whose products take long.
SIZE = 2048


class TestPytreeSync(GpuTestCase):
    def test_keeps_dtypes_and_devices(self):
        names = ("float32", "float16", "bfloat16", "int32")
        params = {name: jnp.ones((3, 2), name) for name in names}
        params |= {"scalar": jnp.ones(()), "empty": jnp.zeros((0, 3))}
        for options in ({}, {"overlap": True}):
            sync = PytreeSync(params, **options)
            current = sync.params
            for _ in range(3):
                for table in sync.tables:
                    table.add(np.full(table.size, 2, table.dtype))
                current = sync.sync(plus_one(current))
                self.require_gpu(current)
            current = sync.wait(current) if options else current
            current = sync.sync_all(current)
            current = sync.wait(current) if options else current
            for name in names:
                self.assertEqual(current[name].dtype.name, name)
                np.testing.assert_array_equal(np.asarray(current[name], np.float32), 10)
            self.assertEqual(float(current["scalar"]), 10)
            self.require_gpu(current)

    def test_trains_as_on_the_cpu(self):
        results = []
        for device in (jax.devices("cpu")[0], jax.devices()[0]):
            for options in ({}, {"average": True}, {"overlap": True}):
                with jax.default_device(device):
                    params = {"w": jnp.linspace(-1, 1, 12).reshape(4, 3), "b": jnp.zeros(3)}
                    x = jnp.linspace(0, 2, 20).reshape(5, 4)

                    @jax.jit
                    def step(params, x=x):
                        def loss(params):
                            return jnp.tanh(x @ params["w"] + params["b"]).sum()

                        gradients = jax.grad(loss)(params)
                        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

                    sync = PytreeSync(params, **options)
                    params = sync.params
                    for _ in range(5):
                        params = sync.sync(step(params))
                    if options.get("overlap"):
                        params = sync.wait(params)
                    results.append(jax.tree.map(np.asarray, params))
        for on_cpu, on_gpu in zip(results[:3], results[3:], strict=True):
            for name, expected in on_cpu.items():
                np.testing.assert_allclose(on_gpu[name], expected, rtol=1e-4, atol=1e-5)

    def test_steps_may_donate_and_are_compiled_once(self):
        step = jax.jit(lambda params: jax.tree.map(lambda leaf: leaf * 2, params), donate_argnums=0)
        sync = PytreeSync({"w": jnp.ones((64, 32)), "b": jnp.ones(3)})
        params = sync.params
        for _ in range(4):
            params = sync.sync(step(params))
        self.assertEqual(float(params["w"][3, 3]), 16)
        self.assertEqual(float(sync.tables[0].get()[0]), 16)
        self.assertEqual(step._cache_size(), 1)
        self.assertFalse(params["w"].committed)

    def test_kept_arrays_do_not_change(self):
        sync = PytreeSync({"w": jnp.ones((64, 16)), "h": jnp.ones(64, jnp.bfloat16)})
        kept, params = [], sync.params
        for turn in range(20):
            kept.append((1 + turn, params))
            params = sync.sync(plus_one(params))
        for value, tree in kept:
            for leaf in jax.tree.leaves(tree):
                np.testing.assert_array_equal(np.asarray(leaf, np.float32), value)

    def test_syncs_results_that_are_still_computed(self):
        @jax.jit
        def slow(params):
            product = jax.lax.fori_loop(0, 30, lambda i, x: x @ x * 1e-3, jnp.ones((SIZE, SIZE)))
            return {"w": params["w"] + 1 + 0 * jnp.nan_to_num(product[0, 0])}

        sync = PytreeSync({"w": jnp.zeros(1000)})
        params = sync.params
        for turn in range(1, 4):
            params = sync.sync(slow(params))
            np.testing.assert_array_equal(sync.tables[0].get(), turn)

    def test_syncs_leaves_of_both_devices(self):
        near = jax.device_put(jnp.ones(5), jax.devices("cpu")[0])
        sync = PytreeSync({"cpu": near, "gpu": jnp.ones(5)})
        params = sync.params
        for turn in (2, 3):
            params = sync.sync(plus_one(params))
            self.assertEqual(params["cpu"].devices(), near.devices())
            self.require_gpu(params["gpu"])
            np.testing.assert_array_equal(sync.tables[0].get(), turn)


class TestEmbedding(GpuTestCase):
    def table(self, **options):
        return mv.MatrixTableHandler(ROWS, COLUMNS, START, updater="sgd", learning_rate=1.0)

    def check(self, transform):
        embedding = Embedding(self.table())
        params = {"rows": embedding, "w": jnp.arange(1.0, COLUMNS + 1)}

        def loss(params, ids):
            return jnp.tanh(lookup(params["rows"], ids) @ params["w"]).sum()

        def reference(params, ids):
            return jnp.tanh(jnp.take(params["rows"], ids, axis=0) @ params["w"]).sum()

        expected = {"rows": jnp.asarray(START), "w": params["w"]}
        many = np.random.default_rng(0).integers(0, ROWS, 60_000)
        for ids in (np.array([[1, 2], [2, 7]]), jnp.array([[3, 3], [3, 0]]), many, many[:0]):
            gradients = transform(jax.grad(loss))(params, ids)
            wanted = jax.grad(reference)(expected, ids)
            np.testing.assert_allclose(gradients["w"], wanted["w"], rtol=1e-3, atol=1e-3)
            self.assertTrue(embedding.step())
            expected["rows"] -= wanted["rows"]
            np.testing.assert_allclose(
                embedding.table.get(), expected["rows"], rtol=1e-3, atol=2e-3
            )

    def test_gradients_are_those_of_take(self):
        with jax.default_matmul_precision("highest"):
            self.check(lambda function: function)
            self.check(jax.jit)

    def test_looks_up_in_compiled_and_batched_functions(self):
        table = self.table()
        ids = jnp.array([[1, 2], [5, 5]])
        for function in (lookup, jax.jit(lookup, static_argnums=0)):
            np.testing.assert_array_equal(function(table, ids), START[np.asarray(ids)])
        batched = jax.jit(jax.vmap(lambda ids: lookup(table, ids)))(ids)
        np.testing.assert_array_equal(batched, START[np.asarray(ids)])
        self.require_gpu(batched)

    def test_steps_with_embeddings_sync(self):
        embedding = Embedding(self.table())
        sync = PytreeSync({"rows": embedding, "w": jnp.ones(COLUMNS, jnp.bfloat16)})

        @jax.jit
        def step(params, ids):
            def loss(params):
                return (lookup(params["rows"], ids) * params["w"].astype("float32")).sum()

            gradients = jax.grad(loss)(params)
            return jax.tree.map(lambda p, g: p - g.astype(p.dtype), params, gradients)

        params = sync.params
        for _ in range(3):
            params = sync.sync(step(params, jnp.array([1, 1, 2])))
            embedding.step()
        self.assertEqual(params["w"].dtype, jnp.bfloat16)
        self.assertFalse(np.array_equal(embedding.table.get([1]), START[[1]]))
        np.testing.assert_array_equal(embedding.table.get([3]), START[[3]])


class TestTables(GpuTestCase):
    def test_tables_take_arrays_and_write_to_none(self):
        table, rows = mv.ArrayTableHandler(4), mv.MatrixTableHandler(ROWS, COLUMNS)
        table.add(jnp.arange(4.0))
        table.add_async(jnp.arange(4.0)).result()
        np.testing.assert_array_equal(table.get(), 2 * np.arange(4))
        rows.add(jnp.ones((2, COLUMNS)), jnp.array([1, 2]))
        np.testing.assert_array_equal(rows.get(jnp.array([2, 3])), [[1] * COLUMNS, [0] * COLUMNS])
        out = jnp.zeros(4)
        for call in (lambda: table.get(out=out), lambda: mv.sync.ParamSync([out])):
            with self.assertRaises((TypeError, ValueError)):
                call()
        np.testing.assert_array_equal(out, 0)

    @needs("cupy")
    def test_tables_refuse_arrays_of_cupy(self):
        import cupy

        table, array = mv.ArrayTableHandler(4), cupy.ones(4, "float32")
        for call in (
            lambda: table.add(array),
            lambda: table.get(out=array),
            lambda: mv.ArrayTableHandler(4, array),
            lambda: mv.sync.ParamSync([array]),
            lambda: mv.MatrixTableHandler(ROWS, COLUMNS).get(cupy.arange(2)),
        ):
            with self.assertRaisesRegex(TypeError, "expected"):
                call()
        np.testing.assert_array_equal(table.get(), 0)
