"""The examples for JAX, Keras and PyTorch, on the frameworks that this environment has."""

import pytest
from requirements import needs

from example_programs import ExampleProgramTestCase

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


class TestKeras(ExampleProgramTestCase):
    """Backends start slowly, so each runs different examples.

    The suite of the adapters and test_keras.py cover their common behavior.
    """

    @pytest.mark.release
    @needs("keras", "tqdm", "tensorflow")
    def test_two_workers_learn_digits_on_tensorflow(self):
        options = ("--epochs", "6", "--batch-size", "18")
        result = self.result("keras/cnn_digits.py", *options, ranks=2, KERAS_BACKEND="tensorflow")
        self.assertEqual(result["backend"], "tensorflow")
        # Each worker makes 28 batches of 18 from its 499 of the 998 images.
        self.assertEqual(result["updates"], 6 * 2 * 28)
        self.assertEqual(len(result["history"]["val_accuracy"]), 6)
        # Asynchronous runs differ: their errors were 3 to 12 %, and that of guessing is 90 %.
        self.assertLess(result["test_error"], 0.3)

    @pytest.mark.release
    @needs("keras", "tqdm", "tensorflow")
    def test_sync_runs_are_bitwise_identical_on_tensorflow(self):
        options = ("keras/cnn_digits.py", "--sync", "--epochs", "1", "--batch-size", "50")
        self.result_of_equal_runs(*options, ranks=2, KERAS_BACKEND="tensorflow")

    @needs("keras", "tqdm", "jax")
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

    @pytest.mark.release
    @needs("keras", "tqdm", "torch")
    def test_two_workers_train_a_residual_network_on_torch(self):
        options = ("--samples", "24", "--batch-size", "6", "--epochs", "1", "--freq", "3")
        result = self.result("keras/resnet_cifar10.py", *options, ranks=2, KERAS_BACKEND="torch")
        self.assertEqual((result["data"], result["depth"]), ("generated", 8))
        self.assertEqual(result["updates"], 4)
        self.assertGreater(result["history"][0]["cost"], 0)


@needs("jax", "flax", "optax", "tqdm")
class TestJax(ExampleProgramTestCase):
    def test_two_workers_learn_digits_in_two_identical_sync_runs(self):
        options = ("--sync", "--batch-size", "33", "--freq", "2")
        result = self.result_of_equal_runs("jax/digits.py", *options, ranks=2)
        self.assertEqual(result["updates"], 20 * 31)
        self.assertLess(result["test_error"], 0.08)

    def test_missing_data_prints_one_sentence(self):
        self.assert_rejects("none.npz", "jax/digits.py", "--data", self.folder / "none.npz")


@needs("torch", "tqdm")
class TestTorch(ExampleProgramTestCase):
    def test_two_workers_learn_digits(self):
        for options in ((), ("--staleness", "1")):
            with self.subTest(options):
                result = self.result("torch/digits.py", "--epochs", "6", *options, ranks=2)
                self.assertLess(result["test_error"], 0.3)
                self.assertEqual(len(result["epoch_seconds"]), 6)

    @pytest.mark.release
    def test_sync_runs_are_bitwise_identical(self):
        # An epoch has 31 batches, so the second worker has none in the last step of each.
        options = ("--sync", "--batch-size", "33", "--freq", "3")
        result = self.result_of_equal_runs("torch/digits.py", *options, ranks=2)
        self.assertEqual(result["updates"], 20 * 31)
        self.assertLess(result["test_error"], 0.08)
        self.assertEqual(len(result["history"]), 20)
