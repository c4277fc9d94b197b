"""`multiverso.spawn`, and the variables that make a process a rank of a job without MPI."""

import io
import os
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np

import multiverso as mv
from multiverso._local.job import LocalJob, find_local_job, new_name

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
}


def sums(start, *, leaves_open=False):
    mv.init(timeout=60)
    table = mv.MatrixTableHandler(2, 3)
    table.add(np.full((2, 3), start + mv.rank()))
    mv.barrier()
    result = float(table.get()[1, 2]), mv.rank(), mv.size()
    if not leaves_open:
        mv.shutdown()
    return result


def leaves_session_open(start):
    return sums(start, leaves_open=True)


def fails(rank, how):
    mv.init(timeout=60)
    if mv.rank() == rank:
        if how == "raise":
            raise ValueError("bad batch 17")
        os._exit(7)
    mv.barrier()


class SlowOutput(io.StringIO):
    """An output that is written some time after the function of a rank has returned."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def flush(self):
        time.sleep(0.5)
        self.path.write_text("written", "utf-8")


def prints_slowly(path):
    sys.stdout = SlowOutput(path)


def dies_while_others_wait():
    mv.init(timeout=60)
    if mv.rank() == 2:
        os._exit(7)
    threading.Event().wait()


def returns(value):
    return value


def returns_what_cannot_be_pickled():
    return lambda: None


class TestSpawn(unittest.TestCase):
    def test_returns_the_results_in_rank_order(self):
        for method in (None, "spawn", "fork", "forkserver"):
            with self.subTest(method=method):
                expected = [(2 * 5.0 + 1, rank, 2) for rank in range(2)]
                self.assertEqual(mv.spawn(sums, 2, (5,), method=method), expected)

    def test_one_rank(self):
        self.assertEqual(mv.spawn(sums, nprocs=1, args=[1]), [(1.0, 0, 1)])

    def test_closes_a_session_that_is_left_open(self):
        self.assertEqual(mv.spawn(leaves_session_open, 3, (0,))[2], (3.0, 2, 3))

    def test_receives_large_results(self):
        big = np.arange(10**6)
        for received in mv.spawn(returns, 2, (big,)):
            np.testing.assert_array_equal(received, big)

    def test_error_of_a_rank_ends_the_others(self):
        with self.assertRaisesRegex(
            mv.RankError, "rank 1 of 3 failed: ValueError: bad batch 17"
        ) as e:
            mv.spawn(fails, 3, (1, "raise"))
        self.assertEqual(e.exception.rank, 1)
        self.assertIn("in fails", str(e.exception))

    def test_death_of_a_rank_ends_the_others(self):
        for method in ("spawn", "fork"):
            with self.subTest(method):
                with self.assertRaisesRegex(mv.RankError, "rank 2 of 3 .*exited with 7"):
                    mv.spawn(fails, 3, (2, "exit"), method=method)
                with self.assertRaisesRegex(mv.RankError, "rank 2 of 3 .*exited with 7"):
                    mv.spawn(dies_while_others_wait, 3, method=method)

    def test_result_that_cannot_be_pickled_is_an_error(self):
        with self.assertRaisesRegex(mv.RankError, "pickle"):
            mv.spawn(returns_what_cannot_be_pickled, 1)

    def test_ranks_may_write_their_output_after_they_have_returned(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "output")
            mv.spawn(prints_slowly, 1, (path,), method="fork")
            self.assertEqual(path.read_text("utf-8"), "written")

    def test_rejects_wrong_arguments(self):
        for nprocs in (0, -1):
            with self.assertRaisesRegex(ValueError, "nprocs"):
                mv.spawn(sums, nprocs)
        with self.assertRaisesRegex(TypeError, "nprocs"):
            mv.spawn(sums, "2")
        with self.assertRaisesRegex(ValueError, "method"):
            mv.spawn(sums, 2, (1,), method="thread")

    def test_refuses_to_fork_an_open_session(self):
        with mv.session(), self.assertRaisesRegex(mv.StateError, "shutdown"):
            mv.spawn(sums, 2, (1,), method="fork")


class TestLocalJob(unittest.TestCase):
    def test_variables_name_the_job(self):
        job = LocalJob(new_name(), 2, 3)
        self.assertEqual(find_local_job(job.variables()), job)
        self.assertIsNone(find_local_job({}))

    def test_an_mpi_launcher_takes_precedence(self):
        variables = LocalJob(new_name(), 0, 2).variables()
        self.assertIsNone(find_local_job({**variables, "OMPI_COMM_WORLD_SIZE": "2"}))

    def test_rejects_wrong_variables(self):
        variables = LocalJob("job", 0, 2).variables()
        for wrong in (
            {"MULTIVERSO_RANK": "2"},
            {"MULTIVERSO_RANK": "-1"},
            {"MULTIVERSO_SIZE": "two"},
            {"MULTIVERSO_JOB": ""},
            {"MULTIVERSO_JOB": 65 * "x"},
        ):
            with self.subTest(wrong), self.assertRaises(mv.LauncherError):
                find_local_job({**variables, **wrong})

    def test_torchrun_on_one_machine_names_a_job(self):
        job = find_local_job(TORCHRUN)
        self.assertEqual((job.rank, job.size), (1, 4))
        self.assertEqual(find_local_job({**TORCHRUN, "RANK": "3"}).name, job.name)
        again = find_local_job({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"})
        self.assertNotEqual(again.name, job.name)
        self.assertIsNone(find_local_job({**TORCHRUN, "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}))

    def test_torchrun_on_several_machines_is_refused(self):
        with self.assertRaisesRegex(mv.LauncherError, "mpirun"):
            find_local_job({**TORCHRUN, "LOCAL_WORLD_SIZE": "2"})


if __name__ == "__main__":
    unittest.main()
