"""``multiverso join``: the job that it finds, and what it starts. No job here has tables."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from multiverso._commands import _node_jobs, main
from multiverso.errors import StateError


def job(key, name, pids, **content):
    members = [{"rank": rank, "pid": pid, "alive": pid != DEAD} for rank, pid in enumerate(pids)]
    return _node_jobs.JobState((0, key), 0.0, {"name": name, "members": members, **content})


HERE = os.getpid()
PARENT = os.getppid()
#: A rank with this process id takes no part any more.
DEAD = 2**22 + 1


class TestFindElasticJob(unittest.TestCase):
    def find(self, target, *jobs):
        with mock.patch.object(_node_jobs, "find_jobs", return_value=list(jobs)):
            return _node_jobs.find_elastic_job(target)

    def test_finds_a_job_by_name_rank_and_launcher(self):
        other = job(1, "other", [1], elastic=True)
        train = job(2, "train", [DEAD, HERE], elastic=True)
        for target in ("train", str(HERE), str(PARENT)):
            self.assertEqual(self.find(target, other, train), "train")

    def test_ambiguous_name_is_replaced_by_a_process(self):
        jobs = job(1, "train", [1], elastic=True), job(2, "train", [DEAD, HERE], elastic=True)
        self.assertEqual(self.find(str(PARENT), *jobs), str(HERE))
        self.assertEqual(self.find("train", *jobs), "1")

    def test_dead_rank_does_not_find_a_job(self):
        with self.assertRaisesRegex(StateError, f"there is no job {DEAD}"):
            self.find(str(DEAD), job(2, "train", [DEAD, HERE], elastic=True))

    def test_job_that_is_not_elastic_is_refused(self):
        with self.assertRaisesRegex(StateError, "job train is not elastic.*--elastic"):
            self.find("train", job(1, "train", [HERE], elastic=False))

    def test_error_lists_the_jobs(self):
        jobs = (
            job(1, "train", [DEAD, HERE], elastic=True),
            job(2, "", [HERE, PARENT], elastic=False),
        )
        expected = (
            f"'train' with the processes {HERE}, with the processes {HERE}, {PARENT} (not elastic)"
        )
        with self.assertRaisesRegex(StateError, "no job x of this user") as e:
            self.find("x", *jobs)
        self.assertIn(expected, str(e.exception))
        with self.assertRaisesRegex(StateError, "the jobs are: none\n"):
            self.find("x")


class TestJoin(unittest.TestCase):
    def join(self, script, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.py")
            path.write_text(script, "utf-8")
            found = mock.patch.object(_node_jobs, "find_elastic_job", return_value="train")
            with found, mock.patch.dict(os.environ, {"MULTIVERSO_JOB": "of the parent"}):
                code = main(["join", "7", *arguments, str(path), folder])
            return code, sorted(path.name for path in Path(folder).glob("*-*"))

    def test_starts_processes_that_know_the_job(self):
        code, names = self.join(
            "import os, sys\n"
            "assert 'MULTIVERSO_JOB' not in os.environ\n"
            "name = '{MULTIVERSO_JOIN}-{MULTIVERSO_RANK}'.format(**os.environ)\n"
            "open(os.path.join(sys.argv[1], name), 'w')\n",
            "-np",
            "3",
        )
        self.assertEqual((code, names), (0, ["train-0", "train-1", "train-2"]))

    def test_code_is_that_of_the_process_that_failed(self):
        script = "import os, sys; sys.exit(4 if os.environ['MULTIVERSO_RANK'] == '1' else 0)"
        self.assertEqual(self.join(script, "-np", "2"), (4, []))

    def test_missing_script_and_missing_job_are_errors(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(main(["join", "7", "/nowhere/train.py"]), 2)
            self.assertEqual(main(["join", "no such job", __file__]), 1)
        self.assertIn("/nowhere/train.py: no such file", err.getvalue())
        self.assertIn("there is no job no such job of this user", err.getvalue())
