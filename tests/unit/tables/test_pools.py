"""The tasks of pools of processes read the tables of the process that owns the pool."""

import os
import unittest
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from requirements import needs_found_sessions

import multiverso as mv

PARTS = [(0, 300), (300, 1000), (999, 1000)]


def total(job, part):
    with mv.attach(job) as view:
        return float(view.tables["data"].get(range(*part)).sum())


def by_executor(job):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(total, [job] * len(PARTS), PARTS))


def by_joblib(job):
    joblib = pytest.importorskip("joblib")
    return joblib.Parallel(n_jobs=2)(joblib.delayed(total)(job, part) for part in PARTS)


@needs_found_sessions
class TestPools(unittest.TestCase):
    def check(self, run):
        job = f"pool-{os.getpid()}"
        with mv.session(name=job):
            data = mv.MatrixTable(1000, 3, name="data")
            for times in (1, 2):
                data.add(np.ones((1000, 3), np.float32))
                self.assertEqual(run(job), [3 * times * (end - begin) for begin, end in PARTS])

    def test_tasks_of_an_executor_see_each_add_that_has_returned(self):
        self.check(by_executor)

    def test_tasks_of_joblib_see_each_add_that_has_returned(self):
        self.check(by_joblib)


if __name__ == "__main__":
    unittest.main()
