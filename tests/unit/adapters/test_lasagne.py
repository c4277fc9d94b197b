"""LasagneParamManager on one rank: networks, rejected arguments, deprecated names."""

import os
import sys
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import sessions
from programs import run_program

import multiverso as mv
from multiverso.lasagne_ext.param_manager import LasagneParamManager, MVNetParamManager

pytestmark = pytest.mark.frameworks

COMMON = Path(__file__).parents[3] / "examples" / "common"
# Each function runs only a few times, so compiling it would take longer than the calls.
FLAGS = "mode=FAST_COMPILE,linker=py,cxx="
sys.path.append(str(COMMON))
try:
    with mock.patch.dict(os.environ, THEANO_FLAGS=FLAGS):
        from lasagne_backend import lasagne, theano
except ImportError as error:
    raise unittest.SkipTest("needs Lasagne and Theano, see make test-all") from error

layers = lasagne.layers


def dense(value=1.0, dtype="float32", units=2):
    """Return a dense layer on 3 inputs, whose weights and biases all have this value."""
    return layers.DenseLayer(
        layers.InputLayer((None, 3)),
        units,
        W=theano.shared(np.full((3, units), value, dtype), name="W"),
        b=theano.shared(np.full(units, value, dtype), name="b"),
    )


def synced(network):
    """Return a network and its manager after a sync."""
    manager = LasagneParamManager(network)
    manager.sync_all_param()
    return network, manager


class LasagneTestCase(sessions.SessionTestCase):
    def assert_equals_tables(self, manager, variables):
        held = np.concatenate([table.get() for table in manager.tables])
        values = np.concatenate([np.ravel(v.get_value()).astype(held.dtype) for v in variables])
        np.testing.assert_array_equal(values, held)


class TestNetworks(LasagneTestCase):
    def test_accepts_several_output_layers(self):
        shared, other = dense(), dense()
        manager = LasagneParamManager([shared, layers.NonlinearityLayer(shared), other])
        self.assertEqual([table.size for table in manager.tables], [16])

    def test_finds_arrays_that_the_program_has_replaced(self):
        network, manager = synced(dense(0))
        first = network.W.get_value(borrow=True)
        second = np.full((3, 2), 5, np.float32)
        for array in (second, np.asfortranarray(second + 1), first + 7, np.repeat(second, 2, 1)):
            network.W.set_value(array[:, :2], borrow=True)
            for _ in range(2):
                manager.tables[0].add(np.ones(8))  # another worker's delta
                manager.sync_all_param()
                self.assert_equals_tables(manager, [network.W, network.b])
            np.testing.assert_array_equal(network.W.get_value(), array[:, :2])
            np.testing.assert_array_equal(first, 0)

    def test_finds_new_arrays_at_the_addresses_of_freed_ones(self):
        network = dense(0)
        manager = LasagneParamManager(network)
        for turn in range(1, 50):  # often enough that addresses are reused
            for variable in (network.b, network.W):
                variable.set_value(variable.get_value() + np.float32(1), borrow=True)
            manager.sync_all_param()
            np.testing.assert_array_equal(manager.tables[0].get(), np.full(8, turn))

    def test_does_not_write_to_an_array_that_has_become_read_only(self):
        network, manager = synced(dense(1))
        array = network.b.get_value(borrow=True)
        array.flags.writeable = False
        manager.tables[0].add(np.ones(8))
        manager.sync_all_param()
        np.testing.assert_array_equal(array, 1)
        np.testing.assert_array_equal(network.b.get_value(), 2)

    def test_rejects_a_changed_shape_and_handles_a_changed_byte_order(self):
        network, manager = synced(dense(1))
        array = network.W.get_value(borrow=True)
        array.shape = (2, 3)
        for value in (np.ones((2, 3), np.float32), array):
            network.W.set_value(value, borrow=True)
            with self.assertRaisesRegex(ValueError, r"'W'.*\(3, 2\), received \(2, 3\)"):
                manager.sync_all_param()
        array.shape = (3, 2)
        manager.sync_all_param()
        array.dtype = array.dtype.newbyteorder()
        array[:] = 4
        manager.sync_all_param()
        np.testing.assert_array_equal(network.W.get_value(), 4)
        np.testing.assert_array_equal(manager.tables[0].get(), [4] * 6 + [1] * 2)

    def test_arrays_in_use_cannot_be_resized(self):
        network, manager = synced(dense(1))
        array = network.W.get_value(borrow=True)
        with self.assertRaises(ValueError):  # the manager holds a weak reference
            array.resize((10_000, 2), refcheck=False)
        manager.sync_all_param()
        self.assert_equals_tables(manager, [network.W, network.b])


class TestDeprecatedNames(LasagneTestCase):
    def test_deprecated_names_work_and_warn(self):
        network = dense(1)
        with self.assertWarnsRegex(DeprecationWarning, "LasagneParamManager") as caught:
            manager = MVNetParamManager(network, mv.is_master_worker(), average=True)
        self.assertEqual(caught.filename, __file__)
        self.assertIsInstance(manager, LasagneParamManager)
        network.b.set_value(np.zeros(2, np.float32))
        with self.assertWarnsRegex(DeprecationWarning, "sync") as caught:
            manager.update_all_param()
        self.assertEqual(caught.filename, __file__)
        self.assert_equals_tables(manager, layers.get_all_params(network))
        self.assertEqual([table.updater for table in manager.tables], ["sgd"])

    def test_current_names_do_not_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            LasagneParamManager(dense()).sync_all_param()


class TestOldNames(unittest.TestCase):
    """The module old_names supplies removed names that Theano and Lasagne still use."""

    def test_convolutional_network_trains(self):
        code = """
            import sys
            sys.path.append(sys.argv[-1])
            import numpy as np
            from lasagne_backend import T, lasagne, theano
            layers = lasagne.layers

            x, y = T.tensor4("x"), T.ivector("y")
            pool = layers.MaxPool2DLayer(layers.InputLayer((None, 1, 4, 4), x), 2)
            image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
            print(layers.get_output(pool).eval({x: image}).ravel())

            stack = layers.Conv2DLayer(layers.InputLayer((8, 1, 8, 8), x), 4, 3, pad="same")
            stack = layers.DenseLayer(
                layers.MaxPool2DLayer(stack, 2), 2, nonlinearity=lasagne.nonlinearities.softmax
            )
            cost = lasagne.objectives.categorical_crossentropy(layers.get_output(stack), y).mean()
            parameters = layers.get_all_params(stack, trainable=True)
            updates = lasagne.updates.nesterov_momentum(cost, parameters, 0.1)
            train = theano.function([x, y], cost, updates=updates)
            labels = np.arange(8, dtype=np.int32) % 2
            images = np.random.default_rng(0).normal(size=(8, 1, 8, 8)) + labels.reshape(8, 1, 1, 1)
            costs = [train(images.astype(np.float32), labels) for _ in range(20)]
            print(bool(costs[-1] < costs[0] / 10))
        """
        # Theano compiles, because it fails without a compiler with this NumPy; it needs no MPI.
        status, printed, errors = run_program(
            code.replace("sys.argv[-1]", repr(str(COMMON))), THEANO_FLAGS="", MPI4PY_LIBMPI="/no"
        )
        self.assertEqual((status, printed), (0, "[ 5.  7. 13. 15.]\nTrue\n"), errors)

    def test_supply_changes_no_existing_name(self):
        code = """
            import numpy, sys, types
            numpy.bool, numpy.float = "mine", "mine"
            there = types.ModuleType("theano.tensor.signal.downsample")
            sys.modules[there.__name__] = there
            from unittest import mock
            with mock.patch("importlib.import_module") as imported:
                from multiverso.lasagne_ext import old_names
                old_names.supply()
            assert (numpy.bool, numpy.float, numpy.int) == ("mine", "mine", int)
            assert sys.modules[there.__name__] is there
        """
        self.assertEqual(run_program(code), (0, "", ""))
