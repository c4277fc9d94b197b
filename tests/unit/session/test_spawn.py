"""`multiverso.spawn`, and the variables that make a process a rank of a job without MPI."""

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from folders import FolderTestCase
from programs import WALL_TIMEOUT, run_program, run_python
from requirements import needs

import multiverso as mv
from multiverso._local.cores import THREAD_VARIABLES, Cores
from multiverso._local.job import LocalJob, find_local_job, new_name
from multiverso._session.function_copy import Copied

ROOT = Path(mv.__file__).parents[1]

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


def fails_late(how):
    """Fail on rank 1, some time after the others, which have lost it and raise another error."""
    try:
        with mv.session(timeout=60):
            if mv.rank() == 1:
                sys.exit(3) if how == "exit" else returns_nothing()
            try:
                mv.barrier()
            except mv.PeerLostError:
                raise RuntimeError("a consequence") from None
    except (SystemExit, TypeError):
        time.sleep(1)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise


def returns_nothing(value):
    raise NotImplementedError


def waits_for_ever():
    threading.Event().wait()


def dies_after_a_fork(read_end, write_end):
    os.close(write_end)
    if os.fork() == 0:  # The child keeps the pipe to the process that has called mv.spawn.
        os.read(read_end, 1)  # until the test closes the other end
    os._exit(7)


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
            mv.errors.RankError, "rank 1 of 3 failed: ValueError: bad batch 17"
        ) as e:
            mv.spawn(fails, 3, (1, "raise"))
        self.assertEqual(e.exception.rank, 1)
        self.assertIn("in fails", str(e.exception))

    def test_error_is_that_of_the_rank_that_failed_first_though_others_end_before_it(self):
        for how, text in (
            ("exit", "SystemExit: 3"),
            ("raise", "TypeError: returns_nothing"),
            ("kill", "its process was ended by SIGKILL"),
        ):
            with self.subTest(how):
                with self.assertRaisesRegex(mv.errors.RankError, f"rank 1 of 3 .*{text}") as e:
                    mv.spawn(fails_late, 3, (how,), method="fork")
                self.assertEqual(e.exception.rank, 1)
                self.assertIn("2 more: PeerLostError of rank 1", str(e.exception))

    def test_death_of_a_rank_ends_the_others(self):
        for method in ("spawn", "fork"):
            with self.subTest(method):
                with self.assertRaisesRegex(mv.errors.RankError, "rank 2 of 3 .*exited with 7"):
                    mv.spawn(fails, 3, (2, "exit"), method=method)
                with self.assertRaisesRegex(mv.errors.RankError, "rank 2 of 3 .*exited with 7"):
                    mv.spawn(dies_while_others_wait, 3, method=method)

    def test_result_that_cannot_be_pickled_is_an_error(self):
        with self.assertRaisesRegex(mv.errors.RankError, "pickle"):
            mv.spawn(returns_what_cannot_be_pickled, 1)

    def test_ranks_may_write_their_output_after_they_have_returned(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "output")
            mv.spawn(prints_slowly, 1, (path,), method="fork")
            self.assertEqual(path.read_text("utf-8"), "written")

    def test_timeout_ends_ranks_that_still_run(self):
        with self.assertRaisesRegex(mv.OperationTimeout, r"still run: \[0, 1\]") as e:
            mv.spawn(waits_for_ever, 2, timeout=0.5)
        self.assertEqual(e.exception.rank, 0)

    def test_death_is_seen_though_a_child_of_the_rank_has_its_pipe(self):
        ends = os.pipe()
        try:
            with self.assertRaisesRegex(mv.errors.RankError, "rank 0 of 1 .*exited with 7"):
                mv.spawn(dies_after_a_fork, 1, ends, method="fork")
        finally:
            for end in ends:
                os.close(end)


#: Without a file, so that no process can import what it defines.
INTERACTIVE = """
    import threading
    import multiverso as mv

    class Result:
        def __init__(self, value):
            self.value = value

    factor = 10

    def total(start):
        with mv.session(timeout=60):
            table = mv.ArrayTableHandler(1)
            table.add([start.value + mv.rank()])
            mv.barrier()
            return Result(factor * int(table.get()[0]))
"""

CALL = """
    results = mv.spawn(total, 3, (Result(1),))
    print([result.value for result in results], isinstance(results[0], Result))
"""

#: Threads that a C library, or Python, has started.
THREAD = """
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

WITHOUT_CLOUDPICKLE = """
    import importlib.util
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = lambda name: None if name == "cloudpickle" else find_spec(name)
"""


class TestSpawnWithoutAScript(unittest.TestCase):
    def run_program(self, *parts):
        code = "".join(map(textwrap.dedent, parts))
        return run_program(code, OPENBLAS_NUM_THREADS="1", timeout=200)

    @needs("cloudpickle")
    def test_function_is_copied_from_a_process_with_threads(self):
        status, out, err = self.run_program(INTERACTIVE, THREAD, CALL)
        self.assertEqual((status, out), (0, "[60, 60, 60] True\n"), err)

    def test_process_with_one_thread_is_forked_without_cloudpickle(self):
        status, out, err = self.run_program(INTERACTIVE, WITHOUT_CLOUDPICKLE, CALL)
        self.assertEqual((status, out), (0, "[60, 60, 60] True\n"), err)

    def test_process_with_threads_needs_cloudpickle(self):
        status, out, err = self.run_program(INTERACTIVE, WITHOUT_CLOUDPICKLE, THREAD, CALL)
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, r"^mv.spawn needs cloudpickle .*2 threads.*pip install 'cloudpickle")

    @needs("cloudpickle")
    def test_copied_function_keeps_the_name_of_its_file(self):
        copy = pickle.loads(Copied(lambda: [lambda: None], copies=True).dumps())
        files = {code.co_filename for code in (copy.__code__, copy()[0].__code__)}
        self.assertEqual(files, {__file__})

    @needs("cloudpickle")
    def test_function_may_come_from_standard_input(self):
        code = "".join(map(textwrap.dedent, (INTERACTIVE, CALL)))
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-"],
            check=False,
            input=code,
            capture_output=True,
            text=True,
            timeout=WALL_TIMEOUT,
            env=environ,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "[60, 60, 60] True\n"), done.stderr)

    def test_threads_of_each_job_are_the_cores_per_rank(self):
        number = Cores.find().threads(2)
        with mock.patch.dict(os.environ):
            for variable in THREAD_VARIABLES:
                os.environ.pop(variable, None)
            for method in ("spawn", "forkserver", "fork"):
                with self.subTest(method):
                    found = mv.spawn(os.getenv, 2, ("NPROC",), method=method)
                    self.assertEqual(found, [str(number)] * 2)
                    self.assertNotIn("NPROC", os.environ)
            os.environ["OMP_NUM_THREADS"] = "7"
            self.assertEqual(mv.spawn(os.getenv, 1, ("NPROC",), method="forkserver"), ["7"])

    @needs("cloudpickle")
    def test_lines_arrive_while_the_ranks_run(self):
        function = """
            import os
            def reports(path):
                print("line")
                while not os.path.exists(path):
                    pass
        """
        code = "".join(map(textwrap.dedent, (INTERACTIVE, function)))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "read")
            code += f"mv.spawn(reports, 2, ({str(path)!r},))"
            with started("-c", code, stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual([process.stdout.readline() for _ in range(2)], 2 * ["line\n"])
                path.touch()
                self.assertEqual(process.wait(), 0)


class TestSpawnOfAScript(FolderTestCase):
    def write(self, code):
        path = self.folder / "train.py"
        path.write_text(textwrap.dedent(code), "utf-8")
        return path

    def test_script_that_its_ranks_cannot_import_starts_no_more_processes(self):
        script = self.write("""
            import sys
            import multiverso as mv
            with open(sys.argv[1], "a") as file:
                file.write("start\\n")
            def train():
                pass
            mv.spawn(train, 2)
        """)
        starts = self.folder / "starts"
        status, _, err = run_python(script, starts)
        self.assertEqual(status, 1)
        self.assertIn("RuntimeError", err)
        self.assertIn("current process has finished its bootstrapping phase", err)
        self.assertIn("multiverso.errors.RankError: rank ", err)
        self.assertIn('below if __name__ == "__main__":', err)
        self.assertLessEqual(len(starts.read_text("utf-8").split()), 3)

    def test_rank_may_end_before_it_has_read_large_arguments(self):
        script = self.write("""
            import sys
            import numpy as np
            import multiverso as mv
            if __name__ != "__main__":
                sys.exit(5)
            def train(array):
                pass
            mv.spawn(train, 2, (np.ones(10**6),))
        """)
        status, _, err = run_python(script, timeout=200)
        self.assertEqual(status, 1)
        self.assertRegex(err, "RankError: rank . of 2 failed: its process exited with 5")

    def test_session_that_a_script_opens_when_it_is_imported_is_an_error(self):
        script = self.write("""
            import multiverso as mv
            session = mv.init()
            def train():
                return mv.size()
            if __name__ == "__main__":
                mv.spawn(train, 2)
        """)
        status, _, err = run_python(script)
        self.assertEqual(status, 1)
        self.assertIn("expected no open session before the function is called", err)

    @unittest.skipUnless(sys.platform == "linux", "the kernel of Linux ends the ranks")
    def test_ranks_end_with_a_process_that_is_killed(self):
        script = self.write("""
            import os, signal, sys
            import multiverso as mv
            def train(folder):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                open(f"{folder}/pid-{os.getpid()}", "w").close()
                while True:
                    signal.pause()
            if __name__ == "__main__":
                mv.spawn(train, 2, (sys.argv[1],))
        """)
        with started(script, self.folder) as process:
            while len(found := list(self.folder.glob("pid-*"))) < 2:
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        for path in found:
            while Path("/proc", path.name.removeprefix("pid-"), "exe").exists():
                time.sleep(0.01)  # The test run has a time limit.


@contextlib.contextmanager
def started(*arguments, **options):
    """Run Python, which is killed at the end, and before if it runs longer than it ever needs."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen([sys.executable, *arguments], env=environ, **options) as process:
        timer = threading.Timer(WALL_TIMEOUT, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


class TestLocalJob(unittest.TestCase):
    def test_variables_name_the_job(self):
        job = LocalJob(new_name(), 2, 3)
        self.assertEqual(find_local_job(job.variables()), job)
        self.assertIsNone(find_local_job({}))

    def test_an_mpi_launcher_takes_precedence(self):
        variables = LocalJob(new_name(), 0, 2).variables()
        self.assertIsNone(find_local_job({**variables, "OMPI_COMM_WORLD_SIZE": "2"}))

    def test_torchrun_on_one_machine_names_a_job(self):
        job = find_local_job(TORCHRUN)
        self.assertEqual((job.rank, job.size), (1, 4))
        self.assertEqual(find_local_job({**TORCHRUN, "RANK": "3"}).name, job.name)
        again = find_local_job({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"})
        self.assertNotEqual(again.name, job.name)
        self.assertIsNone(find_local_job({**TORCHRUN, "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}))
