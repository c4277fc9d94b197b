"""Rows of a table in functions of JAX, with one worker."""

import os
import unittest

import numpy as np
import pytest
from programs import run_program
from requirements import is_installed, needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

if is_installed("jax"):
    import jax
    import jax.numpy as jnp

    from multiverso.jax_ext import Embedding, lookup

ROWS, COLUMNS = 40, 4
START = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")


def table_of(**options):
    options = {"updater": "sgd", "learning_rate": 1.0, **options}
    return mv.MatrixTableHandler(ROWS, COLUMNS, START, **options)


@needs("jax")
class TestLookup(SessionTestCase):
    def check_gradients(self, transform):
        embedding = Embedding(table_of())
        params = {"rows": embedding, "w": jnp.arange(1.0, COLUMNS + 1)}

        def loss(params, ids):
            return jnp.tanh(lookup(params["rows"], ids) @ params["w"]).sum()

        def reference(params, ids):
            return jnp.tanh(jnp.take(params["rows"], ids, axis=0) @ params["w"]).sum()

        expected = {"rows": jnp.asarray(START), "w": params["w"]}
        many = np.random.default_rng(0).integers(0, ROWS, 60_000)
        for ids in (np.array([[1, 2], [2, 7]]), jnp.array([[3, 3], [3, 0]]), many[:0], many):
            gradients = transform(jax.grad(loss))(params, ids)
            expected_gradients = jax.grad(reference)(expected, ids)
            tolerances = {"rtol": 1e-3, "atol": 2e-3} if ids is many else {"atol": 1e-5}
            np.testing.assert_allclose(gradients["w"], expected_gradients["w"], **tolerances)
            self.assertEqual([float(x) for x in jax.tree.leaves(gradients["rows"])], [0.0])
            self.assertTrue(embedding.step())
            expected["rows"] -= expected_gradients["rows"]
            np.testing.assert_allclose(embedding.table.get(), expected["rows"], **tolerances)

    def test_gradients_are_those_of_take(self):
        with jax.default_matmul_precision("highest"):
            self.check_gradients(lambda function: function)
            self.check_gradients(jax.jit)

    def test_ids_that_are_no_integers_are_type_errors(self):
        wrong = [np.array([1.0]), [1, 2.5], 3.0, [True, 2], np.array([[False]]), True, "1", [None]]
        wrong += [jnp.array(values) for values in ([1.9], [jnp.nan], 2.0, [True], [[1j]])]
        wrong += [[jnp.int32(1), True], jnp.array([1], jnp.bfloat16), np.array(["2"]), [[1], [2.0]]]
        table = table_of()
        keys = mv.HashTableHandler(COLUMNS, 100, updater="sgd")
        for place in (table, Embedding(table), keys, Embedding(keys)):
            for ids in wrong:
                with self.subTest(ids=ids), self.assertRaisesRegex(TypeError, "ids.*expected"):
                    lookup(place, ids)
            for values in (jnp.array([0.0, jnp.nan]), jnp.array([True, False])):
                for transform in (jax.jit, jax.vmap):
                    with self.assertRaisesRegex(TypeError, "ids: expected integers"):
                        transform(lambda ids, place=place: lookup(place, ids))(values)
        self.assertEqual(len(keys), 0)
        for ids in ([], (), [[]], [jnp.int32(2)], np.uint8(2), np.array([2], ">i4"), range(2, 3)):
            expected = START[np.asarray(ids, "int64")]
            np.testing.assert_array_equal(lookup(table, ids), expected)
        with self.assertRaisesRegex(ValueError, "jax_enable_x64"):
            lookup(keys, [np.int64(2**40)])
        with self.assertRaisesRegex(IndexError, r"ids\[1\]: expected an int64"):
            lookup(keys, [1, 2**63])

    def test_batches_of_functions_are_those_of_ids(self):
        ids = jnp.arange(12).reshape(4, 3)
        embedding = Embedding(table_of())

        def total(rows, ids):
            return (lookup(rows, ids) ** 2).sum()

        np.testing.assert_array_equal(
            jax.vmap(lambda ids: lookup(embedding, ids))(ids), START[:12].reshape(4, 3, COLUMNS)
        )
        changed = START.copy()
        changed[:12] -= 2 * START[:12]
        for of_batch in (
            jax.grad(lambda rows: jax.vmap(total, (None, 0))(rows, ids).sum()),
            lambda rows: jax.vmap(jax.grad(total), (None, 0))(rows, ids),
            jax.grad(lambda rows: jax.lax.map(lambda ids: total(rows, ids), ids).sum()),
        ):
            embedding = Embedding(table_of())
            jax.jit(of_batch)(embedding)
            embedding.step()
            np.testing.assert_allclose(embedding.table.get(), changed, atol=1e-5)

    def test_the_leaf_shows_gradients_that_are_not_finite(self):
        gradient = jax.grad(lambda rows, factor: (lookup(rows, [1]) * factor).sum())
        for factor in (jnp.inf, jnp.nan):
            (leaf,) = jax.tree.leaves(gradient(Embedding(table_of()), factor))
            self.assertTrue(np.isnan(leaf))

    @unittest.skipUnless(hasattr(os, "sched_setaffinity"), "needs a limit on the cores")
    def test_large_arguments_of_host_calls_need_one_core_only(self):
        # JAX creates as many threads as the process may use cores. A function whose arguments are
        # still being copied, such as `factors`, is executed by one of them.
        code = """
            import os
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            import jax, numpy as np
            import multiverso as mv
            from multiverso.jax_ext import Embedding, lookup
            with mv.session():
                table = mv.MatrixTableHandler(50, 64, updater="sgd", learning_rate=1.0)
                embedding = Embedding(table)
                def total(rows, ids, factors):
                    return (lookup(rows, ids) * factors).sum()
                gradient = jax.jit(jax.grad(total))
                ids = np.arange(30_001) % 50
                for _ in range(4):
                    gradient(embedding, ids, np.ones((len(ids), 64), np.float32))
                    embedding.step()
                expected = -4.0 * np.bincount(ids)
                assert (table.get() == expected[:, None]).all(), table.get()
            print("done", flush=True)
            os._exit(0)
            """
        code, output, errors = run_program(code, timeout=300)
        self.assertEqual((code, output.strip()), (0, "done"), errors)

    def test_updates_of_the_pytree_keep_the_table(self):
        params = {"rows": Embedding(table_of())}
        updated = jax.tree.map(lambda leaf: leaf - 0.1 * leaf, params)
        self.assertIs(updated["rows"].table, params["rows"].table)
        self.assertIn("MatrixTable", repr(updated["rows"]))
