"""ParamSync on 1 to 4 ranks: one start, everybody's gains, errors that reach all."""

import unittest

from launch import run

PROGRAM = "param_sync.py"


class TestParamSync(unittest.TestCase):
    def test_all_start_from_the_master_and_gain_from_all(self):
        for ranks in (1, 2, 3, 4):
            for mode in ("async", "sync", "stale"):
                with self.subTest(mode, ranks=ranks):
                    reports = run(PROGRAM, mode, np=ranks).check().reports
                    self.assertEqual(sorted(reports), list(range(ranks)))
                    for report in reports.values():
                        self.assertEqual(report, {"starts": True, "always": True, "tables": True})

    def test_rows_on_several_nodes(self):
        for ranks, per_node in ((2, 1), (4, 2)):
            with self.subTest(ranks=ranks, per_node=per_node):
                nodes = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
                reports = run(PROGRAM, "async", np=ranks, **nodes).check().reports
                for report in reports.values():
                    self.assertEqual(report, {"starts": True, "always": True, "tables": True})

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

    def test_no_arrays_on_one_rank(self):
        self.check_wrong_on_one("empty", "ValueError", "expected parameters")

    def test_other_sizes_on_one_rank_though_as_many_elements(self):
        self.check_wrong_on_one("layout", "MismatchError", "layout")

    def test_another_dtype_on_one_rank(self):
        self.check_wrong_on_one("dtypes", "MismatchError", "float")

    def test_no_arrays_on_any_rank(self):
        for report in run(PROGRAM, "all empty", np=3).check().reports.values():
            self.assertEqual(report["error"][0], "ValueError")

    def test_a_rank_that_only_keeps_the_table(self):
        reports = run(PROGRAM, "roles", np=2).check().reports
        self.assertEqual(reports[0]["error"][0], "StateError")
        self.assertEqual(reports[1], {"start": [1.0] * 3, "error": None})


if __name__ == "__main__":
    unittest.main()
