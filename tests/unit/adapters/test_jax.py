"""PytreeSync of JAX with one worker."""

import gc
from unittest import mock

import numpy as np
import pytest
import sessions
from requirements import is_installed, needs

pytestmark = pytest.mark.frameworks

HAS_JAX = is_installed("jax")
if HAS_JAX:
    import jax
    import jax.numpy as jnp

    from multiverso.api import current_session
    from multiverso.jax_ext import PytreeSync, _arrays
    from multiverso.sync._tensor_sync import TensorSync


def copied(params):
    """Return copies of the values in NumPy, which no sync can change."""
    return [np.array(leaf, copy=True) for leaf in jax.tree.leaves(params)]


@needs("jax")
class JaxTestCase(sessions.SessionTestCase):
    """Skips the tests if JAX is not installed."""


def tree(value=1.0):
    return {"w": jnp.full((2, 3), value), "rest": [jnp.full(4, value), (jnp.asarray(value),)]}


def plus_one(params):
    return jax.tree.map(lambda leaf: leaf + 1, params)


def values_of(params):
    """Return all values of a tree as one vector."""
    return np.concatenate(
        [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(params)]
    )


class TestPytreeSync(JaxTestCase):
    def test_the_first_arrays_may_be_donated(self):
        given = tree()
        sync = PytreeSync(given, average=False)
        sync.tables[0].add(np.ones(11))
        params = jax.jit(plus_one, donate_argnums=0)(given)
        for leaf in jax.tree.leaves(given):
            leaf.delete()  # as donation does where the backend uses it
        self.assertEqual(set(values_of(sync.sync(params))), {3.0})

    def test_a_change_of_a_passed_array_of_numpy_is_not_seen(self):
        mine = np.ones(3, np.float32)
        sync = PytreeSync({"w": mine})
        mine += 5
        np.testing.assert_array_equal(sync.params["w"], 1)

    def test_first_delta_may_start_from_the_passed_parameters(self):
        params = tree()
        sync = PytreeSync(params)
        params = sync.sync(plus_one(params))
        self.assertEqual(set(values_of(params)), {2.0})
        self.assertEqual(set(sync.tables[0].get()), {2.0})

    def test_works_with_compiled_steps_that_donate_their_arguments(self):
        step = jax.jit(lambda params: jax.tree.map(lambda leaf: leaf * 2, params), donate_argnums=0)
        sync = PytreeSync(tree())
        params = sync.params
        for _ in range(3):
            params = sync.sync(step(params))
        self.assertEqual(set(values_of(params)), {8.0})
        self.assertEqual(step._cache_size(), 1)
        self.assertFalse(params["w"].committed)


class TestLeaving(JaxTestCase):
    def test_asks_when_all_trees_are_of_one_step(self):
        second, first = (PytreeSync(tree(), name, average=False) for name in ("second", "first"))
        asked = []
        with mock.patch.object(TensorSync, "check_leaving", lambda sync: asked.append(sync.name)):
            for _ in range(3):
                first.sync(first.params)
                second.sync_all(second.params)
            self.assertEqual(asked, ["second"] * 2)  # The first step shows which one is the last.
            for _ in range(3):
                for _ in range(5):
                    first.sync(first.params)
                second.sync(second.params)
            self.assertEqual(asked, ["second"] * 5)
            del second
            for _ in range(102):
                first.sync(first.params)
            self.assertEqual(asked, ["second"] * 5 + ["first"] * 2)

    def test_asks_after_each_sync_of_one_tree(self):
        sync = PytreeSync(tree(), average=False)
        with mock.patch.object(TensorSync, "check_leaving") as asks:
            for _ in range(3):
                sync.sync(sync.params)
        self.assertEqual(asks.call_count, 3)

    def test_sends_nothing_of_arrays_that_the_program_has(self):
        sync = PytreeSync(tree(0.0), average=False)
        step = jax.jit(plus_one, donate_argnums=0)
        params = sync.sync(plus_one(sync.params))
        params = step(params)
        current_session().departure.make_last_calls()
        self.assertEqual(set(sync.tables[0].get()), {1.0})
        self.assertEqual(set(values_of(sync.sync(params))), {2.0})


class TestMemory(JaxTestCase):
    """A sync never changes arrays that the program holds, and keeps no array alive itself."""

    def check_kept(self, kept):
        for params, values in kept:
            for leaf, value in zip(jax.tree.leaves(params), values, strict=True):
                np.testing.assert_array_equal(np.asarray(leaf), value)

    def test_arrays_kept_over_many_syncs_do_not_change(self):
        # JAX would adopt memory of these sizes without a copy.
        params = {"w": jnp.ones((64, 32)), "b": jnp.ones(16), "c": jnp.ones(())}
        params["half"] = jnp.ones(64, jnp.bfloat16)
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                sync = PytreeSync(params, overlap=overlap, average=False)
                kept = [(sync.params, copied(sync.params))]
                for _ in range(50):
                    given = plus_one(kept[-1][0])
                    kept.append((given, copied(given)))
                    sync.tables[0].add(np.ones(sync.tables[0].size))
                    got = sync.sync(given)
                    kept += [(got, copied(got)), (sync.params, copied(got))]
                self.check_kept(kept)
                self.assertEqual(len({float(synced["c"]) for synced, _ in kept[2::3]}), 50)
                kept.append((sync.wait(got), copied(sync.params)))
                del sync
                gc.collect()
                self.check_kept(kept)

    def test_views_of_returned_arrays_do_not_change(self):
        sync = PytreeSync({"w": jnp.ones((64, 16))})
        params = sync.sync(plus_one(sync.params))
        views = [np.asarray(params["w"]), np.from_dlpack(params["w"]), params["w"].reshape(-1)]
        del params
        for _ in range(5):
            sync.sync(plus_one(sync.params))
        for view in views:
            np.testing.assert_array_equal(np.asarray(view), 2)

    def test_syncs_arrays_that_are_donated_while_being_computed(self):
        def count(params):
            return jax.lax.fori_loop(0, 300, lambda _, params: plus_one(params), params)

        slow = jax.jit(count, donate_argnums=0)
        sync = PytreeSync({"w": jnp.zeros((128, 64)), "b": jnp.zeros(64)})
        params = sync.params
        for turn in range(1, 6):
            params = sync.sync(slow(params))
            later = slow(jax.tree.map(jnp.copy, params))
            self.assertEqual(set(values_of(params)), {300.0 * turn})
            sync.sync(params)
            self.assertEqual(set(values_of(later)), {300.0 * (turn + 1)})

    def test_one_array_may_be_two_leaves(self):
        sync = PytreeSync([jnp.zeros(16), jnp.zeros(16)], average=False)
        one = jnp.ones(16)
        first, second = sync.sync([one, one])
        sync.tables[0].add(np.repeat([1.0, 5.0], 16))
        np.testing.assert_array_equal(sync.sync([first, second])[0], 2)
        np.testing.assert_array_equal(sync.sync(sync.params)[1], 6)
        for array in (one, first, second):
            np.testing.assert_array_equal(array, 1)

    def test_dtypes_may_alternate_in_one_table(self):
        dtypes = ("float32", "float16", "float32", "bfloat16", "float32", "int32", "float16")
        given = [jnp.full(index + 1, index, dtype) for index, dtype in enumerate(dtypes)]
        given.append(jnp.zeros((0, 3)))
        sync = PytreeSync(given, average=False)
        params = sync.params
        for _ in range(3):
            for table in sync.tables:
                table.add(np.ones(table.size, table.dtype))
            params = sync.sync(plus_one(params))
        for index, dtype in enumerate(dtypes):
            self.assertEqual(params[index].dtype.name, dtype)
            self.assertEqual(
                params[index].devices(), {jax.devices()[0]}
            )  # a GPU, where JAX has one
            np.testing.assert_array_equal(np.asarray(params[index], np.float32), index + 6)

    def test_detects_copies_that_the_compiler_optimized_away(self):
        for shared_copies in (list, lambda arrays: [jnp.copy(arrays[0])] * len(arrays)):
            with mock.patch.object(_arrays, "_copy_all", shared_copies):
                sync = PytreeSync([jnp.zeros(16), jnp.zeros(16)], average=False)
                given = plus_one(sync.params)
                sync.tables[0].add(np.repeat([1.0, 5.0], 16))
                got = sync.sync(given)
            self.check_kept([(given, [np.ones(16)] * 2), (got, [np.full(16, 2), np.full(16, 6)])])

    def test_arrays_made_once_are_not_compiled(self):
        compiled = "multiverso.jax_ext._arrays._compiled_split"
        for dtype, times in (("float32", 0), ("float16", 1)):
            given = [jnp.ones(3, dtype), jnp.ones((), dtype)]
            with mock.patch(compiled, side_effect=_arrays._compiled_split) as split:
                sync = PytreeSync(given)
                self.assertEqual(split.call_count, 0)
                params = sync.params
                for turn in range(1, 4):
                    params = sync.sync([leaf + 1 for leaf in params])
                    np.testing.assert_array_equal(values_of(params), 1 + turn)
                self.assertEqual(split.call_count, times)
            self.assertEqual([leaf.dtype for leaf in params], [dtype, dtype])

    def test_sync_leaks_no_array(self):
        sync = PytreeSync(tree())
        params = sync.params
        counts = set()
        for _ in range(10):
            params = sync.sync(plus_one(params))
            gc.collect()
            counts.add(len(jax.live_arrays()))
        self.assertEqual(len(counts), 1, counts)

    def test_interrupted_sync_changes_no_array_and_is_resumed(self):
        sync = PytreeSync(tree())
        given = plus_one(sync.params)
        values = copied(given)
        self.interrupt(sync.sync, given)
        self.check_kept([(given, values)])
        self.assertEqual(set(values_of(sync.sync(sync.params))), {2.0})
        self.assertEqual(set(sync.tables[0].get()), {2.0})


class TestRejectedArguments(JaxTestCase):
    def test_rejects_a_changed_shape_after_compiled_steps(self):
        sync = PytreeSync(tree())
        step = jax.jit(plus_one)
        params = sync.params
        for _ in range(3):
            params = sync.sync(step(params))
        wider = params | {"w": jnp.ones((3, 2))}
        with self.assertRaisesRegex(ValueError, r"params\['w'\]: expected shape \(2, 3\)"):
            sync.sync(wider)
        ones = params | {"w": np.full((2, 3), 5, np.float32)}  # NumPy arrays and weak types
        ones["rest"] = [jnp.full(4, 5.0), (5.0,)]
        self.assertEqual(set(values_of(sync.sync(ones))), {5.0})
