"""The epochs of the master, for workers whose reports arrive in any order."""

import contextlib
import importlib.util
import math
import random
import tempfile
import unittest
from unittest import mock

import numpy as np
import pytest
from some_keras import BACKEND, import_keras

pytestmark = pytest.mark.frameworks

MISSING = [name for name in ("keras", "tqdm") if importlib.util.find_spec(name) is None]


class SimulatedWorker:
    """Reports as `learn._worker.Worker` does, at a speed of its own."""

    def __init__(self, rng, passes, synchronous):
        self.rng, self.passes, self.synchronous = rng, passes, synchronous
        self.begun = self.ended = 0
        self.rest = 0  # Samples of this pass that are still to be reported.
        self.is_done = False
        self.speed = rng.choice([0.05, 0.3, 1.0, 3.0])

    def turn(self, orders, report_of, first_epoch):
        """Return the reports of a turn, made by `report_of(samples, **flags)`."""
        reports = []
        while not self.is_done and self.rng.random() < self.speed / (1 + self.speed):
            is_held = self.synchronous and orders["ended_epochs"] - first_epoch < self.ended
            if is_held:
                break
            if self.ended == self.passes or (orders["stop"] and self.begun == self.ended):
                reports.append(report_of(0, done=True))
                self.is_done = True
            elif self.begun == self.ended:
                self.begun += 1
                self.rest = self.rng.randint(1, 9)
            elif self.synchronous or orders["stop"] or self.rng.random() < 0.5:
                # All samples may have been reported before.
                reports.append(report_of(self.rest, ended_epoch=True))
                self.ended += 1
            elif self.rest:
                samples = self.rng.randint(1, self.rest)
                self.rest -= samples
                reports.append(report_of(samples))
        return reports


@unittest.skipIf(MISSING or BACKEND is None, f"needs {', '.join(MISSING) or 'a backend of Keras'}")
class TestEpochs(unittest.TestCase):
    def setUp(self):
        self.keras = import_keras()

    def trial(self, seed):
        """Let simulated workers train; check what the callbacks and the history have seen."""
        import multiverso as mv
        from multiverso.learn import Algo, Data, ModelBuilder, MPIManager, _coordinator
        from multiverso.learn._tables import TrainingTables

        rng = random.Random(seed)
        keras = self.keras
        calls, events, reported = [], [], []

        class Points(Data):
            def generate_data(self):
                calls.append(self.file_names)
                yield np.ones((2, 1), np.float32), np.ones((2, 1), np.float32)

        class Line(ModelBuilder):
            def build_model(self):
                return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

        class Seen(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                events.append(("begin", epoch))

            def on_epoch_end(self, epoch, logs=None):
                events.append(("end", epoch))
                assert all(math.isfinite(logs[name]) for name in ("loss", "val_loss")), logs
                self.model.stop_training = epoch == start + trained - 1

        workers, start, epochs = rng.randint(1, 4), rng.randint(0, 2), rng.randint(1, 5)
        synchronous, trained = rng.random() < 0.3, rng.choice([epochs, rng.randint(1, epochs)])
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5**epoch)
        simulated = [SimulatedWorker(rng, epochs, synchronous) for _ in range(workers)]

        def report_of(samples, **flags):
            mean = rng.uniform(0, 1)
            reported.append((samples, mean))
            metrics = {"loss": mean} if samples else {}
            return {"samples": samples, "updates": samples, "metrics": metrics, **flags}

        def share(orders):
            given = vars(orders)
            return [given, *(each.turn(given, report_of, start) for each in simulated)]

        with mv.session(), contextlib.ExitStack() as stack:
            manager = MPIManager(
                None,
                Points(2),
                Algo("sgd", loss="mse", metrics=[]),
                Line(),
                start + epochs,
                ["training"],
                ["validation"],
                [Seen(), schedule],
                synchronous=synchronous,
                checkpoint=stack.enter_context(tempfile.TemporaryDirectory()),
                checkpoint_interval=2,
            )
            master = _coordinator.Coordinator(manager, None, workers)
            tables = TrainingTables(manager, master.replica)
            stack.enter_context(mock.patch.object(_coordinator, "share", share))
            master.begin(tables, range(start, start + epochs))
            master.coordinate()
            history = master.end([])
            rate = tables.parameters[0].options["learning_rate"]
        assert all(each.is_done for each in simulated)
        assert [len(values) for values in history.metrics.values()] == [trained] * 2
        wanted = [(what, start + e) for e in range(trained) for what in ("begin", "end")]
        assert events == wanted, events
        assert all(entry["samples"] > 0 for entry in history.epochs), history.epochs
        assert rate == 0.5 ** (start + trained - 1)
        assert calls == [["validation"]] * trained
        if trained == epochs:
            found = sum(
                entry["samples"] * loss
                for entry, loss in zip(history.epochs, history.metrics["loss"], strict=True)
            )
            assert sum(entry["samples"] for entry in history.epochs) == sum(n for n, _ in reported)
            np.testing.assert_allclose(found, sum(n * mean for n, mean in reported))

    def test_each_epoch_has_a_loss_and_is_begun_and_ended_once_in_order(self):
        for seed in range(60):
            with self.subTest(seed=seed):
                self.trial(seed)
