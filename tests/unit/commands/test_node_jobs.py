"""The module _node_jobs: the jobs on a node that ``multiverso top`` finds, and their summary."""

import json
import os
import sys
import unittest

from programs import output_of

import multiverso as mv
from multiverso._commands import _node_jobs


def member(rank, calls, worker_id=0):
    return {"rank": rank, "calls": calls, "worker_id": worker_id, "pid": 1, "alive": True}


def observed_job(seconds, calls, adds, num_bytes):
    """Return the state of a job of two workers and a server with one table, seen at a time.

    Each worker has made `calls` calls or two more; `adds` are the adds of the ranks, and
    `num_bytes` are the bytes got by one worker and those added by the other.
    """
    members = [member(0, calls), member(1, calls + 2), member(2, 0, worker_id=-1)]
    table = {"id": 0, "name": "w", "num_row": 5, "num_col": 1, "capacity": 0, "keys": None}
    table |= {"gets": [1, 2, 0]}
    table |= {"bytes_sent": [0, 0, 0], "bytes_received": [0, 0, 0]}
    table |= {"raw_bytes_sent": [0, 0, 0], "raw_bytes_received": [0, 0, 0]}
    table |= {"encoding": [0, 0, 0], "waiting": [0, 0, 0]}
    table |= {"adds": adds, "bytes_got": [num_bytes, 0, 0], "bytes_added": [0, num_bytes, 0]}
    content = {"version": "1", "ranks": 3, "nodes": 1, "node": 0, "mode": 0, "continues": False}
    content |= {"name": "train", "published": 2, "started": 7, "saved": None, "elastic": False}
    content |= {"max_workers": 0, "members": members, "tables": [table]}
    return _node_jobs.JobState((0, 1), seconds, content)


class TestSummary(unittest.TestCase):
    """Rates are computed from two observations of a job."""

    def test_summary_has_rates_and_lags(self):
        before = observed_job(seconds=10.0, calls=100, adds=[5, 5, 0], num_bytes=0)
        after = observed_job(seconds=12.0, calls=300, adds=[9, 6, 0], num_bytes=10**9)
        job = _node_jobs.summarize(after, before)
        rates = [summary["calls_per_second"] for summary in job["members"]]
        self.assertEqual(rates, [100.0, 100.0, 0.0])
        self.assertEqual([summary["behind"] for summary in job["members"]], [0, 3, 0])
        self.assertEqual(job["tables"][0]["gigabytes_per_second"], 1.0)
        self.assertEqual((job["tables"][0]["gets"], job["tables"][0]["adds"]), (3, 15))

    def test_first_summary_has_no_rates(self):
        first = observed_job(seconds=10.0, calls=100, adds=[5, 5, 0], num_bytes=0)
        job = _node_jobs.summarize(first, None)
        self.assertIsNone(job["members"][0]["calls_per_second"])
        self.assertIsNone(job["tables"][0]["gigabytes_per_second"])

    def test_summary_says_whether_the_job_is_elastic(self):
        state = observed_job(seconds=10.0, calls=100, adds=[5, 5, 0], num_bytes=0)
        job = _node_jobs.summarize(state, None)
        self.assertEqual((job["elastic"], job["max_workers"]), (False, 0))
        state.content.update(elastic=True, max_workers=8)
        job = _node_jobs.summarize(state, None)
        self.assertEqual((job["elastic"], job["max_workers"]), (True, 8))


class TestFindJobs(unittest.TestCase):
    def test_job_is_found_by_other_processes_only(self):
        # The names have escape sequences, which JSON must not pass to a terminal.
        with mv.session(name=(name := f"top \x1b {os.getpid()}")):
            table = mv.ArrayTableHandler(10, name="\x1b[31mred\x07")
            table.add(range(10))
            table.get()
            jobs = _node_jobs.find_jobs()
            pids = {member["pid"] for job in jobs for member in job.content["members"]}
            command = (sys.executable, "-m", "multiverso", "top", "--once", "--json")
            printed = output_of(*command, "--interval", "0.05")
        own_pid = os.getpid()
        self.assertNotIn(own_pid, pids)
        (own_job,) = (job for job in json.loads(printed) if job["members"][0]["pid"] == own_pid)
        found = own_job["tables"][0]
        self.assertEqual((own_job["name"], found["name"]), (name, "\x1b[31mred\x07"))
        self.assertEqual(found["adds"], 1)
        self.assertRegex(own_job["members"][0]["call"], r"get of table '.*red.*' \(40 bytes\)")
