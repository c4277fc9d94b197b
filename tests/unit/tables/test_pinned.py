"""Views show pinned versions in place, whatever the session publishes meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from contextlib import ExitStack

import numpy as np
from requirements import needs_found_sessions
from sessions import SessionCleanupTestCase

import multiverso as mv

SIZE = 70_000

#: A reader that pins a version and keeps it until it is killed.
READER = """
import signal, sys
import multiverso as mv
with mv.attach(sys.argv[1]) as view, view.pinned(["array"]) as cut:
    print(cut.version, flush=True)
    signal.pause()
"""

#: The same, but a child has been forked in the block.
FORKING_READER = """
import os, signal, sys, time
import multiverso as mv
with mv.attach(sys.argv[1]) as view, view.pinned(["array"]) as cut:
    child = os.fork()
    if child == 0:
        print(os.getpid(), float(cut["array"].sum()), flush=True)
        time.sleep(600)
    signal.pause()
"""


@needs_found_sessions
class TestPinned(SessionCleanupTestCase):
    options = {}

    def setUp(self):
        self.job = f"pinned-{os.getpid()}"
        mv.init(name=self.job, **self.options)
        self.array = mv.ArrayTableHandler(SIZE, name="array")
        self.matrix = mv.MatrixTableHandler(300, 7, name="matrix", dtype="float64")
        self.view = mv.attach(os.getpid())
        self.addCleanup(self.view.close)
        self.expected = {}
        self.random = np.random.default_rng(5)

    def publish(self, times=1):
        for _ in range(times):
            delta = np.zeros(SIZE, np.float32)
            delta[self.random.integers(0, SIZE, 3)] = self.random.normal(size=3)
            self.array.add(delta)
            self.matrix.add(self.random.normal(size=(300, 7)))
            version = mv.publish(step=10 * (len(self.expected) + 1))
            self.expected[version] = (self.array.get(), self.matrix.get())

    def check(self, cut):
        self.assertEqual(cut.step, 10 * cut.version)
        for name, values in zip(("array", "matrix"), self.expected[cut.version], strict=True):
            self.assertEqual(cut[name].dtype, values.dtype)
            self.assertEqual(cut[name].shape, values.shape)
            self.assertEqual(cut[name].tobytes(), values.tobytes())

    def start(self, program):
        reader = subprocess.Popen(
            [sys.executable, "-c", program, self.job], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(reader.stdout.close)
        self.addCleanup(reader.wait)
        self.addCleanup(reader.kill)
        return reader, reader.stdout.readline().split()

    def assert_refused(self):
        with self.assertRaisesRegex(mv.errors.StateError, "pinned 2 other versions"):
            self.view.pinned().__enter__()

    def test_arrays_lie_in_shared_memory_and_cannot_be_changed(self):
        self.publish()
        with self.view.pinned() as cut:
            address = cut["array"].__array_interface__["data"][0]
            with open("/proc/self/maps") as file:
                lines = [line.split() for line in file]
            (line,) = (
                line
                for line in lines
                if int(line[0].split("-")[0], 16) <= address < int(line[0].split("-")[1], 16)
            )
            self.assertEqual(line[1], "r--s")
            self.assertIn("multiverso", line[5])
            with self.assertRaises(ValueError):
                cut["array"].flags.writeable = True

    def test_killed_reader_pins_nothing(self):
        readers = []
        for version in (1, 2):
            self.publish()
            reader, printed = self.start(READER)
            self.assertEqual(printed, [str(version)])
            readers.append(reader)
        self.publish(3)
        self.assert_refused()
        os.kill(readers[0].pid, signal.SIGSTOP)
        self.publish(3)
        readers[0].kill()
        readers[0].wait()
        with self.view.pinned() as cut:
            self.publish(3)
            self.check(cut)
            self.assert_refused()

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_forked_child_of_a_killed_reader_pins_nothing(self):
        with ExitStack() as blocks:
            self.publish()
            blocks.enter_context(self.view.pinned())
            self.publish()
            reader, (child, total) = self.start(FORKING_READER)
            self.addCleanup(os.kill, int(child), signal.SIGKILL)
            self.assertEqual(float(total), 0)  # The child sees zeros, as of all such memory.
            self.publish()
            self.assert_refused()
            reader.kill()
            reader.wait()
            self.check(blocks.enter_context(self.view.pinned()))
            self.publish(3)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_end_of_the_block_ends_the_pin_while_a_child_lives(self):
        self.publish()
        with self.view.pinned():
            self.publish()
            child = os.fork()
            if child == 0:
                time.sleep(600)
                os._exit(0)
            self.addCleanup(os.waitpid, child, 0)
            self.addCleanup(os.kill, child, signal.SIGKILL)
        with self.view.pinned() as one:
            self.publish()
            with self.view.pinned() as two:
                self.publish()
                self.check(one)
                self.check(two)
                self.assert_refused()

    def test_threads_pin_the_same_and_other_versions_of_one_view(self):
        self.publish()
        failures, end = [], threading.Event()

        def read():
            try:
                while not end.is_set():
                    with self.view.pinned() as cut:
                        before = cut["array"].copy()
                        for _ in range(20):
                            self.assertEqual(before.tobytes(), cut["array"].tobytes())
                        seen.append((cut.version, before))
            except BaseException as error:
                failures.append(error)

        seen = []
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(seen) < 60 and not failures:
            self.publish()
        end.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for version, values in seen:
            self.assertEqual(values.tobytes(), self.expected[version][0].tobytes())
        with ExitStack() as blocks:
            for _ in range(2):
                self.publish()
                blocks.enter_context(self.view.pinned())

    def test_arrays_outlive_the_block_the_view_and_the_session(self):
        self.publish()
        with mv.attach(os.getpid()) as view:
            with view.pinned() as cut:
                kept = cut["matrix"]
                first = kept[0]
            with view.pinned() as cut:
                view.close()
                self.publish(4)
        self.assertTrue(np.isfinite(kept).all())
        del kept, cut
        mv.shutdown()
        self.view.close()
        self.assertTrue(np.isfinite(first).all())

    def test_error_in_a_block_ends_the_pin(self):
        self.publish()
        for _ in range(3):
            with self.assertRaises(ZeroDivisionError), self.view.pinned():
                self.publish()
                raise ZeroDivisionError
        with self.view.pinned(["array"]) as cut, self.assertRaises(KeyError):
            cut["matrix"]

    def test_last_version_can_be_pinned_after_the_session(self):
        self.publish(3)
        self.assertEqual(list(self.view.tables), ["array", "matrix"])  # which finds them
        mv.shutdown()
        with self.view.pinned() as cut:
            self.check(cut)


class TestPinnedInSyncMode(TestPinned):
    options = {"sync": True}
