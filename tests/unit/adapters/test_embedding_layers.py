"""What the layers of all frameworks do with the rows of a table, with one worker."""

import os
import tempfile
import warnings

import numpy as np
import pytest
from keras_models import HAS_KERAS
from requirements import is_installed, needs, needs_found_sessions
from sessions import SessionTestCase
from torch_devices import HAS_TORCH, on_gpu

import multiverso as mv

pytestmark = pytest.mark.frameworks

if HAS_TORCH:
    import torch

    from multiverso import torch_ext
if HAS_KERAS:
    import keras

    from multiverso.keras_ext import layers as keras_layers
if is_installed("jax"):
    import jax
    import jax.numpy as jnp

    from multiverso import jax_ext

ROWS, COLUMNS = 40, 4
START = np.random.default_rng(0).integers(-9, 9, (ROWS, COLUMNS)).astype("float32")


def table_of(**options):
    options = {"updater": "sgd", "learning_rate": 1.0, **options}
    return mv.MatrixTableHandler(ROWS, COLUMNS, START, **options)


class LayerCases:
    """The cases; a class of each framework says how to read rows and how to differentiate."""

    #: An error, and lists of ids with which a framework raises it.
    WRONG = (TypeError, [])

    def look_up(self, layer, ids):
        """Return the rows of ids in an evaluation."""
        raise NotImplementedError

    def differentiate(self, layer, ids, factor=1.0):
        """Make the backward pass of the sum of the rows times a factor."""
        raise NotImplementedError

    def test_rows_lose_the_gradient_of_each_occurrence(self):
        for dtype in ("float16", "float32", "float64"):
            for ids in ([7], [3, 3, 0], [[2, 2], [5, 0]], np.zeros((0, 3)), np.zeros((2, 0))):
                table = table_of(dtype=dtype)
                layer, ids = self.layer(table), np.array(ids, "int32")
                with self.subTest(dtype=dtype, shape=ids.shape):
                    np.testing.assert_array_equal(self.look_up(layer, ids), START[ids])
                    self.differentiate(layer, ids, 2.0)
                    self.assertTrue(layer.step())
                    counts = np.bincount(ids.ravel(), minlength=ROWS)
                    np.testing.assert_array_equal(table.get(), START - 2 * counts[:, None])

    def test_gradients_of_several_calls_are_one_step(self):
        options = {"updater": "adagrad", "learning_rate": 0.5, "epsilon": 0.1}
        layer, once = self.layer(table_of(**options)), table_of(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that there was no step
            for _ in range(3):
                self.differentiate(layer, [5, 6], 2.0)
        layer.step(scale=2.0)
        once.add(np.full((2, COLUMNS), 3.0), [5, 6])
        np.testing.assert_array_equal(layer.table.get(), once.get())

    def test_a_second_gradient_without_a_step_warns_once(self):
        for ends, expected in (("", 1), ("discard", 0), ("step", 0)):
            layer = self.layer(table_of())
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    self.differentiate(layer, [5, 6])
                    if ends:
                        getattr(layer, ends)()
            texts = [str(item.message) for item in caught if item.category is RuntimeWarning]
            self.assertEqual(len(texts), expected, texts)
            self.assertTrue(all("step() of the layer has never been" in text for text in texts))

    def test_gradients_that_are_discarded_or_not_finite_are_not_sent(self):
        layer = self.layer(table_of())
        self.differentiate(layer, [1], float("inf"))
        self.assertFalse(layer.step(scale=8.0))
        layer = self.layer(layer.table)
        self.differentiate(layer, [1])
        layer.discard()
        self.look_up(layer, [1])
        self.assertTrue(layer.step())
        np.testing.assert_array_equal(layer.table.get(), START)

    def test_keys_get_rows_in_training_only(self):
        table = mv.HashTableHandler(COLUMNS, 100, updater="sgd", learning_rate=1.0)
        layer = self.layer(table)
        self.assertEqual(np.abs(self.look_up(layer, [5, -9])).sum(), 0)
        self.assertEqual(len(table), 0)
        self.differentiate(layer, [5, -9, 5])
        layer.step()
        np.testing.assert_array_equal(table.get([5, -9, 1], insert=False)[:, 0], [-2, -1, 0])
        self.assertEqual(len(table), 2)

    @needs_found_sessions
    def test_tables_of_views_are_looked_up_and_not_trained(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        mv.shutdown()
        mv.init(name=f"layers-{os.getpid()}")
        normal = mv.initializers.RandomNormal(seed=3)
        rows = table_of(dtype="float16", name="rows")
        keys = mv.HashTable(COLUMNS, 100, normal, updater="sgd", name="keys")
        array = mv.ArrayTable(COLUMNS, name="array")
        integers = mv.MatrixTable(2, COLUMNS, dtype="int32", name="integers")
        trained = keys.get([5, -9])
        mv.publish(to=folder)
        attached, followed = mv.attach(os.getpid()), mv.follow(folder, timeout=60, default=0.5)
        for view, absent in ((attached, keys.peek([7])[0]), (followed, 0.5)):
            layers = [self.layer(view.tables[name]) for name in (rows.name, "keys")]
            self.assertIs(layers[0].table.has_rows, False)
            for ids in ([[7, 0], [7, 3]], np.zeros((0, 3), "int32")):
                np.testing.assert_array_equal(self.look_up(layers[0], ids), START[np.array(ids)])
            found = self.look_up(layers[1], [5, 7, -9])
            np.testing.assert_array_equal(found, [trained[0], np.full(COLUMNS, absent), trained[1]])
            for layer in layers:
                with self.assertRaisesRegex(Exception, "received one of a view, which can only be"):
                    self.differentiate(layer, [5])
                self.assertTrue(layer.step())
            for table, error in ((array, TypeError), (integers, ValueError)):
                self.assertRaises(error, self.layer, view.tables[table.name])
            view.close()
            self.assertRaisesRegex(mv.errors.StateError, "closed", layers[1].table.get, [5])

    def test_wrong_ids_raise(self):
        keys = mv.HashTableHandler(COLUMNS, 100, updater="sgd")
        for table, error, wrong in (
            (table_of(), TypeError, [[True]]),
            (table_of(), *self.WRONG),
            (keys, TypeError, [[True], [1.5]]),
        ):
            layer = self.layer(table)
            for ids in wrong:
                with self.subTest(ids=ids), self.assertRaises(error):
                    self.look_up(layer, ids)
        self.assertEqual(len(keys), 0)


@needs("torch")
class TestTorch(LayerCases, SessionTestCase):
    WRONG = (IndexError, [[ROWS], [-1]])
    device = "cpu"

    def layer(self, table):
        return torch_ext.Embedding(table).to(self.device)

    def look_up(self, layer, ids):
        layer.eval()
        rows = layer(torch.as_tensor(np.asarray(ids), device=self.device))
        self.assertFalse(rows.requires_grad)
        layer.train()
        return rows.cpu().numpy()

    def differentiate(self, layer, ids, factor=1.0):
        ids = torch.as_tensor(np.asarray(ids), device=self.device)
        (layer(ids) * factor).sum().backward()


TestTorchOnGpu = on_gpu(TestTorch)


@needs("keras")
@pytest.mark.keras_backend
class TestKeras(LayerCases, SessionTestCase):
    def layer(self, table):
        return keras_layers.Embedding(table)

    def look_up(self, layer, ids):
        return keras.ops.convert_to_numpy(layer(np.asarray(ids), training=False))

    def differentiate(self, layer, ids, factor=1.0):
        ids = np.asarray(ids, "int32")[None]  # a batch
        model = keras.Sequential([keras.Input(ids.shape[1:], dtype="int32"), layer])
        model.compile(keras.optimizers.SGD(0.0), lambda _, rows: keras.ops.sum(rows * factor))
        model.fit(ids, ids, verbose=0)


@needs("jax")
class TestJax(LayerCases, SessionTestCase):
    WRONG = (TypeError, [[1.5]])

    def layer(self, table):
        return jax_ext.Embedding(table)

    def look_up(self, layer, ids):
        rows = [jax_ext.lookup(place, np.asarray(ids)) for place in (layer, layer.table)]
        np.testing.assert_array_equal(*rows)
        self.assertEqual(rows[0].devices(), {jax.devices()[0]})  # a GPU, where JAX has one
        return np.asarray(rows[0])

    def differentiate(self, layer, ids, factor=1.0):
        def total(rows, ids):
            return (jax_ext.lookup(rows, ids) * factor).sum()

        # Without the value, the compiler leaves out the look-up.
        jax.jit(jax.value_and_grad(total))(layer, jnp.asarray(ids))
        jax.effects_barrier()
