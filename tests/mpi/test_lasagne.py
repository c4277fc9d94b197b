"""Lasagne networks on 1 to 4 ranks: one start, everybody's gains, errors that reach all."""

import importlib.util
import unittest

from launch import run

PROGRAM = "lasagne_params.py"


@unittest.skipUnless(importlib.util.find_spec("lasagne"), "needs Lasagne")
class TestNetworks(unittest.TestCase):
    def test_all_start_from_the_master_and_gain_from_all(self):
        for ranks in (1, 2, 3, 4):
            for mode in ("async", "sync"):
                with self.subTest(mode, ranks=ranks):
                    reports = run(PROGRAM, mode, np=ranks).check().reports
                    self.assertEqual(sorted(reports), list(range(ranks)))
                    for report in reports.values():
                        self.assertEqual(report.pop("equal", [True] * 4), [True] * 4)
                        self.assertEqual(report, {"starts": [True] * 4, "ends": [True] * 4})

    def test_training_functions_step_with_the_gradients_of_all(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                for report in run(PROGRAM, "training", np=ranks).check().reports.values():
                    self.assertEqual(report, {"weights": True, "bias": True})

    def test_statistics_are_averaged_or_the_masters_or_each_workers_own(self):
        for report in (reports := run(PROGRAM, "statistics", np=3).check().reports).values():
            self.assertEqual(report["statistics"]["average"], [112.0, 1])
            self.assertEqual(report["statistics"]["master"], [106.0, 1])
        for rank, report in reports.items():
            own = [100.0 + rank + 6 * (rank + 1), rank + 1]
            self.assertEqual(report["statistics"]["False"], own)

    def test_what_is_wrong_on_one_rank_reaches_all(self):
        wrong = {"empty": "ValueError", "no layer": "TypeError", "another size": "MismatchError"}
        for scenario, error in wrong.items():
            with self.subTest(scenario):
                reports = run(PROGRAM, scenario, np=3).check().reports
                kinds = [reports[rank]["error"][0] for rank in range(3)]
                self.assertEqual(kinds, [error, "MismatchError", "MismatchError"])
                for report in reports.values():
                    self.assertEqual(report["after"], [3.0, 3.0])


if __name__ == "__main__":
    unittest.main()
