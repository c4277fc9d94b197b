"""Forked children cannot use the session of their parent, but can open their own."""

import multiprocessing
import os
import unittest

import numpy as np
from programs import run_program
from sessions import SessionCleanupTestCase

import multiverso as mv


def errors_of_uses(table):
    """Use the parent's session; return the names of the errors, and whether a session is open."""
    names = set()
    for call in (
        *(table.get, lambda: table.add([1, 2]), lambda: table.options),
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


def send_errors(pipe, table):
    pipe.send(errors_of_uses(table))


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class TestForks(SessionCleanupTestCase):
    def test_forked_child_gets_forked_error_and_parent_continues(self):
        mv.init()
        table = mv.ArrayTableHandler(2, [5, 6])
        # multiprocessing ends the child with os._exit, like the workers of a DataLoader.
        context = multiprocessing.get_context("fork")
        parent_end, child_end = context.Pipe()
        child = context.Process(target=send_errors, args=(child_end, table))
        child.start()
        child_end.close()
        self.assertTrue(parent_end.poll(60))
        self.assertEqual(parent_end.recv(), ({"ForkedError"}, False))
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        table.add([1, 1])
        self.assertEqual(table.get().tolist(), [6, 7])
        mv.barrier()

    def test_exit_of_a_forked_child_leaves_the_session_intact(self):
        code = """
            import os, sys
            import multiverso as mv
            with mv.session():
                table = mv.ArrayTableHandler(2, [5, 6])
                pid = os.fork()
                if pid == 0:
                    sys.exit(4)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
                table.add([1, 1])
                mv.barrier()
                print(*table.get())
        """
        self.assertEqual(run_program(code), (0, "6.0 7.0\n", ""))

    def test_table_deleted_in_a_forked_child_leaves_the_session_intact(self):
        code = """
            import os
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(2, [5, 6])
            pid = os.fork()
            if pid == 0:
                del table
                raise SystemExit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            print(*table.get())
        """
        self.assertEqual(run_program(code), (0, "5.0 6.0\n", ""))

    def test_child_forked_before_init_can_open_a_session(self):
        code = """
            import os
            import multiverso as mv
            pid = os.fork()
            with mv.session():
                table = mv.ArrayTableHandler(1)
                table.add([pid > 0])
                os.write(1, f"{table.get()[0]} ".encode())  # two processes, one pipe
            if pid:
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
        returncode, out, err = run_program(code)
        self.assertEqual((returncode, sorted(out.split()), err), (0, ["0.0", "1.0"], ""))

    def test_grandchild_gets_forked_error(self):
        code = """
            import os
            import multiverso as mv
            mv.init()
            if os.fork() == 0:
                if os.fork() == 0:
                    try:
                        mv.barrier()
                    except mv.ForkedError as error:
                        print("forked", flush=True)
                    raise SystemExit
                os.wait()
                raise SystemExit
            os.wait()
            mv.shutdown()
        """
        self.assertEqual(run_program(code), (0, "forked\n", ""))
