"""The benchmark of multiverso.learn runs in a job of three ranks and checks itself."""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pytest

import launch

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

LEARN = Path(__file__).parents[2] / "benchmarks" / "learn.py"
NEEDED = ("keras", "torch", "h5py", "tqdm", "rich")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}")
class TestTheBenchmarkOfLearn(unittest.TestCase):
    def test_learn_benchmark_measures_steps_and_updates(self):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "report.json")
            words = ["--quick", "--sample", "0.02", "--silent", "--backend", "torch"]
            launch.run(LEARN, *words, "--json", str(target), np=3, limit=400.0).check()
            single, double = json.loads(target.read_text("utf-8"))["runs"]
        found = [
            (run["ranks"], case["operation"], [one["name"] for one in case["series"]])
            for run in (single, double)
            for case in run["cases"]
        ]
        wanted = [
            (1, "training step", ["Multiverso", "plain Keras"]),
            (1, "update", ["Multiverso", "mpi_learn's protocol"]),
            (2, "training step", ["Multiverso, 2 workers", "one worker"]),
        ]
        self.assertEqual(found, wanted)
        for case in (*single["cases"], *double["cases"]):
            for one in case["series"]:
                self.assertGreater(min(one["seconds"]), 0)
        bars = [bar["reference"] for bar in (*single["bars"], *double["bars"])]
        self.assertEqual(bars, ["plain Keras", "mpi_learn's protocol", "one worker"])


class TestItsStandIn(unittest.TestCase):
    def test_reference_optimizer_is_adam(self):
        sys.path.insert(0, str(LEARN.parent))
        try:
            from mpi_learn_protocol import NumPyAdam
        finally:
            sys.path.remove(str(LEARN.parent))
        optimizer = NumPyAdam([2], learning_rate=0.5)
        (weights,) = optimizer.apply([np.zeros(2, np.float32)], [np.float32([2.0, -3.0])])
        # The size of the first step is the learning rate, whatever the gradient.
        np.testing.assert_allclose(weights, [-0.5, 0.5], rtol=1e-5)
        again, other = optimizer.apply([weights], [np.float32([2.0, -3.0])])[0]
        np.testing.assert_allclose([again, other], [-1.0, 1.0], rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
