"""Every argument of the adapters that is True or False takes nothing else."""

import numpy as np
import pytest
from public_flags import check_rejections, flags_of
from requirements import needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = [pytest.mark.frameworks, pytest.mark.keras_backend]


def row_table():
    return mv.MatrixTableHandler(3, 2, updater="sgd")


class TestFlags(SessionTestCase):
    @needs("torch")
    def test_flags_of_the_pytorch_adapter_take_a_bool_only(self):
        import torch

        from multiverso import torch_ext

        module = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(module.parameters())
        table, ids = row_table(), torch.tensor([1])
        layer = torch_ext.Embedding(table)
        flags = flags_of("multiverso.torch_ext")
        # The arguments are those of its `__new__`, which returns the given optimizer.
        flags["DistributedOptimizer"] = ["overlap", "average"]
        check_rejections(
            self,
            flags,
            {
                "TorchParamManager": lambda **flag: torch_ext.TorchParamManager(module, **flag),
                "DistributedOptimizer": lambda **flag: torch_ext.DistributedOptimizer(
                    optimizer, module, **flag
                ),
                "Embedding": lambda **flag: torch_ext.Embedding(table, **flag),
                "EmbeddingBag": lambda **flag: torch_ext.EmbeddingBag(table, **flag),
                "Embedding.prefetch": lambda **flag: layer.prefetch(ids, **flag),
                "EmbeddingBag.prefetch": lambda **flag: layer.prefetch(ids, **flag),
                "prefetch": lambda **flag: list(torch_ext.prefetch([ids], layer, **flag)),
            },
        )

    @needs("keras")
    def test_flags_of_the_keras_adapter_take_a_bool_only(self):
        import keras

        from multiverso import keras_ext
        from multiverso.keras_ext import layers

        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        table = row_table()
        flags = flags_of("multiverso.keras_ext", "multiverso.keras_ext.layers")
        for name in ("Embedding.call", "Embedding.compute_output_spec"):
            del flags[name]  # Keras passes their argument.
        check_rejections(
            self,
            flags,
            {
                "KerasParamManager": lambda **flag: keras_ext.KerasParamManager(model, **flag),
                "MVCallback": lambda **flag: keras_ext.MVCallback(model, **flag),
                "Embedding": lambda **flag: layers.Embedding(table, **flag),
                "shard": lambda **flag: keras_ext.shard(np.zeros(3), **flag),
            },
        )

    @needs("jax")
    def test_flags_of_the_jax_adapter_take_a_bool_only(self):
        from multiverso import jax_ext

        flags = flags_of("multiverso.jax_ext")
        calls = {"PytreeSync": lambda **flag: jax_ext.PytreeSync([np.zeros(2)], **flag)}
        check_rejections(self, flags, calls)

    @needs("pytensor")
    def test_flags_of_the_theano_adapter_take_a_bool_only(self):
        from multiverso.theano_ext import param_manager, sharedvar

        class ListManager(param_manager.MVModelParamManager):
            def get_all_param_values(self):
                return self.model

            def set_all_param_values(self, params):
                self.model[:] = params

        flags = flags_of("multiverso.theano_ext.param_manager", "multiverso.theano_ext.sharedvar")
        flags["mv_shared"].remove("strict")  # The framework gets it.
        calls = {
            "MVModelParamManager": lambda **flag: ListManager([np.zeros(2)], **flag),
            "mv_shared": lambda **flag: sharedvar.mv_shared(np.zeros(2), **flag),
        }
        check_rejections(self, flags, calls)
