"""KerasParamManager: which weights it syncs, and rejected arguments; the function `shard`."""

import numpy as np
import pytest
from keras_models import HAS_KERAS, KerasTestCase, data, fit, flat, layers, model_of

import multiverso as mv

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]

if HAS_KERAS:
    import keras

    from multiverso.keras_ext import KerasParamManager, MVCallback, shard


class TestManager(KerasTestCase):
    def test_weights_share_no_memory_with_the_host_copy(self):
        # A backend might adopt views of arrays whose sizes are multiples of 64 bytes.
        for sizes in ((16, 32), (16, 8), (16,)):
            model = model_of(*(keras.layers.Dense(size, use_bias=False) for size in sizes))
            manager = KerasParamManager(model)
            manager.sync_all_param()
            before = flat(model)
            for group in manager._sync._groups:
                if hasattr(group, "_host_copy"):  # if the weights are not changed in place
                    group._host_copy.flat += 1
            np.testing.assert_array_equal(flat(model), before)

    def test_syncs_frozen_layers_but_not_seeds(self):
        model = model_of(*layers(), keras.layers.Dropout(0.5))
        model.layers[0].trainable = False
        manager = KerasParamManager(model, False)
        self.assertEqual(sum(table.size for table in manager.tables), 29)
        model.layers[0].trainable = True
        model.compile("sgd", "mse")
        callback = MVCallback(model)
        fit(model, callback)
        self.check_equal(model, callback.manager)

    def test_names_weights_that_are_new_or_missing(self):
        def add(model):
            model.add(keras.layers.Dense(2, name="later"))

        def replace(model):
            model.pop()
            model.add(keras.layers.Dense(1, name="last"))
            model.build((None, 3))

        def enable_lora(model):
            model.layers[0].enable_lora(1)

        for change, text in (
            (add, "later/kernel is new, weight .*later/bias is new; set it up again"),
            (replace, "last/kernel is new.*last/bias is new.*last/kernel is missing"),
            (enable_lora, "lora_kernel_a is new"),
        ):
            with self.subTest(text):
                model = keras.Sequential(
                    [
                        keras.layers.Input((3,)),
                        keras.layers.Dense(3, name="first"),
                        keras.layers.Dense(1, name="last"),
                    ]
                )
                manager = KerasParamManager(model)
                manager.sync_all_param()
                change(model)
                for _ in range(2):
                    with self.assertRaisesRegex(ValueError, text):
                        manager.sync_all_param()
                mv.barrier()


class TestShard(KerasTestCase):
    def test_one_worker_gets_all_samples(self):
        x, y = data()
        mine = shard(x, y, None)
        np.testing.assert_array_equal(mine[0], x)
        self.assertTrue(np.shares_memory(mine[0], x))
        self.assertIsNone(mine[2])
        self.assertEqual(shard({"a": [1, 2], "b": ("x", "y")}), {"a": [1, 2], "b": ("x", "y")})
        self.assertEqual(len(shard([x, y])), 2)
