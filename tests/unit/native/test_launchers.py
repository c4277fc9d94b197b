"""Which variables of launchers a process uses: its own, not those of the rank that started it."""

import json
import unittest

from programs import run_program

#: Prints what a process finds, and then what a process finds that it starts.
FINDS = """
import json, subprocess, sys
from multiverso._local.job import find_join, find_local_job, find_worker_range
from multiverso._mpi.launcher import find_launcher
from multiverso._native.launchers import own_environ
own = own_environ()
job, launcher, workers = find_local_job(own), find_launcher(own), find_worker_range(own)
found = [job and job.rank, launcher and launcher.found_by[0], find_join(own), str(workers)]
print(json.dumps(found), flush=True)
if sys.argv[1:]:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
JOB = {"MULTIVERSO_JOB": "j", "MULTIVERSO_RANK": "1", "MULTIVERSO_SIZE": "3"}


class TestOwnEnviron(unittest.TestCase):
    def found_by(self, **variables):
        """Return what a process with these variables finds, and what a child of it finds."""
        status, out, err = run_program(FINDS, FINDS, **variables)
        self.assertEqual(status, 0, err)
        return [json.loads(line) for line in out.splitlines()]

    def test_child_of_a_rank_finds_no_launcher(self):
        none = [None, None, None, "None"]
        for variables, found in (
            (JOB, [1, None, None, "None"]),
            (TORCHRUN, [1, None, None, "None"]),
            ({"PMI_RANK": "0", "PMI_SIZE": "2"}, [None, "PMI_SIZE", None, "None"]),
            ({"OMPI_COMM_WORLD_SIZE": "2"}, [None, "OMPI_COMM_WORLD_SIZE", None, "None"]),
            (
                {"MULTIVERSO_JOIN": "train", "MULTIVERSO_ELASTIC": "1:2"},
                [None, None, "train", "1 to 2 ranks"],
            ),
        ):
            with self.subTest(variables):
                self.assertEqual(self.found_by(**variables), [found, none])

    def test_setting_without_a_launcher_is_inherited(self):
        found = [None, None, None, "1 to 2 ranks"]
        self.assertEqual(self.found_by(MULTIVERSO_ELASTIC="1:2"), [found, found])
