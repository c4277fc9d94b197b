"""The part of benchmarks/experiment.py that runs an example several times in one job."""

import json
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

import launch

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.release, pytest.mark.one_mpi]

ROOT = Path(__file__).parents[2]


@needs("torch", "tqdm")
class TestRepeatedRuns(FolderTestCase):
    def run_digits(self, *runs):
        target = self.folder / "report.json"
        program, example = ROOT / "benchmarks" / "repeated.py", ROOT / "examples/torch/digits.py"
        options = [["--epochs", "2", "--freq", "3", *run] for run in runs]
        arguments = [str(example), json.dumps(options), "--json", str(target)]
        return launch.run(program, *arguments, np=2), target

    def test_runs_an_example_with_each_of_the_arguments(self):
        sync, staleness = ("--sync", "--seed", "3"), ("--staleness", "1", "--seed", "3")
        job, target = self.run_digits(sync, staleness, sync)
        job.check()
        first, other, again = json.loads(target.read_text("utf-8"))
        self.assertEqual(first["history"], again["history"])
        self.assertNotEqual(first["history"], other["history"])
        self.assertEqual(first["workers"], 2)

    def test_fails_with_the_example(self):
        job, target = self.run_digits(("--sync",), ("--data", "none.npz"))
        self.assertNotEqual(job.returncode, 0)
        self.assertFalse(target.exists())
