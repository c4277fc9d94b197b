"""Shared variables on several ranks: one start, everybody's gains, errors that reach all."""

import importlib.util
import unittest

from launch import run

PROGRAM = "theano_sharedvar.py"
BACKENDS = ("pytensor", "aesara", "theano")


@unittest.skipUnless(
    any(map(importlib.util.find_spec, BACKENDS)), "needs PyTensor, Aesara or Theano"
)
class TestSharedVariables(unittest.TestCase):
    def test_all_start_from_the_master_and_gain_from_all(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                reports = run(PROGRAM, "values", np=ranks).check().reports
                self.assertEqual(sorted(reports), list(range(ranks)))
                for report in reports.values():
                    self.assertEqual(report["starts"], [[[10.0] * 5] * 3, 0.0, 0, [0.0] * 7])
                    self.assertEqual(report["equal"], [True] * 4)

    def test_sync_mode_and_a_thousand_variables(self):
        for ranks in (1, 3):
            for report in run(PROGRAM, "in step", np=ranks).check().reports.values():
                self.assertEqual(report, {"equal": True})

    def check_wrong_on_one(self, scenario, error, text):
        """Rank 0 gets `error` with `text`, the others a MismatchError, and all go on."""
        ranks = 3
        reports = run(PROGRAM, scenario, np=ranks).check().reports
        for rank in range(ranks):
            kind, message = reports[rank]["error"]
            self.assertEqual(kind, error if rank == 0 else "MismatchError", message)
            if rank == 0:
                self.assertRegex(message, text)
            self.assertEqual(reports[rank]["after"], [float(ranks)] * 3)

    def test_another_size_on_one_rank(self):
        self.check_wrong_on_one("size", "MismatchError", "4.*5|5.*4")

    def test_another_shape_on_one_rank(self):
        text = r"W, shape \(2, 3\).*W, shape \(3, 2\)|W, shape \(3, 2\).*W, shape \(2, 3\)"
        self.check_wrong_on_one("shape", "MismatchError", text)

    def test_another_type_on_one_rank(self):
        self.check_wrong_on_one("type", "TypeError", "received complex128")

    def test_an_error_of_the_framework_on_one_rank(self):
        self.check_wrong_on_one("framework", "TypeError", "wrong|constructor")

    def test_a_rank_that_only_keeps_tables(self):
        reports = run(PROGRAM, "roles", np=2).check().reports
        self.assertEqual(reports[1], {"start": [1.0] * 3, "error": None})
        self.assertEqual(reports[0]["error"][0], "StateError")


if __name__ == "__main__":
    unittest.main()
