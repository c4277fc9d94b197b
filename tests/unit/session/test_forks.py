"""Forked children cannot use the session of their parent, but can open their own."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import unittest

import numpy as np
from requirements import needs_found_sessions
from sessions import SessionCleanupTestCase

import multiverso as mv


def errors_of_uses(table, future):
    """Use the parent's session; return the names of the errors, and whether a session is open."""
    names = set()
    for call in (
        *(table.get, lambda: table.add([1, 2]), lambda: table.options),
        *(future.result, table.flush, lambda: table.add_async([1, 2])),
        *(mv.barrier, mv.rank, mv.worker_id, mv.init, mv.shutdown),
        lambda: mv.ArrayTableHandler(1),
        lambda: table.prepare_add(np.ones(2, np.float32))(),
    ):
        try:
            call()
            names.add("nothing")
        except Exception as error:
            names.add(type(error).__name__)
    return names, mv.is_initialized()


def send_errors(pipe, table, future):
    pipe.send(errors_of_uses(table, future))


def outcome_in_child(call):
    """Return the name of the error that a function raises in a forked child, or its result."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(call())
        except BaseException as error:
            text = type(error).__name__
        os.write(sending, text.encode())
        os._exit(0)
    os.close(sending)
    with open(receiving) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return text if code == 0 else f"signal {-code}"


#: A job that publishes and then waits for its input to end.
JOB = """
import sys
import multiverso as mv
with mv.session(name=sys.argv[1]):
    array = mv.ArrayTableHandler(3, 5, name="array")
    matrix = mv.MatrixTableHandler(2, 2, 5, name="matrix")
    hashed = mv.HashTableHandler(2, 10, 5, name="hashed")
    hashed.get([7])
    mv.publish(1)
    print("published", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def job_with_a_name():
    """Run a job of one rank; return its name."""
    name = f"forks-{os.getpid()}"
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert job.stdout.readline() == b"published\n"
        yield name
        job.communicate(timeout=60)
        assert job.returncode == 0
    finally:
        job.kill()
        job.wait()
        job.stdout.close()


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class TestMemoryInForkedChildren(SessionCleanupTestCase):
    def test_arrays_in_memory_of_the_library_read_as_zeros(self):
        for options in ({"sync": True}, {}):
            with self.subTest(options), mv.session(**options):
                tables = [mv.ArrayTableHandler(size, 5) for size in (3, 1_000_000)]
                gone = mv.MatrixTableHandler(4, 2, 5)
                shown = [table.view(live=not options) for table in (*tables, gone)]
                del gone
                deltas = [table.delta_buffer() for table in tables]
                for delta in deltas:
                    delta[:] = 5
                if not options:
                    deltas = []  # These are private, so the child has its own copies.

                def look(shown=shown, deltas=deltas):
                    ends = {float(array.flat[i]) for array in (*shown, *deltas) for i in (0, -1)}
                    for delta in deltas:
                        delta[:] = 9
                    return ends, {float(delta[-1]) for delta in deltas}

                written = {9.0} if deltas else set()
                self.assertEqual(outcome_in_child(look), str(({0.0}, written)))
                nested = outcome_in_child(lambda look=look: outcome_in_child(look))
                self.assertEqual(nested, str(({0.0}, written)))
                self.assertTrue(all((array == 5).all() for array in (*shown, *deltas)))
            # The arrays outlive the session.
            self.assertEqual(outcome_in_child(lambda shown=shown: shown[2].sum()), "0.0")
            self.assertEqual(shown[2].sum(), 40)

    @needs_found_sessions
    def test_every_call_of_a_reader_raises_forked_error(self):
        with job_with_a_name() as name, mv.attach(name) as view, mv.attach(name) as second:
            tables = view.tables
            array, matrix, hashed = (tables[name] for name in ("array", "matrix", "hashed"))
            for call in (
                *(lambda: view.name, lambda: view.version, lambda: view.step, lambda: view.tables),
                *(view.wait, lambda: view.wait(1), view.cut, lambda: view.cut(["array"])),
                *(array.get, matrix.get, lambda: matrix.get([0]), lambda: hashed.get([7])),
                second.cut,
            ):
                self.assertEqual(outcome_in_child(call), "ForkedError")
            self.assertEqual(outcome_in_child(view.close), "None")
            self.assertEqual(outcome_in_child(lambda: view.__exit__(None, None, None)), "None")

            def attach_again():
                with mv.attach(name) as own:
                    return int(own.cut()["array"].sum()), outcome_in_child(own.cut)

            self.assertEqual(outcome_in_child(attach_again), "(15, 'ForkedError')")
            # A child may open a session, too, because its parent has none.
            self.assertEqual(outcome_in_child(lambda: mv.init().rank), "0")
            self.assertEqual(view.cut()["array"].sum(), 15)  # The parent continues.
            self.assertEqual(second.version, 1)

    @needs_found_sessions
    def test_closed_view_is_no_forked_one(self):
        with job_with_a_name() as name:
            view = mv.attach(name)
            view.close()
            self.assertEqual(outcome_in_child(lambda: view.version), "StateError")

            def close_own():
                own = mv.attach(name)
                own.close()
                return own.version

            with mv.attach(name):
                self.assertEqual(outcome_in_child(close_own), "StateError")

    @needs_found_sessions
    def test_child_keeps_no_memory_of_the_job(self):
        with job_with_a_name() as name, mv.attach(name) as view:
            view.cut()
            links = lambda: sum(  # noqa: E731
                "multiverso" in os.readlink(f"/proc/self/fd/{fd}")
                for fd in os.listdir("/proc/self/fd")
                if os.path.islink(f"/proc/self/fd/{fd}")
            )
            self.assertGreater(links(), 0)
            self.assertEqual(outcome_in_child(links), "0")


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class TestForks(SessionCleanupTestCase):
    def test_forked_child_gets_forked_error_and_parent_continues(self):
        mv.init()
        table = mv.ArrayTableHandler(2, [5, 6])
        future = table.get_async()
        # multiprocessing ends the child with os._exit, like the workers of a DataLoader.
        context = multiprocessing.get_context("fork")
        parent_end, child_end = context.Pipe()
        child = context.Process(target=send_errors, args=(child_end, table, future))
        child.start()
        child_end.close()
        self.assertTrue(parent_end.poll(60))
        self.assertEqual(parent_end.recv(), ({"ForkedError"}, False))
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        grandchild = lambda: outcome_in_child(lambda: outcome_in_child(mv.barrier))  # noqa: E731
        self.assertEqual(grandchild(), "ForkedError")
        table.add([1, 1])
        self.assertEqual(table.get().tolist(), [6, 7])
        mv.barrier()
