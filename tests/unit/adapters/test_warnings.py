"""Warnings about what goes wrong with several workers, though each alone does it right."""

import types
import unittest
import warnings
from unittest import mock

import numpy as np
import pytest
import sessions
from requirements import is_installed

from multiverso._session import Session
from multiverso.sync._shares import averages_by_default
from multiverso.sync._tensor_sync import TensorSync

pytestmark = pytest.mark.frameworks


class WarningsTestCase(sessions.SessionTestCase):
    def messages(self, function, *, workers=2):
        """Return the warnings of Multiverso in a call, as with that many workers."""
        with (
            mock.patch.object(TensorSync, "num_workers", workers),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            function()
        return [str(w.message) for w in caught if "every worker" in str(w.message)]


@unittest.skipUnless(is_installed("torch"), "needs PyTorch")
class TestTorch(WarningsTestCase):
    def test_max_norm_with_summed_deltas(self):
        import torch

        from multiverso.torch_ext import TorchParamManager

        module = torch.nn.Sequential(torch.nn.Embedding(3, 2, max_norm=1.0), torch.nn.Linear(2, 1))
        (message,) = self.messages(lambda: TorchParamManager(module))
        self.assertIn("layers with max_norm", message)
        self.assertIn("pass average=True", message)
        for make, workers in (
            (lambda: TorchParamManager(module, average=True), 2),
            (lambda: TorchParamManager(module), 1),
            (lambda: TorchParamManager(torch.nn.Embedding(3, 2)), 2),
        ):
            self.assertEqual(self.messages(make, workers=workers), [])


class TestAverageByDefault(sessions.SessionTestCase):
    def average(self, average=None, workers=2, **options):
        """Return whether an adapter averages, and its warnings, as with that many workers."""
        with (
            mock.patch.object(Session, "num_workers", workers),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            averages = averages_by_default(average, options, "PytreeSync")
        return averages, [(w.category, str(w.message)) for w in caught]

    def test_warns_several_workers_until_they_choose(self):
        averages, ((category, message),) = self.average()
        self.assertTrue(averages)
        self.assertIs(category, FutureWarning)
        self.assertIn("pass average=True to keep the average, or average=False to sum", message)
        self.assertEqual(self.average(workers=1), (True, []))
        for choice in (True, False):
            self.assertEqual(self.average(choice), (choice, []))

    def test_leaves_deltas_to_an_updater(self):
        self.assertEqual(self.average(updater="nesterov", learning_rate=0.1), (False, []))
        self.assertEqual(self.average(updater="add", wire="int8")[0], True)


@unittest.skipUnless(is_installed("keras"), "needs Keras")
class TestKeras(WarningsTestCase):
    def model(self, **options):
        import keras

        layer = keras.layers.Dense(1, **options)
        return keras.Sequential([keras.layers.Input((2,)), layer])

    def test_constraints_with_summed_deltas(self):
        from multiverso.keras_ext import KerasParamManager

        model = self.model(kernel_constraint="max_norm", bias_constraint="non_neg")
        (message,) = self.messages(lambda: KerasParamManager(model))
        self.assertIn("constraints MaxNorm, NonNeg", message)
        self.assertEqual(self.messages(lambda: KerasParamManager(model, average=True)), [])
        self.assertEqual(self.messages(lambda: KerasParamManager(model), workers=1), [])
        self.assertEqual(self.messages(lambda: KerasParamManager(self.model())), [])

    def fit_warnings(
        self, *others, workers=2, optimizer=None, first=True, elastic=False, **options
    ):
        import keras

        from multiverso.keras_ext import MVCallback, callbacks

        model = self.model()
        model.compile(optimizer or keras.optimizers.SGD(), "mse")
        callback = MVCallback(model, **options)
        options = types.SimpleNamespace(elastic=elastic)
        session = types.SimpleNamespace(num_workers=workers, worker_id=0, options=options)
        chosen = [callback, *others] if first else [*others, callback]
        with (
            mock.patch.object(callbacks, "current_session", return_value=session),
            mock.patch.object(callbacks, "average_over_workers"),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=chosen)
        return [str(w.message) for w in caught if "MVCallback" in str(w.message)]

    def test_decisions_that_differ_between_workers(self):
        import keras

        class Mine(keras.callbacks.EarlyStopping):
            pass

        stop = keras.callbacks.EarlyStopping("loss")
        for callback in (stop, keras.callbacks.ReduceLROnPlateau("loss"), Mine("loss")):
            name = type(callback).__name__
            (message,) = self.fit_warnings(callback)
            self.assertRegex(message, f"pass average_metrics=True, or {name} decides differently")
            (message,) = self.fit_warnings(callback, first=False, average_metrics=True)
            self.assertRegex(message, f"{name} decides before .* place MVCallback first")
            self.assertEqual(self.fit_warnings(callback, average_metrics=True), [])
        self.assertEqual(self.fit_warnings(stop, workers=1), [])
        self.assertEqual(self.fit_warnings(stop, elastic=True), [])
        self.assertEqual(self.fit_warnings(keras.callbacks.History()), [])

    def test_moving_averages_with_summed_deltas(self):
        import keras

        def sgd():
            return keras.optimizers.SGD(use_ema=True)

        scaled = keras.optimizers.LossScaleOptimizer(sgd())
        for optimizer in (sgd(), scaled):
            (message,) = self.fit_warnings(optimizer=optimizer)
            self.assertIn("use_ema=True", message)
        self.assertEqual(self.fit_warnings(optimizer=sgd(), average=True), [])
        self.assertEqual(self.fit_warnings(optimizer=sgd(), workers=1), [])
