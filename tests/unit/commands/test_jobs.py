"""The summary of jobs that ``multiverso top`` finds from outside."""

import json
import os
import sys
import unittest

from programs import output_of

import multiverso as mv
from multiverso._commands import _node_jobs


def member(rank, calls, worker_id=0, pid=1):
    return {"rank": rank, "calls": calls, "worker_id": worker_id, "pid": pid}


def node(at, calls, adds, got):
    """Return a job of two workers and a server with one table."""
    members = [member(0, calls), member(1, calls + 2), member(2, 0, worker_id=-1)]
    table = {"id": 0, "name": "w", "num_row": 5, "num_col": 1, "gets": [1, 2, 0]}
    table |= {"adds": adds, "bytes_got": [got, 0, 0], "bytes_added": [0, got, 0]}
    rest = {"version": "1", "ranks": 3, "nodes": 1, "node": 0, "mode": 0, "continues": False}
    rest |= {"started": 7, "saved": None}
    return _node_jobs.JobState((0, 1), at, {**rest, "members": members, "tables": [table]})


class TestSummary(unittest.TestCase):
    """Rates are computed from two observations of a job."""

    def test_summary_has_rates_and_lags(self):
        before = node(10.0, 100, [5, 5, 0], 0)
        job = _node_jobs.summarize(node(12.0, 300, [9, 6, 0], 10**9), before)
        rates = [one["calls_per_second"] for one in job["members"]]
        self.assertEqual(rates, [100.0, 100.0, 0.0])
        self.assertEqual([one["behind"] for one in job["members"]], [0, 3, 0])
        self.assertEqual(job["tables"][0]["gigabytes_per_second"], 1.0)
        self.assertEqual((job["tables"][0]["gets"], job["tables"][0]["adds"]), (3, 15))

    def test_first_summary_has_no_rates(self):
        job = _node_jobs.summarize(node(10.0, 100, [5, 5, 0], 0), None)
        self.assertIsNone(job["members"][0]["calls_per_second"])
        self.assertIsNone(job["tables"][0]["gigabytes_per_second"])


class TestFindJobs(unittest.TestCase):
    def test_job_is_found_by_other_processes_only(self):
        with mv.session():
            table = mv.ArrayTableHandler(10, name="mine")
            table.add(range(10))
            table.get()
            own = {one["pid"] for job in _node_jobs.find_jobs() for one in job.content["members"]}
            command = (sys.executable, "-m", "multiverso", "top", "--once", "--json")
            printed = output_of(*command, "--interval", "0.05")
        pid = os.getpid()
        self.assertNotIn(pid, own)
        (mine,) = (job for job in json.loads(printed) if job["members"][0]["pid"] == pid)
        table = mine["tables"][0]
        self.assertEqual((table["name"], table["adds"]), ("mine", 1))
        self.assertIn("get of table 'mine' (40 bytes)", mine["members"][0]["call"])
