"""The convolutional network of the examples: four workers match one, in either mode."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest

from launch import JOB_TIMEOUT, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "theano" / "cnn.py"
MISSING = [name for name in ("sklearn", "tqdm") if importlib.util.find_spec(name) is None]
if not any(map(importlib.util.find_spec, ("pytensor", "aesara", "theano"))):
    MISSING.append("PyTensor, Aesara or Theano")

POINT = 0.01  # one percentage point of the test error

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]


@unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")
class TestConvolutionalNetwork(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def result(self, *arguments, ranks):
        path = self.folder / "result.json"
        job = run(EXAMPLE, "--json", str(path), *arguments, np=ranks).check()
        self.assertEqual(job.output.count("test error"), 1, job.output)
        return json.loads(path.read_text("utf-8"))

    def test_four_workers_match_one(self):
        one_worker = self.result(ranks=1)
        self.assertLess(one_worker["test_error"], 0.05)
        asynchronous = self.result(ranks=4)
        synchronous = self.result("--sync", ranks=4)
        for result, points in ((asynchronous, 1), (synchronous, 0.5)):
            self.assertEqual((result["workers"], result["updates"]), (4, one_worker["updates"]))
            difference = abs(result["test_error"] - one_worker["test_error"])
            self.assertLessEqual(difference, points * POINT)

    def test_sync_runs_are_bitwise_identical(self):
        options = ("--sync", "--epochs", "3", "--batch-size", "33")
        first, second = (self.result(*options, ranks=3) for _ in range(2))
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])
        self.assertEqual(len(first["history"]), 3)

    def test_accepts_larger_images(self):
        rng = np.random.default_rng(0)
        arrays = {}
        for part, count in (("train", 120), ("test", 30)):
            arrays[f"x_{part}"] = rng.integers(0, 256, (count, 13, 13)).astype(np.uint8)
            arrays[f"y_{part}"] = np.arange(count) % 3
        path = self.folder / "images.npz"
        np.savez(path, **arrays)
        result = self.result("--data", str(path), "--epochs", "2", ranks=2)
        self.assertEqual(result["updates"], 2 * 5)

    def test_non_square_images_print_one_sentence(self):
        path = self.folder / "images.npz"
        images, labels = np.zeros((12, 90), np.uint8), np.zeros(12, np.int64)
        np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), "--data", str(path)],
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^error: .*expected square images.*received 90 pixels\n$")
