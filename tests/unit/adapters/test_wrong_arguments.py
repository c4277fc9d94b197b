"""What the adapters reject: the class of each error, and a word of its text."""

import importlib
import os
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from requirements import THEANOS, needs
from sessions import SessionTestCase

import multiverso as mv

pytestmark = pytest.mark.frameworks

COMMON = str(Path(__file__).parents[3] / "examples" / "common")
ROWS = 12
#: What no adapter takes as the number of steps between two syncs.
FREQUENCIES = (0, -1, 1.5, True, "1", None)


def table_of(**options):
    return mv.MatrixTableHandler(ROWS, 5, **{"updater": "sgd"} | options)


def of_tables(layer):
    """Return the rows about a layer's table, which are the same for all frameworks."""
    return [
        (TypeError, "MatrixTable", partial(layer, "rows")),
        (ValueError, "gradients", partial(layer, table_of(updater="add"))),
        (ValueError, "gradients", partial(layer, table_of(updater="add", dtype="int32"))),
    ]


class TestWrongArguments(SessionTestCase):
    def check(self, rows):
        """Check rows of an error, a word and a call; after each one the session is usable."""
        for error, word, call in rows:
            with self.subTest(word, call=call):
                with self.assertRaisesRegex(error, word):
                    call()
                mv.barrier()

    @needs("torch")
    def test_torch_modules_and_optimizers(self):
        import torch

        from multiverso.torch_ext import DistributedOptimizer, TorchParamManager

        linear = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(linear.parameters(), lr=1)
        manager = TorchParamManager(torch.nn.Linear(2, 1), sync_every=4)
        both = torch.optim.Adam([*linear.parameters(), *torch.nn.Linear(3, 1).parameters()])
        method = torch.optim.SGD(linear.parameters(), lr=1)
        method.sync = lambda: None
        self.check(
            [
                (ValueError, "ReLU", partial(TorchParamManager, torch.nn.ReLU())),
                (TypeError, "received list", partial(TorchParamManager, [torch.zeros(2)])),
                (ValueError, "weight: .*lazy", partial(TorchParamManager, torch.nn.LazyLinear(3))),
                *(
                    (ValueError, "sync_buffers", partial(TorchParamManager, linear, choice))
                    for choice in ("mean", True, None, 0)
                ),
                *(
                    (ValueError, "freq: ", partial(DistributedOptimizer, sgd, linear, freq))
                    for freq in FREQUENCIES
                ),
                (TypeError, "optimizer: ", partial(DistributedOptimizer, linear, linear)),
                (ValueError, r"2 of 4 .*\(1, 3\)", partial(DistributedOptimizer, both, linear)),
                (TypeError, "'sync'", partial(DistributedOptimizer, method, linear)),
                *(
                    ((TypeError, ValueError), "^steps: ", partial(manager.step, steps))
                    for steps in (True, 1.0, "2", -1, None)
                ),
            ]
        )
        self.assertIs(type(both), torch.optim.Adam)

    @needs("torch")
    def test_torch_layers(self):
        import torch

        from multiverso.torch_ext import Embedding, EmbeddingBag, EmbeddingBagCollection, prefetch

        table, ids = table_of(), torch.tensor([1])
        layer = Embedding(table)
        calls = [
            *of_tables(Embedding),
            (ValueError, "padding_idx: .*-12 to 11", partial(Embedding, table, ROWS)),
            (ValueError, "padding_idx: .*-13", partial(Embedding, table, -ROWS - 1)),
            (ValueError, "mode: .*'min'", partial(EmbeddingBag, table, mode="min")),
            (ValueError, "'max': .*Embedding", partial(EmbeddingBag, table, mode="max")),
            (ValueError, "two dim", partial(Embedding.from_pretrained, torch.zeros(3))),
            (TypeError, "Linear", partial(EmbeddingBagCollection, {"x": torch.nn.Linear(1, 1)})),
            (ValueError, "depth", lambda: list(prefetch([ids], layer, depth=0))),
        ]
        for kind in (Embedding, EmbeddingBag):
            calls += [
                (ValueError, "max_norm: .*share", partial(kind, table, max_norm=1.0)),
                (ValueError, "scale_grad_by_freq", partial(kind, table, scale_grad_by_freq=True)),
                (
                    AttributeError,
                    r"layer.table.peek\(ids\)",
                    partial(getattr, kind(table), "weight"),
                ),
                (AttributeError, "peek", partial(setattr, kind(table), "weight", ids)),
                (AttributeError, "no attribute 'other'", partial(getattr, kind(table), "other")),
            ]
        for scale in ("2", b"2", True, np.True_, float("nan"), [1.0, 2.0]):
            calls.append(((TypeError, ValueError), "", partial(Embedding(table).step, scale)))
        self.check(calls)
        for scale in (2, np.float32(2), torch.tensor(2.0)):
            self.assertTrue(Embedding(table).step(scale))

    @needs("keras")
    @pytest.mark.keras_backend
    def test_keras_models(self):
        import keras

        from multiverso.keras_ext import KerasParamManager, MVCallback, shard

        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        empty = keras.Sequential([keras.Input((3,))])
        unbuilt = keras.Sequential([keras.layers.Dense(1)])
        zeros, samples = np.zeros(3), np.zeros(4)
        self.check(
            [
                (TypeError, "received list", partial(KerasParamManager, [])),
                (ValueError, "sync_non_trainable", partial(KerasParamManager, model, "mean")),
                (ValueError, "Sequential", partial(MVCallback, keras.Sequential())),
                (ValueError, "build it", partial(MVCallback, unbuilt)),
                (ValueError, "expected parameters", partial(KerasParamManager, empty)),
                *((ValueError, "freq: ", partial(MVCallback, model, freq)) for freq in FREQUENCIES),
                (ValueError, "shard: ", shard),
                (ValueError, "shard: ", partial(shard, zeros, samples)),
                (ValueError, "shard: ", partial(shard, [zeros, samples])),
                (ValueError, "shard: ", partial(shard, zeros[:0])),
            ]
        )

    @needs("keras")
    @pytest.mark.keras_backend
    def test_keras_layers(self):
        import keras

        from multiverso.keras_ext.layers import Embedding

        table, ids = table_of(), np.ones((2, 3), "int32")
        sparse = keras.KerasTensor((2, 3), "int32", sparse=True)
        built = Embedding(table)
        built.build()
        self.check(
            [
                *of_tables(Embedding),
                (TypeError, "no weights.*with an array", partial(Embedding, table, weights=ids)),
                *(
                    (TypeError, f"no {name}.*{word}", partial(Embedding, table, **{name: value}))
                    for name, value, word in (
                        ("embeddings_initializer", "zeros", "multiverso.initializers"),
                        ("embeddings_constraint", "unit_norm", "updater"),
                        ("input_dim", ROWS, "number of rows"),
                        ("lora_rank", 2, "not a weight"),
                    )
                ),
                *(
                    (TypeError, "MatrixTable", partial(Embedding, *dims))
                    for dims in ((ROWS, 5), (0, 1), (-1, 2), ("a", 3))
                ),
                (ValueError, "combiner: ", partial(Embedding, table, combiner="max")),
                (ValueError, "weights: ", partial(Embedding(table), ids, weights=ids)),
                (TypeError, "ids: .*dense", partial(Embedding(table), sparse)),
                (NotImplementedError, "", partial(built.quantize, "int8")),
            ]
        )

    @needs("jax")
    def test_jax_trees_and_layers(self):
        import jax.numpy as jnp

        from multiverso.jax_ext import Embedding, PytreeSync

        self.check(
            [
                *of_tables(Embedding),
                (ValueError, "expected parameters", partial(PytreeSync, {})),
                (ValueError, "expected parameters", partial(PytreeSync, jnp.zeros(0))),
                (TypeError, r"params\['a'\]: .*array", partial(PytreeSync, {"a": "b"})),
                (TypeError, "received bool", partial(PytreeSync, [jnp.zeros(2, bool)])),
            ]
        )

    def theano_backend(self, name):
        """Import the framework as the examples do, without their variables of the environment."""
        flags = {"THEANO_FLAGS": "mode=FAST_COMPILE,linker=py,cxx="}
        with (
            mock.patch.dict(os.environ, flags),
            mock.patch.object(sys, "path", [*sys.path, COMMON]),
        ):
            return importlib.import_module(name)

    @needs(THEANOS)
    def test_shared_variables(self):
        backend = self.theano_backend("theano_backend")
        from multiverso.theano_ext.sharedvar import MVSharedVariable, mv_shared

        matrix = backend.T.matrix()
        rows = [
            (TypeError, f"'W'.*float32.*{value.dtype}", partial(mv_shared, value, name="W"))
            for value in (
                np.zeros(2, complex),
                np.int8(1),
                np.zeros(2, bool),
                np.zeros(2, "uint32"),
            )
        ]
        if importlib.util.find_spec("scipy"):
            from scipy import sparse

            rows.append((TypeError, "csr_matrix", partial(mv_shared, sparse.csr_matrix(np.eye(2)))))
        for wrong in (3, np.zeros(3), matrix, None):
            rows.append((TypeError, "shared variable", partial(MVSharedVariable, wrong)))
        self.check(
            [
                *rows,
                (ValueError, r"one element.*\(0, 3\)", partial(mv_shared, np.zeros((0, 3)))),
                (TypeError, "dense array or a scalar.*list", partial(mv_shared, [1, 2])),
                (TypeError, "", partial(mv_shared, matrix)),
                (TypeError, "", partial(mv_shared, np.zeros(2), no_such_argument=1)),
            ]
        )

    @needs("lasagne")
    def test_lasagne_networks(self):
        backend = self.theano_backend("lasagne_backend")
        from multiverso.lasagne_ext.param_manager import LasagneParamManager, MVNetParamManager
        from multiverso.theano_ext.sharedvar import MVSharedVariable

        layers, inputs = backend.lasagne.layers, backend.lasagne.layers.InputLayer((None, 3))
        dense, attached = layers.DenseLayer(inputs, 2), layers.DenseLayer(inputs, 2)
        bytes_, value = layers.DenseLayer(inputs, 2), np.zeros((3, 2), "int8")
        bytes_.W = bytes_.add_param(backend.theano.shared(value, "V"), value.shape)
        MVSharedVariable(attached.W)
        of_master = mv.is_master_worker
        self.check(
            [
                (ValueError, "expected parameters", partial(LasagneParamManager, inputs)),
                (ValueError, "expected parameters", partial(LasagneParamManager, [])),
                *(
                    (TypeError, "expected a layer", partial(LasagneParamManager, wrong))
                    for wrong in (3, None, [dense, 3], backend.theano.shared(1.0))
                ),
                (TypeError, "'V'.*int8", partial(LasagneParamManager, bytes_)),
                (
                    ValueError,
                    "'average'",
                    partial(LasagneParamManager, dense, sync_non_trainable=True),
                ),
                (ValueError, "'W', whose delta", partial(LasagneParamManager, attached)),
                (ValueError, "is_master_worker: .*False", partial(MVNetParamManager, dense, False)),
                (
                    TypeError,
                    "the result of.*function",
                    partial(MVNetParamManager, dense, of_master),
                ),
            ]
        )
