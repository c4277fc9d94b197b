"""Modules of PyTorch on 1 to 4 ranks: one start, everybody's gains, errors that reach all."""

import importlib.util
import unittest

from launch import run

PROGRAM = "torch_params.py"


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
class TestModules(unittest.TestCase):
    def test_all_start_from_the_master_and_gain_from_all(self):
        for ranks in (1, 2, 3, 4):
            for mode in ("async", "sync"):
                with self.subTest(mode, ranks=ranks):
                    reports = run(PROGRAM, mode, np=ranks).check().reports
                    self.assertEqual(sorted(reports), list(range(ranks)))
                    for report in reports.values():
                        self.assertEqual(report, {"starts": [True] * 4, "ends": [True] * 4})

    def test_buffers_are_averaged_or_the_masters_or_each_workers_own(self):
        for report in (reports := run(PROGRAM, "buffers", np=3).check().reports).values():
            self.assertEqual(report["buffers"]["average"], [112.0, 1])
            self.assertEqual(report["buffers"]["master"], [106.0, 1])
        for rank, report in reports.items():
            self.assertEqual(report["buffers"]["False"], [106.0 + 7 * rank, rank + 1])

    def test_an_optimiser_steps_with_the_gradients_of_all(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                for report in run(PROGRAM, "optimizer", np=ranks).check().reports.values():
                    self.assertEqual(report, {"weight": True, "bias": True})

    def test_what_is_wrong_on_one_rank_reaches_all(self):
        for scenario, error in (("empty", "ValueError"), ("optimizer of none", "TypeError")):
            with self.subTest(scenario):
                reports = run(PROGRAM, scenario, np=3).check().reports
                kinds = [reports[rank]["error"][0] for rank in range(3)]
                self.assertEqual(kinds, [error, "MismatchError", "MismatchError"])


if __name__ == "__main__":
    unittest.main()
