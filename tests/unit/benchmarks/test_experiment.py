"""The benchmark experiment.py: its runs, bars, table and plots, from given results."""

import sys
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

pytestmark = pytest.mark.frameworks

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import experiment  # noqa: E402


def run_of(plan, error, seconds=(2.0, 1.0, 4.0)):
    """Return a run as in the report, with this error after every epoch."""
    history = [[0.5, error]] * len(seconds)
    result = {"test_error": error, "updates": 3, "history": history, "epoch_seconds": seconds}
    return experiment.summarize(plan, result)


def digits_runs(*errors):
    plans = experiment.make_plans("digits", 4)[1]
    return [run_of(plan, error) for plan, error in zip(plans, errors, strict=True)]


class TestExperiment(FolderTestCase):
    def passed(self, *errors):
        return [bar["passed"] for bar in experiment.compare("digits", digits_runs(*errors))]

    def test_each_mode_has_its_bars(self):
        self.assertEqual(self.passed(0.04, 0.05, 0.045, 0.045), [True, True, True])
        self.assertEqual(self.passed(0.04, 0.03, 0.035, 0.035), [True, True, True])
        self.assertEqual(self.passed(0.04, 0.051, 0.045, 0.045), [False, True, True])
        self.assertEqual(self.passed(0.04, 0.04, 0.046, 0.046), [True, False, True])
        self.assertEqual(self.passed(0.04, 0.04, 0.041, 0.0410001), [True, True, False])

    def test_programs_exist_and_the_plain_one_is_first(self):
        for name in ("digits", "resnet", "keras-resnet"):
            program, plans = experiment.make_plans(name, 3)
            self.assertTrue(program.is_file())
            self.assertEqual([plan.ranks for plan in plans][0], 1)
            self.assertEqual({plan.ranks for plan in plans}, {1, 3})
        self.assertEqual(plans[0].options[0], "--plain")

    def test_computes_speedup_and_overhead(self):
        plans = experiment.make_plans("resnet", 2)[1]
        times = ([4, 4, 9], [5, 5, 1], [2, 2, 2], [1, 1, 1])
        runs = [run_of(plan, 0.25, t) for plan, t in zip(plans, times, strict=True)]
        rows = experiment.to_markdown(runs).splitlines()[2:]
        self.assertEqual(rows[0], "| 0M-1P | 75.00% | 4.000 | 1.00 |  |")
        self.assertEqual(rows[1], "| 1M-1P | 75.00% | 5.000 | 0.80 | +25.0% |")
        self.assertEqual(rows[3], "| 1M-2P, freq 3 | 75.00% | 1.000 | 4.00 |  |")

    def test_reads_histories_of_the_residual_network(self):
        epochs = [{"cost": 1.0, "seconds": 2.0, "test_error": e} for e in (0.5, 0.25)]
        result = {"test_error": 0.25, "updates": 2, "history": epochs, "data": "generated"}
        run = experiment.summarize(experiment.Plan("1M-1P", 1), result)
        self.assertEqual((run["accuracies"], run["seconds"]), ([0.5, 0.75], [2.0, 2.0]))
        self.assertEqual((run["accuracy"], run["data"]), (0.75, "generated"))

    @needs("matplotlib")
    def test_writes_three_plots(self):
        experiment.plot(digits_runs(0.1, 0.2, 0.3, 0.3), self.folder)
        pictures = ["accuracy_epoch.png", "accuracy_time.png", "time_epoch.png"]
        self.assertEqual(self.names(), pictures)
