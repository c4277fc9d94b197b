"""The life of a session of one rank: options, init, shutdown, blocks, forks, the end."""

import logging
import multiprocessing
import os
import textwrap
import unittest
import warnings

import numpy as np
from programs import run_program

import multiverso as mv
from multiverso import api


def program(code, **environ):
    return run_program(textwrap.dedent(code), **environ)


class ClosesSession(unittest.TestCase):
    def tearDown(self):
        if mv.is_initialized():
            mv.shutdown()


class TestOptions(ClosesSession):
    def refused(self, error, text, *arguments, **options):
        with self.assertRaisesRegex(error, text):
            mv.init(*arguments, **options)
        self.assertFalse(mv.is_initialized())

    def test_role(self):
        self.refused(ValueError, "'all', 'worker', 'server', received 'master'", role="master")
        self.refused(TypeError, "received 1", role=1)
        self.refused(TypeError, "received None", role=None)

    def test_timeout(self):
        for wrong in (0, -1, -0.0, float("nan"), float("inf"), np.float64("inf")):
            self.refused(ValueError, "seconds above 0", timeout=wrong)
        for wrong in ("1", None, True, np.bool_(True), 1j, [1]):
            self.refused(TypeError, "number, received", timeout=wrong)
        for right in (1, 0.001, 1e-9, 1e300, np.float32(3), np.int64(3)):
            with mv.init(timeout=right):
                mv.barrier()

    def test_on_peer_lost(self):
        self.refused(ValueError, "'fail', 'continue', received 'go'", on_peer_lost="go")
        self.refused(TypeError, "received True", on_peer_lost=True)
        for mode in ({"sync": True}, {"staleness": 0}, {"staleness": 2}):
            self.refused(ValueError, "'fail' with sync", on_peer_lost="continue", **mode)
        with mv.session(on_peer_lost="continue"):
            self.assertEqual(mv.lost_ranks(), ())
            self.assertTrue(mv.is_master_worker())
            self.assertEqual(mv.ArrayTableHandler(2, 7).get().tolist(), [7, 7])
            self.assertEqual(mv.aggregate(np.ones(100_000)).sum(), 100_000)

    def test_peer_timeout(self):
        for wrong in (0, -1, float("nan")):
            self.refused(ValueError, "peer_timeout: .* above 0", peer_timeout=wrong)
        self.refused(TypeError, "peer_timeout: ", peer_timeout="1")

    def test_staleness(self):
        self.refused(ValueError, "0 to", staleness=-1)
        for wrong in (1.0, "1", True, np.bool_(False)):
            self.refused(TypeError, "int", staleness=wrong)
        self.refused(ValueError, "sync=True and staleness=2", sync=True, staleness=2)

    def test_modes_of_one_rank_see_its_own_adds(self):
        for mode in ({"sync": True}, {"staleness": 0}, {"staleness": 3}):
            with mv.session(**mode):
                table = mv.ArrayTableHandler(3)
                matrix = mv.MatrixTableHandler(4, 2)
                for count in range(1, 6):
                    self.assertEqual(
                        table.add_get([1, 2, 3]).tolist(), [count, 2 * count, 3 * count]
                    )
                    matrix.add([[1, 1], [2, 2]], [3, 3])
                    self.assertEqual(matrix.get([3])[0].tolist(), [3 * count, 3 * count])

    def test_no_round_ahead_is_sync_mode(self):
        with mv.session(staleness=0) as session:
            self.assertIs(mv.init(sync=True), session)

    def test_finished_worker_gets_and_does_not_add(self):
        for mode in ({"sync": True}, {"staleness": 3}):
            with mv.session(**mode):
                table = mv.ArrayTableHandler(1)
                table.add([1])
                mv.finish()
                self.assertEqual(table.get().tolist(), [1])
                for add in (table.add, table.add_get):
                    with self.assertRaisesRegex(mv.StateError, "finish"):
                        add([1])
                later = mv.ArrayTableHandler(1)
                with self.assertRaisesRegex(mv.StateError, "finish"):
                    later.add([1])

    def test_finish_changes_nothing_in_async_mode(self):
        with mv.session():
            mv.finish()
            table = mv.ArrayTableHandler(1)
            self.assertEqual(table.add_get([1]).tolist(), [1])

    def test_sync_is_a_bool(self):
        for wrong in ("async", 1, 0, None):
            self.refused(TypeError, "bool", wrong)
        with mv.init(np.bool_(False)):
            self.assertTrue(mv.is_initialized())


class TestOneRank(ClosesSession):
    def test_who_is_there(self):
        mv.init()
        self.assertEqual((mv.rank(), mv.size()), (0, 1))
        self.assertEqual((mv.worker_id(), mv.server_id()), (0, 0))
        self.assertEqual((mv.num_workers(), mv.num_servers()), (1, 1))
        self.assertEqual((mv.workers_num(), mv.servers_num()), (1, 1))
        self.assertIs(mv.is_master_worker(), True)
        self.assertIs(api.current_session(), mv.init())
        session = api.current_session()
        self.assertEqual((session.node, session.num_nodes), (0, 1))
        self.assertEqual((session.local_rank, session.local_size), (0, 1))
        self.assertIn("rank=0 size=1 open", repr(session))
        mv.barrier()

    def test_a_rank_alone_has_to_do_everything(self):
        for role in ("worker", "server"):
            with self.assertRaises((mv.StateError, ValueError)):
                mv.init(role=role)
            self.assertFalse(mv.is_initialized())


class TestInitAndShutdown(ClosesSession):
    def test_before_init_everything_is_a_state_error(self):
        self.assertFalse(mv.is_initialized())
        for call in (
            mv.barrier,
            mv.rank,
            mv.size,
            mv.worker_id,
            mv.server_id,
            mv.num_workers,
            mv.num_servers,
            mv.workers_num,
            mv.servers_num,
            mv.is_master_worker,
            api.current_session,
            lambda: mv.ArrayTableHandler(1),
            lambda: mv.MatrixTableHandler(1, 1),
        ):
            with self.assertRaisesRegex(mv.StateError, r"mv\.init\(\)"):
                call()

    def test_second_init_with_the_same_options_is_the_same_session(self):
        session = mv.init(role="all", timeout=7.5)
        self.assertIs(mv.init(role="all", timeout=7.5), session)

    def test_second_init_with_other_options_is_a_state_error(self):
        session = mv.init(timeout=7.5)
        for other in ({}, {"timeout": 8}, {"timeout": 7.5, "role": "worker"}):
            with self.assertRaisesRegex(mv.StateError, "other options"):
                mv.init(**other)
        self.assertIs(mv.init(timeout=7.5), session)

    def test_second_shutdown_does_nothing_but_warn(self):
        mv.init()
        mv.shutdown()
        with self.assertWarnsRegex(RuntimeWarning, "shutdown") as caught:
            mv.shutdown()
        self.assertEqual(caught.filename, __file__)

    def test_first_shutdown_does_not_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mv.init()
            mv.shutdown()

    def test_init_works_again_after_shutdown(self):
        for value in range(3):
            session = mv.init(timeout=5 + value)
            table = mv.ArrayTableHandler(2)
            table.add([value, 1])
            self.assertEqual(table.get().tolist(), [value, 1])
            self.assertEqual(table.name, "table 0")
            mv.shutdown()
            self.assertIn("closed", repr(session))

    def test_table_of_a_session_that_is_over_is_a_state_error(self):
        mv.init()
        table = mv.ArrayTableHandler(2)
        matrix = mv.MatrixTableHandler(2, 2, updater="sgd")
        mv.shutdown()
        for again in (False, True):
            if again:
                mv.init()
                mv.ArrayTableHandler(2)
                mv.MatrixTableHandler(2, 2)
            for call in (
                table.get,
                lambda: table.get(sync=True),
                lambda: table.get(out=np.empty(2, np.float32)),
                lambda: table.add([1, 2]),
                lambda: table.add_get([1, 2]),
                lambda: matrix.get([0]),
                lambda: matrix.add([[1, 2]], [0]),
                lambda: matrix.set_option(learning_rate=1),
                lambda: matrix.options,
            ):
                with self.assertRaises(mv.StateError):
                    call()
            self.assertIn("2 float32", repr(table))
            self.assertEqual(matrix.shape, (2, 2))

    def test_deleting_a_table_after_its_session_is_fine(self):
        mv.init()
        table = mv.ArrayTableHandler(2)
        mv.shutdown()
        del table

    def test_logs_and_prints_nothing_by_itself(self):
        with self.assertNoLogs("multiverso", logging.INFO):
            mv.init()
            mv.shutdown()


class TestBlocks(ClosesSession):
    def test_init_as_a_block(self):
        with mv.init() as session:
            self.assertIs(session, mv.init())
        self.assertFalse(mv.is_initialized())

    def test_session_as_a_block(self):
        with mv.session(timeout=9.0) as session:
            self.assertIs(session, mv.init(timeout=9.0))
        self.assertFalse(mv.is_initialized())

    def test_inner_block_leaves_the_outer_one_its_session(self):
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

    def test_exception_ends_the_session_and_goes_on(self):
        for block in (mv.init, mv.session):
            with self.assertRaisesRegex(KeyError, "lost"), block():
                raise KeyError("lost")
            self.assertFalse(mv.is_initialized())

    def test_shutdown_inside_the_block_is_enough(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with mv.init():
                mv.shutdown()

    def test_exit_codes_are_kept(self):
        for code in (0, 3):
            self.assertEqual(
                program(
                    f"import multiverso as mv\nwith mv.session():\n    raise SystemExit({code})"
                ),
                (code, "", ""),
            )


class TestTheEnd(unittest.TestCase):
    def test_script_that_forgets_shutdown_ends_in_silence(self):
        code = """
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(3)
        """
        self.assertEqual(program(code), (0, "", ""))

    def test_script_that_fails_shows_its_own_exception(self):
        code = """
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(3)
            raise OSError("no data")
        """
        returncode, out, err = program(code)
        self.assertEqual((returncode, out), (1, ""))
        self.assertTrue(err.endswith("OSError: no data\n"), err)
        self.assertEqual(err.count("Traceback"), 1)

    def test_handlers_of_the_script_can_still_use_the_session(self):
        code = """
            import atexit
            import multiverso as mv
            mv.init()
            table = mv.ArrayTableHandler(3, 2)
            atexit.register(lambda: print(*table.get()))
        """
        self.assertEqual(program(code), (0, "2.0 2.0 2.0\n", ""))


def errors_of_uses(table):
    """Return the names of what each use of the parent's session raises."""
    names = []
    for call in (
        table.get,
        lambda: table.add([1, 2]),
        lambda: table.options,
        mv.barrier,
        mv.rank,
        mv.worker_id,
        mv.init,
        mv.shutdown,
        lambda: mv.ArrayTableHandler(1),
    ):
        try:
            call()
        except Exception as error:
            names.append(type(error).__name__)
        else:
            names.append("nothing")
    return {*names}, mv.is_initialized()


def send_errors(pipe, table):
    pipe.send(errors_of_uses(table))


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class TestForks(ClosesSession):
    def test_child_gets_forked_error_and_parent_goes_on(self):
        mv.init()
        table = mv.ArrayTableHandler(2, [5, 6])
        # multiprocessing leaves the child by os._exit, as the workers of a DataLoader do.
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=send_errors, args=(theirs, table))
        child.start()
        theirs.close()
        self.assertTrue(ours.poll(60))
        self.assertEqual(ours.recv(), ({"ForkedError"}, False))
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        table.add([1, 1])
        self.assertEqual(table.get().tolist(), [6, 7])
        mv.barrier()

    def test_child_that_ends_as_a_script_does_not_touch_the_session(self):
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
        self.assertEqual(program(code), (0, "6.0 7.0\n", ""))

    def test_child_that_deletes_the_table_does_not_touch_the_session(self):
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
        self.assertEqual(program(code), (0, "5.0 6.0\n", ""))

    def test_child_of_a_process_without_a_session_has_its_own(self):
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
        returncode, out, err = program(code)
        self.assertEqual((returncode, sorted(out.split()), err), (0, ["0.0", "1.0"], ""))

    def test_child_of_a_child_gets_forked_error(self):
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
        self.assertEqual(program(code), (0, "forked\n", ""))
