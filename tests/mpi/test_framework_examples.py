"""The examples for JAX, Keras and PyTorch, on the frameworks that this environment has."""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pytest

from launch import JOB_TIMEOUT, run

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Seconds, because frameworks start and compile slowly.
TIMEOUT = 2 * JOB_TIMEOUT

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


def missing_of(*modules):
    """Return which of these modules are missing; all examples also need tqdm."""
    return [name for name in (*modules, "tqdm") if importlib.util.find_spec(name) is None]


#: The missing modules of each backend of Keras. Backends start slowly, so each runs different
#: examples; the suite of the adapters and test_keras.py cover their common behavior.
MISSING = {name: missing_of("keras", "sklearn", name) for name in ("jax", "tensorflow", "torch")}


class ExampleTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def result(self, example, *arguments, ranks, **environ):
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        options = ("--json", str(path), *arguments)
        job = run(EXAMPLES / example, *options, np=ranks, timeout=TIMEOUT, **environ).check()
        self.assertEqual(job.output.count("test error"), 1, job.output)
        result = json.loads(path.read_text("utf-8"))
        self.assertEqual(result["workers"], ranks)
        return result

    def error_of(self, example, *arguments):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / example), *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr


class TestKeras(ExampleTestCase):
    @unittest.skipIf(MISSING["tensorflow"], "needs Keras on TensorFlow, scikit-learn and tqdm")
    def test_two_workers_learn_digits_on_tensorflow(self):
        options = ("--epochs", "6", "--batch-size", "18")
        result = self.result("keras/cnn_digits.py", *options, ranks=2, KERAS_BACKEND="tensorflow")
        self.assertEqual(result["backend"], "tensorflow")
        # Each worker makes 28 batches of 18 from its 499 of the 998 images.
        self.assertEqual(result["updates"], 6 * 2 * 28)
        self.assertEqual(len(result["history"]["val_accuracy"]), 6)
        # Asynchronous runs differ: their errors were 3 to 12 %, and that of guessing is 90 %.
        self.assertLess(result["test_error"], 0.3)

    @unittest.skipIf(MISSING["tensorflow"], "needs Keras on TensorFlow, scikit-learn and tqdm")
    def test_sync_runs_are_bitwise_identical_on_tensorflow(self):
        options = ("--sync", "--epochs", "1", "--batch-size", "50")
        first, second = (
            self.result("keras/cnn_digits.py", *options, ranks=2, KERAS_BACKEND="tensorflow")
            for _ in range(2)
        )
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])

    @unittest.skipIf(MISSING["jax"], "needs Keras on JAX, scikit-learn and tqdm")
    def test_two_workers_learn_to_add_on_jax(self):
        options = ("--digits", "1", "--units", "32", "--epochs", "3", "--batch-size", "10")
        result = self.result("keras/addition_rnn.py", *options, ranks=2, KERAS_BACKEND="jax")
        # Of the 55 sums of two digits, 5 are for testing, and 50 are trained in both orders.
        self.assertEqual(result["updates"], 3 * 2 * 5)
        losses = result["history"]["loss"]
        self.assertLess(losses[-1], losses[0])
        for question, answer in result["shown"]:
            self.assertRegex(question, r"^\d\+\d$")
            self.assertRegex(answer, r"^[0-9+ ]*$")

    @unittest.skipIf(MISSING["torch"], "needs Keras on PyTorch, scikit-learn and tqdm")
    def test_two_workers_train_a_residual_network_on_torch(self):
        options = ("--samples", "24", "--batch-size", "6", "--epochs", "1", "--freq", "3")
        result = self.result("keras/resnet_cifar10.py", *options, ranks=2, KERAS_BACKEND="torch")
        self.assertEqual((result["data"], result["depth"]), ("generated", 8))
        self.assertEqual(result["updates"], 4)
        self.assertGreater(result["history"][0]["cost"], 0)


@unittest.skipIf(missing_of("jax", "flax", "optax", "sklearn"), "needs JAX, Flax and Optax")
class TestJax(ExampleTestCase):
    def test_two_workers_learn_digits_in_two_identical_sync_runs(self):
        options = ("--sync", "--batch-size", "33", "--freq", "2")
        first, second = (self.result("jax/digits.py", *options, ranks=2) for _ in range(2))
        self.assertEqual(first["updates"], 20 * 31)
        self.assertLess(first["test_error"], 0.08)
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])

    def test_missing_data_prints_one_sentence(self):
        message = self.error_of("jax/digits.py", "--data", str(self.folder / "none.npz"))
        self.assertTrue(re.fullmatch(r"error: .*none\.npz.*\n", message), message)


@unittest.skipIf(missing_of("torch", "sklearn"), "needs PyTorch, scikit-learn and tqdm")
class TestTorch(ExampleTestCase):
    def test_two_workers_learn_digits(self):
        result = self.result("torch/digits.py", "--epochs", "6", ranks=2)
        self.assertLess(result["test_error"], 0.3)

    def test_sync_runs_are_bitwise_identical(self):
        # An epoch has 31 batches, so the second worker has none in the last step of each.
        options = ("--sync", "--batch-size", "33", "--freq", "3")
        first, second = (self.result("torch/digits.py", *options, ranks=2) for _ in range(2))
        self.assertEqual(first["updates"], 20 * 31)
        self.assertLess(first["test_error"], 0.08)
        self.assertEqual(len(first["history"]), 20)
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])
