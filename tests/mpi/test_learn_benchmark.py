"""The benchmark of multiverso.learn runs in a job of three ranks and checks itself."""

import json
import sys
import unittest
from pathlib import Path

import numpy as np
import pytest
from folders import FolderTestCase
from requirements import needs

import launch

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release]

LEARN = Path(__file__).parents[2] / "benchmarks" / "learn.py"


@needs("keras", "torch", "h5py", "tqdm")
class TestLearnBenchmark(FolderTestCase):
    def test_learn_benchmark_measures_steps_and_updates(self):
        target = self.folder / "report.json"
        arguments = ["--quick", "--sample", "0.02", "--silent", "--backend", "torch"]
        launch.run(LEARN, *arguments, "--json", str(target), np=3, timeout=400.0).check()
        one_worker, two_workers = json.loads(target.read_text("utf-8"))["runs"]
        found = [
            (run["ranks"], case["operation"], [series["name"] for series in case["series"]])
            for run in (one_worker, two_workers)
            for case in run["cases"]
        ]
        wanted = [
            (1, "training step", ["Multiverso", "plain Keras"]),
            (1, "update", ["Multiverso", "mpi_learn's protocol"]),
            (2, "training step", ["Multiverso, 2 workers", "one worker"]),
        ]
        self.assertEqual(found, wanted)
        for case in (*one_worker["cases"], *two_workers["cases"]):
            for series in case["series"]:
                self.assertGreater(min(series["seconds"]), 0)
        bars = [bar["reference"] for bar in (*one_worker["bars"], *two_workers["bars"])]
        self.assertEqual(bars, ["plain Keras", "mpi_learn's protocol", "one worker"])


class TestReferenceOptimizer(unittest.TestCase):
    def test_its_steps_are_those_of_adam(self):
        sys.path.insert(0, str(LEARN.parent))
        try:
            from mpi_learn_protocol import NumPyAdam
        finally:
            sys.path.remove(str(LEARN.parent))
        optimizer = NumPyAdam([2], learning_rate=0.5)
        (weights,) = optimizer.apply([np.zeros(2, np.float32)], [np.float32([2.0, -3.0])])
        # The size of the first step is the learning rate, whatever the gradient.
        np.testing.assert_allclose(weights, [-0.5, 0.5], rtol=1e-5)
        (weights,) = optimizer.apply([weights], [np.float32([2.0, -3.0])])
        np.testing.assert_allclose(weights, [-1.0, 1.0], rtol=1e-5)
