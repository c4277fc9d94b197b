"""The benchmark experiment.py: its configurations, bars, table and plots, from given results."""

import sys
from pathlib import Path

import pytest
from folders import FolderTestCase
from requirements import needs

pytestmark = pytest.mark.frameworks

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import experiment  # noqa: E402


def run_of(error, seconds=(2.0, 1.0, 4.0)):
    """Return a run as in the report, with this error after every epoch."""
    history = [[0.5, error]] * len(seconds)
    result = {"test_error": error, "updates": 3, "history": history, "epoch_seconds": seconds}
    return experiment.summarize(result)


def digits(*errors):
    """Return the configurations of digits on four workers, each with two seeds around its error."""
    plans = experiment.make_plans("digits", [4], list(experiment.MODES), [1])[1]
    return [
        experiment.combine(plan, [run_of(error - 0.002), run_of(error + 0.002)])
        for plan, error in zip(plans, errors, strict=True)
    ]


class TestExperiment(FolderTestCase):
    def passed(self, *errors, again=None):
        repeated = {"4 workers, sync": run_of((errors[2] if again is None else again) - 0.002)}
        verdicts = experiment.compare("digits", digits(*errors), repeated)
        return [verdict["passed"] for verdict in verdicts]

    def test_each_mode_has_its_bars(self):
        # One process, async, sync and bounded staleness.
        self.assertEqual(self.passed(0.04, 0.049, 0.044, 0.049), [True, True, True, True])
        self.assertEqual(self.passed(0.04, 0.031, 0.036, 0.031), [True, True, True, True])
        self.assertEqual(self.passed(0.04, 0.051, 0.044, 0.04), [False, True, True, True])
        self.assertEqual(self.passed(0.04, 0.04, 0.046, 0.04), [True, False, True, True])
        self.assertEqual(self.passed(0.04, 0.04, 0.04, 0.051), [True, True, False, True])
        near = self.passed(0.04, 0.04, 0.041, 0.04, again=0.0410001)
        self.assertEqual(near, [True, True, True, False])

    def test_rarer_syncs_have_no_bars(self):
        plans = experiment.make_plans("digits", [2], ["async"], [1, 3])[1]
        runs = [
            experiment.combine(plan, [run_of(error)])
            for plan, error in zip(plans, (0.04, 0.04, 0.5), strict=True)
        ]
        self.assertEqual(len(experiment.compare("digits", runs, {})), 1)

    def test_combines_workers_modes_and_frequencies(self):
        for name in ("digits", "resnet", "keras-resnet"):
            program, plans = experiment.make_plans(name, [2, 4], ["async", "sync"], [1, 3])
            self.assertTrue(program.is_file())
            parallel = [(plan.mode, plan.ranks, plan.freq) for plan in plans if plan.mode]
            wanted = [(m, w, f) for m in ("async", "sync") for w in (2, 4) for f in (1, 3)]
            self.assertEqual(parallel, wanted)
            self.assertEqual({plan.ranks for plan in plans if plan.mode is None}, {1})
            self.assertEqual(plans[-1].options[-3:], ("--sync", "--freq", "3"))
        self.assertEqual(plans[0].options[0], "--plain")

    def test_reports_means_spreads_and_speedups(self):
        plans = experiment.make_plans("resnet", [2], ["async"], [3])[1]
        times = ([4, 4, 9], [5, 5, 1], [1, 3, 2])
        runs = [
            experiment.combine(plan, [run_of(0.25, t), run_of(0.23, [2 * s for s in t])])
            for plan, t in zip(plans, times, strict=True)
        ]
        rows = experiment.to_markdown(runs).splitlines()[2:]
        self.assertEqual(rows[0], "| without Multiverso | 76.00% | 75.0 to 77.0 | 4000.0 | 1.00 |")
        self.assertEqual(rows[1], "| 1 worker | 76.00% | 75.0 to 77.0 | 5000.0 | 0.80 |")
        self.assertEqual(
            rows[2],
            "| 2 workers, async, every 3 batches | 76.00% | 75.0 to 77.0 | 2000.0 | 2.00 |",
        )

    def test_reads_histories_of_the_residual_network(self):
        epochs = [{"cost": 1.0, "seconds": 2.0, "test_error": e} for e in (0.5, 0.25)]
        result = {"test_error": 0.25, "updates": 2, "history": epochs, "data": "generated"}
        run = experiment.summarize(result)
        self.assertEqual((run["accuracies"], run["seconds"]), ([0.5, 0.75], [2.0, 2.0]))
        self.assertEqual((run["accuracy"], run["data"]), (0.75, "generated"))

    def test_curves_have_the_values_of_every_seed(self):
        first, *_ = digits(0.1, 0.2, 0.3, 0.4)
        curves = experiment.curves(first)
        self.assertEqual(curves["seconds of training"], [[2.0], [3.0], [7.0]])
        self.assertEqual(curves["epoch"], [[1], [2], [3]])
        self.assertEqual([round(v, 6) for v in curves["accuracy, %"][0]], [90.2, 89.8])

    @needs("matplotlib")
    def test_writes_three_plots(self):
        experiment.plot(digits(0.1, 0.2, 0.3, 0.3), self.folder)
        pictures = ["accuracy_epoch.png", "accuracy_time.png", "time_epoch.png"]
        self.assertEqual(self.names(), pictures)
