"""The convolutional network of the examples: four workers match one, in either mode."""

import numpy as np
import pytest
from requirements import THEANOS, needs

from example_programs import POINT, ExampleProgramTestCase

EXAMPLE = "theano/cnn.py"

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]


@needs("tqdm", THEANOS)
class TestConvolutionalNetwork(ExampleProgramTestCase):
    def test_four_workers_match_one(self):
        one_worker = self.result(EXAMPLE, ranks=1)
        self.assertLess(one_worker["test_error"], 0.05)
        asynchronous = self.result(EXAMPLE, ranks=4)
        synchronous = self.result(EXAMPLE, "--sync", ranks=4)
        for result, points in ((asynchronous, 1), (synchronous, 0.5)):
            self.assertEqual(result["updates"], one_worker["updates"])
            difference = abs(result["test_error"] - one_worker["test_error"])
            self.assertLessEqual(difference, points * POINT)

    def test_sync_runs_are_bitwise_identical(self):
        options = ("--sync", "--epochs", "3", "--batch-size", "33")
        result = self.result_of_equal_runs(EXAMPLE, *options, ranks=3)
        self.assertEqual(len(result["history"]), 3)

    def test_accepts_larger_images(self):
        rng = np.random.default_rng(0)
        arrays = {}
        for part, count in (("train", 120), ("test", 30)):
            arrays[f"x_{part}"] = rng.integers(0, 256, (count, 13, 13)).astype(np.uint8)
            arrays[f"y_{part}"] = np.arange(count) % 3
        path = self.folder / "images.npz"
        np.savez(path, **arrays)
        result = self.result(EXAMPLE, "--data", str(path), "--epochs", "2", ranks=2)
        self.assertEqual(result["updates"], 2 * 5)

    def test_non_square_images_print_one_sentence(self):
        path = self.folder / "images.npz"
        images, labels = np.zeros((12, 90), np.uint8), np.zeros(12, np.int64)
        np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
        message = "expected square images.*received 90 pixels"
        self.assert_rejects(message, EXAMPLE, "--data", path)
