"""The residual network of the examples runs on files of CIFAR-10 and on generated images."""

import importlib.util
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest

from launch import run

EXAMPLE = (
    Path(__file__).parents[2]
    / "examples"
    / "theano"
    / "lasagne"
    / "Deep_Residual_Learning_CIFAR-10.py"
)
MISSING = [name for name in ("lasagne", "tqdm") if importlib.util.find_spec(name) is None]
RECORD_BYTES = 1 + 3 * 32 * 32  # a label, and an image of 32 x 32 pixels in three colors
COMPILE_TIMEOUT = 500.0  # seconds for a job that compiles the network first

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


@unittest.skipIf(MISSING, f"needs {' and '.join(MISSING)}")
class TestResidualNetwork(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def result(self, *arguments, ranks):
        path = self.folder / "result.json"
        options = ("--json", str(path), "--batch-size", "6", *arguments)
        job = run(EXAMPLE, *options, np=ranks, timeout=COMPILE_TIMEOUT).check()
        self.assertEqual(job.output.count("test error"), 1, job.output)
        return json.loads(path.read_text("utf-8"))

    def test_files_of_cifar10_in_lock_step_twice(self):
        rng = np.random.default_rng(0)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            records = rng.integers(0, 256, (6, RECORD_BYTES)).astype(np.uint8)
            records[:, 0] %= 10
            (self.folder / f"{name}.bin").write_bytes(records.tobytes())
        options = ("--data", str(self.folder), "--depth", "8", "--epochs", "2", "--sync")
        first, second = (self.result(*options, "--test-each", ranks=2) for _ in range(2))
        self.assertEqual((first["data"], first["workers"]), ("CIFAR-10", 2))
        self.assertEqual((first["depth"], first["updates"]), (8, 2 * 5))
        self.assertEqual(len(first["history"]), 2)
        for result in (first, second):
            for epoch in result["history"]:
                del epoch["seconds"]
        self.assertEqual(first["history"], second["history"])
        self.assertEqual(first["test_error"], second["test_error"])

    def test_generated_images_are_announced(self):
        options = ("--samples", "20", "--epochs", "1", "--freq", "3")
        result = self.result(*options, ranks=1)
        self.assertEqual((result["data"], result["updates"]), ("generated", 4))
        plain = self.result(*options, "--plain", ranks=1)
        self.assertEqual(plain["updates"], 4)
        # A sync may round: last + (current - last) does not always equal current.
        self.assertAlmostEqual(plain["history"][0]["cost"], result["history"][0]["cost"], places=4)
