"""SIGTERM with ``mv.init(on_term="leave")`` in a session of one rank, and `mv.spawn`."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np
import pytest
from sessions import SessionCleanupTestCase

import multiverso as mv
from multiverso import checkpoint
from multiverso._session import Session
from multiverso.api import current_session
from multiverso.sync import ParamSync


def notify():
    """Send SIGTERM to this process, and wait until Python has called the handler."""
    os.kill(os.getpid(), signal.SIGTERM)
    signal.sigtimedwait([], 0.01)


@unittest.skipIf(sys.platform == "win32", "needs POSIX signals")
class TestNotice(SessionCleanupTestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def check_leaves(self, code, *arguments, **options):
        """Check that `check_leaving` exits with this code; return the first line of the log."""
        with self.assertRaises(SystemExit) as end, self.assertLogs("multiverso", "WARNING") as logs:
            mv.check_leaving(*arguments, **options)
        self.assertEqual(end.exception.code, code)
        self.assertFalse(mv.is_initialized())
        return logs.output[0]

    def check_saved(self, step, values, folder=None):
        """Check the step of the last checkpoint and the values of its table "w"."""
        with checkpoint.Checkpoint(checkpoint.latest(folder or self.folder)) as saved:
            self.assertEqual((saved.step, saved.read("w").tolist()), (step, values))

    def test_saves_and_exits(self):
        mv.init(on_term="leave", checkpoints=self.folder)
        table = mv.ArrayTable(3, name="w")
        mv.check_leaving()
        table.add(np.ones(3))
        self.assertFalse(mv.is_leaving())
        notify()
        self.assertTrue(mv.is_leaving())
        calls = []
        line = self.check_leaves(143, 17, before=lambda: calls.append(mv.is_initialized()))
        self.assertIn(f"saved in {self.folder}", line)
        self.assertEqual(calls, [True])
        self.check_saved(17, [1, 1, 1])

    def test_saves_although_an_earlier_save_has_failed(self):
        mv.init(on_term="leave", checkpoints=self.folder)
        table = mv.ArrayTable(1, name="w")
        table.add([1])
        notify()
        failure = mv.errors.CheckpointIOError("no space")
        with mock.patch.object(Session, "wait_for_save", side_effect=failure):
            self.assertIn("no space", self.check_leaves(143, 17))
        self.check_saved(17, [1])

    def test_a_signal_that_arrives_just_before_the_main_thread_waits(self):
        mv.init(on_term="leave")
        is_known = threading.Event()

        def tell():
            time.sleep(0.2)  # Until the main thread waits, which this signal does not wake.
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            while not mv.is_leaving():
                time.sleep(0.01)
            is_known.set()

        threading.Thread(target=tell, daemon=True).start()
        is_known.wait()

    def test_exits_without_a_folder(self):
        mv.init(on_term="leave")
        notify()
        self.assertIn("no checkpoints=", self.check_leaves(1))

    def test_other_handlers_are_called_too(self):
        received = []
        self.addCleanup(signal.signal, signal.SIGTERM, signal.SIG_DFL)
        handler = lambda number, _: received.append(number)  # noqa: E731
        signal.signal(signal.SIGTERM, handler)
        mv.init(on_term="leave")
        notify()
        self.assertEqual(received, [signal.SIGTERM])
        self.assertTrue(mv.is_leaving())
        notify()  # It belongs to the same notice.
        self.assertEqual(received, [signal.SIGTERM])
        mv.shutdown()
        self.assertIs(signal.getsignal(signal.SIGTERM), handler)

    def test_the_default_returns_with_the_end_of_the_session(self):
        for options in ({"on_term": "leave"}, {"on_term": "leave", "elastic": True}):
            with mv.session(**options):
                self.assertIsNot(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
            self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_another_session_does_not_inherit_the_notice(self):
        mv.init(on_term="leave")
        notify()
        mv.shutdown()
        mv.init(on_term="leave")
        time.sleep(0.3)  # The thread that wakes the main one must not send the notice again.
        self.assertFalse(mv.is_leaving())
        mv.check_leaving()

    def test_nothing_leaves_without_the_option(self):
        mv.init()
        self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
        mv.check_leaving(3)
        self.assertFalse(mv.is_leaving())

    def test_needs_the_main_thread(self):
        errors = []

        def opens():
            try:
                mv.init(on_term="leave")
            except mv.errors.StateError as error:
                errors.append(str(error))

        thread = threading.Thread(target=opens, name="trainer")
        thread.start()
        thread.join()
        self.assertEqual(len(errors), 1)
        self.assertIn("main thread", errors[0])
        self.assertIn("'trainer'", errors[0])
        self.assertFalse(mv.is_initialized())

    def test_a_forked_child_ends_as_before(self):
        mv.init(on_term="leave")
        for _ in range(20):  # The signal may arrive before the child has run a line.
            child = os.fork()
            if child == 0:
                time.sleep(100)
                os._exit(0)
            os.kill(child, signal.SIGTERM)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), -signal.SIGTERM)
        self.assertEqual(signal.pthread_sigmask(signal.SIG_BLOCK, []), set())

    def test_processes_of_a_rank_outlive_the_notice_but_not_their_parent(self):
        mv.init(on_term="leave")
        with self.assertRaisesRegex(mv.errors.StateError, "ignore_notice: expected a process"):
            mv.ignore_notice()
        kill = [sys.executable, "-c", "import os, sys; os.kill(int(sys.argv[1]), 15)"]
        for makes_call in (False, True):  # A forked process makes the call by itself.
            here, there = socket.socketpair()
            child = os.fork()
            if child == 0:
                here.close()
                signal.alarm(60)
                if makes_call:
                    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
                    mv.ignore_notice(0)
                while data := there.recv(1):
                    there.send(data)
                os._exit(0)
            there.close()
            with here:
                for tells in (False, True):
                    if tells:
                        subprocess.run([*kill, str(child)], check=True)
                    # The system would merge a SIGTERM that the child has not seen with the next.
                    here.send(b"1")
                    self.assertEqual(here.recv(1), b"1")
                os.kill(child, signal.SIGTERM)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            self.assertEqual(code, 7 if makes_call else -signal.SIGTERM)

    def test_the_last_worker_saves_however_it_leaves(self):
        def fails():
            raise ValueError("no more data")

        calls = []
        checks = lambda: mv.check_leaving(5, before=lambda: calls.append(mv.is_initialized()))  # noqa: E731
        leaves = lambda: current_session().leave()  # noqa: E731
        ends = ((checks, 143, {}), (mv.shutdown, 0, {}), (fails, 143, {}))
        ends += tuple((call, code, {"elastic": True}) for call, code, _ in ends)
        for number, (leave, code, options) in enumerate((*ends, (leaves, 0, {"elastic": True}))):
            folder = os.path.join(self.folder, str(number))
            end = 0
            with self.subTest(number), self.assertLogs("multiverso", "WARNING") as logs:
                try:
                    with mv.session(on_term="leave", checkpoints=folder, **options):
                        table = mv.ArrayTable(2, [3, 4], name="w")
                        mv.check_leaving(5)
                        notify()
                        leave()
                except SystemExit as error:
                    end = error.code
            self.assertEqual((end, mv.is_initialized()), (code, False))
            self.assertIn(f"saved in {folder}", logs.output[0])
            self.check_saved(5, [3, 4], folder)
            del table
        self.assertEqual(calls, [True, True])

    def test_the_last_elastic_worker_ends_with_another_code_without_a_save(self):
        mv.init(on_term="leave", elastic=True)
        notify()
        line = self.check_leaves(1)
        self.assertIn("its tables are lost: mv.init had no checkpoints=", line)
        session = mv.init(on_term="leave", elastic=True, checkpoints=self.folder)
        mv.ArrayTable(1, name="w")
        notify()
        with (
            mock.patch.object(session, "save", side_effect=mv.errors.CheckpointIOError("full")),
            self.assertRaises(mv.errors.CheckpointIOError),
        ):
            mv.check_leaving()
        session.leave()

    def test_the_next_signal_has_no_effect_once_the_ranks_have_left(self):
        for is_told_again in (True, False):
            mv.init(on_term="leave")
            notify()
            self.check_leaves(1)
            if is_told_again:
                notify()  # A launcher may send it to ranks that still run.
                self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
            with mv.session():
                self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    # The thread ends by a SystemExit, of which Python prints nothing.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_thread_that_leaves_ends_the_main_thread_too(self):
        mv.init(on_term="leave", checkpoints=self.folder)
        mv.ArrayTable(1, name="w")
        notify()
        thread = threading.Thread(target=mv.check_leaving, args=(1,))
        with self.assertRaises(SystemExit) as end, self.assertLogs("multiverso", "WARNING"):
            thread.start()
            thread.join()
            signal.sigtimedwait([], 5)
        self.assertEqual(end.exception.code, 143)
        self.assertIsNotNone(checkpoint.latest(self.folder))

    def test_all_syncs_send_their_last_deltas_and_the_step_is_that_of_the_program(self):
        mv.init(on_term="leave", checkpoints=self.folder)
        first, second = np.zeros(2), np.zeros(2)
        syncs = [
            ParamSync([values], sync_every=10, name=name)
            for values, name in ((first, "first"), (second, "second"))
        ]
        for step in range(3):
            for values, sync in zip((first, second), syncs, strict=True):
                values += 1
                sync.sync()
            mv.check_leaving(step + 1)
        first += 1
        notify()
        syncs[0].sync()  # The program asks itself, so this does not.
        self.check_leaves(143, 4)
        with checkpoint.Checkpoint(checkpoint.latest(self.folder)) as saved:
            self.assertEqual(saved.step, 4)
            self.assertEqual([saved.read(i)[0] for i in range(2)], [4, 3])


PARENT = """
import os, signal, sys
import multiverso as mv

def train(folder, told):
    mv.init(on_term="leave", checkpoints=folder or None)
    table = mv.ArrayTable(1, name="w")
    mv.barrier()
    if mv.rank() == 0 and told == "parent":
        print("busy", flush=True)
    elif mv.rank() == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    while True:
        table.add([1])
        mv.check_leaving()

if __name__ == "__main__":
    mv.spawn(train, 2, sys.argv[1:3], method=sys.argv[3])
"""


@unittest.skipIf(sys.platform == "win32", "needs POSIX signals")
class TestSpawn(unittest.TestCase):
    def test_sigterm_to_the_parent_or_a_rank_ends_both(self):
        for told, method, saves in (
            *(("parent", "spawn", True), ("parent", "fork", True), ("parent", "fork", False)),
            *(("rank", "spawn", True), ("rank", "fork", True), ("rank", "fork", False)),
        ):
            with self.subTest(told=told, method=method, saves=saves):
                self.check(told, method, saves)

    def check(self, told, method, saves):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "parent.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(PARENT)
            saved = os.path.join(folder, "saved") if saves else ""
            command = [sys.executable, script, saved, told, method]
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(command, **output) as parent:
                if told == "parent":
                    self.assertEqual(parent.stdout.readline(), b"busy\n")
                    parent.send_signal(signal.SIGTERM)
                self.assertEqual(parent.wait(60), 143 if saves else 1)
            if not saves:
                return
            with checkpoint.Checkpoint(checkpoint.latest(saved)) as found:
                self.assertGreater(found.read("w")[0], 0)
