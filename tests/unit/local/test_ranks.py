"""The processes of a job without MPI, as programs that need no session."""

import sys
import unittest

from multiverso._local import ranks
from multiverso._local.cores import Share

PROGRAM = """
import os, signal, sys, time
rank = int(os.environ["MULTIVERSO_RANK"])
if rank == 1:
    {end}
time.sleep(60)
"""


class TestRun(unittest.TestCase):
    def run_job(self, end):
        """Run two ranks, of which rank 1 ends and rank 0 would run on; return code and reports."""
        reports = []
        command = [sys.executable, "-c", PROGRAM.format(end=end)]
        return ranks.run(command, [Share(), Share()], report=reports.append), reports

    def test_names_the_rank_that_a_signal_ended(self):
        code, reports = self.run_job("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(code, -9)
        self.assertEqual(len(reports), 1)
        self.assertRegex(reports[0], r"^rank 1 \(process \d+\) was ended by SIGKILL$")

    def test_leaves_other_ends_to_the_rank_itself(self):
        self.assertEqual(self.run_job("sys.exit(3)"), (3, []))


if __name__ == "__main__":
    unittest.main()
