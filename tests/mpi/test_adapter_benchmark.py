"""The benchmark of the adapters measures one worker and two, with Multiverso and without."""

import json
import os
import unittest
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

from launch import run

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release]

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "adapters.py"


@needs("torch")
@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
class TestAdapterBenchmark(FolderTestCase):
    def test_adapter_benchmark_measures_one_and_two_workers(self):
        target = self.folder / "report.json"
        arguments = ["torch", "--quick", "--silent", "--seconds", "1", "--batches", "2"]
        arguments += ["--json", str(target)]
        runs = []
        for np, extra_arguments in ((1, []), (2, []), (1, ["--all-cores"])):
            run(PROGRAM, *arguments, *extra_arguments, np=np, OMP_NUM_THREADS="1").check()
            report = json.loads(target.read_text("utf-8"))
            self.assertIn("torch", report["environment"]["frameworks"])
            runs += report["runs"]
        self.assertEqual([run["ranks"] for run in runs], [1, 2, 1])
        names = [[series["name"] for series in run["cases"][0]["series"]] for run in runs]
        self.assertEqual(names[0], ["with Multiverso", "plain training"])
        self.assertEqual(names[1], ["2 workers", "one worker", "both plain"])
        self.assertEqual(names[2], names[0])
        references = ("plain training", "one worker", "plain training")
        for measured, reference in zip(runs, references, strict=True):
            (case,) = measured["cases"]
            for series in case["series"]:
                self.assertGreater(min(series["seconds"]), 0)
            (bar,) = measured["bars"]
            self.assertEqual(bar["reference"], reference)
            self.assertEqual(bar["passed"], bar["measured"] >= bar["speed"])
            low, high = bar["interval"]
            self.assertTrue(low <= bar["measured"] <= high, bar)
