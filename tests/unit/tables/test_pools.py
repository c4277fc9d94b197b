"""The tasks of pools of processes read the tables of the process that owns the pool."""

import os
import sys
import tempfile
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


def by_dask(job):
    dask = pytest.importorskip("dask")
    return list(dask.compute(*[dask.delayed(total)(job, p) for p in PARTS], scheduler="processes"))


def by_dask_workers(job):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        return client.gather(client.map(total, [job] * len(PARTS), PARTS, pure=False))


class Reader:
    """An actor of Ray, which keeps its view."""

    def __init__(self, job):
        self.data = mv.attach(job).tables["data"]

    def total(self, part):
        return float(self.data.get(range(*part)).sum())


def by_ray(job):
    ray = pytest.importorskip("ray")
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(total)
    by_tasks = ray.get([remote.remote(job, part) for part in PARTS])
    actor = ray.remote(Reader).remote(job)
    assert ray.get([actor.total.remote(part) for part in PARTS]) == by_tasks
    return by_tasks


def train(steps):
    with mv.session():
        table = mv.ArrayTable(1)
        for _ in range(steps):
            table.add([1])
        mv.barrier()
        return float(table.get()[0])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let the processes of pools import this module and those that it imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


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

    @pytest.mark.frameworks
    def test_tasks_of_joblib_see_each_add_that_has_returned(self):
        self.check(by_joblib)

    @pytest.mark.frameworks
    def test_tasks_of_dask_see_each_add_that_has_returned(self):
        self.check(by_dask)
        self.check(by_dask_workers)

    @pytest.mark.frameworks
    def test_tasks_and_actors_of_ray_see_each_add_that_has_returned(self):
        ray = pytest.importorskip("ray")
        self.addCleanup(ray.shutdown)
        self.check(by_ray)


@pytest.mark.frameworks
class TestSubmitit(unittest.TestCase):
    def test_runs_a_job_of_several_ranks(self):
        submitit = pytest.importorskip("submitit")
        with tempfile.TemporaryDirectory() as folder:
            executor = submitit.LocalExecutor(folder)
            executor.update_parameters(timeout_min=5)
            self.assertEqual(executor.submit(mv.spawn, train, 2, (3,)).result(), [6.0, 6.0])
