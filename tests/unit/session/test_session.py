"""A session of one rank: its roles, init and shutdown, `with` blocks, the end of the process."""

import logging
import unittest
import warnings

from programs import run_program
from sessions import SessionCleanupTestCase

import multiverso as mv
from multiverso import api
from multiverso.api import current_session


class TestOneRank(SessionCleanupTestCase):
    def test_one_rank_is_worker_server_and_master(self):
        mv.init()
        self.assertEqual((mv.rank(), mv.size()), (0, 1))
        self.assertEqual((mv.worker_id(), mv.server_id()), (0, 0))
        self.assertEqual((mv.num_workers(), current_session().num_servers), (1, 1))
        self.assertEqual((mv.workers_num(), mv.servers_num()), (1, 1))
        self.assertIs(mv.is_master_worker(), True)
        self.assertIs(api.current_session(), mv.init())
        session = api.current_session()
        self.assertEqual((session.node, session.num_nodes), (0, 1))
        self.assertEqual((session.local_rank, session.local_size), (0, 1))
        self.assertIn("rank=0 size=1 open", repr(session))
        mv.barrier()


class TestInitAndShutdown(SessionCleanupTestCase):
    def test_init_with_equal_options_returns_the_open_session(self):
        session = mv.init(role="all", timeout=7.5)
        self.assertIs(mv.init(role="all", timeout=7.5), session)

    def test_shutdown_without_a_session_only_warns(self):
        mv.init()
        mv.shutdown()
        with self.assertWarnsRegex(RuntimeWarning, "shutdown") as caught:
            mv.shutdown()
        self.assertEqual(caught.filename, __file__)

    def test_init_works_again_after_shutdown(self):
        for value in range(3):
            session = mv.init(timeout=5 + value)
            table = mv.ArrayTableHandler(2)
            table.add([value, 1])
            self.assertEqual(table.get().tolist(), [value, 1])
            self.assertEqual(table.name, "table 0")
            mv.shutdown()
            self.assertIn("closed", repr(session))

    def test_init_and_shutdown_log_and_warn_nothing(self):
        with self.assertNoLogs("multiverso", logging.INFO), warnings.catch_warnings():
            warnings.simplefilter("error")
            mv.init()
            mv.shutdown()


class TestWithBlocks(SessionCleanupTestCase):
    def test_init_and_session_are_context_managers(self):
        for block in (mv.init, mv.session):
            with block(timeout=9.0) as session:
                self.assertIs(session, mv.init(timeout=9.0))
            self.assertFalse(mv.is_initialized())

    def test_inner_block_keeps_the_outer_session_open(self):
        for inner in (mv.init, mv.session):
            with mv.init() as outer:
                with inner() as session:
                    self.assertIs(session, outer)
                self.assertTrue(mv.is_initialized())
            self.assertFalse(mv.is_initialized())
        mv.init()
        with mv.session():
            pass
        self.assertTrue(mv.is_initialized())

    def test_exception_in_the_block_ends_the_session_and_propagates(self):
        for block in (mv.init, mv.session):
            with self.assertRaisesRegex(KeyError, "lost"), block():
                raise KeyError("lost")
            self.assertFalse(mv.is_initialized())

    def test_shutdown_inside_the_block_is_allowed(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with mv.init():
                mv.shutdown()

    def test_block_preserves_the_exit_code(self):
        for code in (0, 3):
            program = f"import multiverso as mv\nwith mv.session():\n    raise SystemExit({code})"
            self.assertEqual(run_program(program), (code, "", ""))


class TestExit(unittest.TestCase):
    def test_failing_script_prints_only_its_own_exception(self):
        code = """
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(3)
            raise OSError("no data")
        """
        returncode, out, err = run_program(code)
        self.assertEqual((returncode, out), (1, ""))
        self.assertTrue(err.endswith("OSError: no data\n"), err)
        self.assertEqual(err.count("Traceback"), 1)

    def test_exit_handlers_of_the_script_can_use_the_session(self):
        code = """
            import atexit
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(3, 2)
            atexit.register(lambda: print(*table.get()))
        """
        self.assertEqual(run_program(code), (0, "2.0 2.0 2.0\n", ""))
