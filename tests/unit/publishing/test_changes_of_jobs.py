"""Followers when the job changes: its tables, its options, what fails and what interrupts it."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
from publications import FolderTestCase

import multiverso as mv
from multiverso.errors import PublicationError, StateError
from multiverso.publishing import _folder, _tables, _writer


class JobTestCase(FolderTestCase):
    def follow(self):
        """Follow the folder, until the end of the test."""
        view = mv.follow(self.folder, timeout=60)
        self.addCleanup(view.close)
        return view

    def check(self, view, table, values):
        """Check that a table of a view has these values bit for bit."""
        received = view.tables[table].get()
        expected = np.asarray(values, received.dtype)
        self.assertEqual(received.tobytes(), expected.tobytes())


class TestFailures(JobTestCase):
    def publish_until(self, table, steps):
        """Publish steps; pass over the failures of earlier ones."""
        failures = 0
        for step in steps:
            table.add(np.arange(100) == step)
            while True:
                try:
                    mv.publish(step, to=self.folder, full_every=3, keep=1)
                    break
                except (OSError, PublicationError, StateError):
                    failures += 1
        return failures

    def test_freeing_a_table_does_not_fail_the_publication_before(self):
        with mv.session(name="job"):
            kept = mv.ArrayTable(10, name="kept")
            for step in range(20):
                other = mv.ArrayTable(100_000, name=f"other {step}")
                kept.add(np.ones(10))
                mv.publish(step, to=self.folder)
                del other
                mv.publish(step, to=self.folder)
        with mv.follow(self.folder) as view:
            self.check(view, "kept", [20] * 10)

    def test_files_of_killed_jobs_expire(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            self.publish_until(table, range(2))
        left = self.folder / f"{1:08d}-{7:016x}-full.safetensors"
        left.write_bytes(b"?")
        partial = self.folder / f".{left.name}.{7:016x}.part"
        partial.write_bytes(b"?")
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            self.publish_until(table, range(2))
        self.assertFalse(left.exists())
        self.assertFalse(partial.exists())

    def test_removed_folder_is_an_error_and_then_begins_again(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            self.publish_until(table, range(2))
            self.follow().wait(2, timeout=60)
            shutil.rmtree(self.folder)
            self.assertGreater(self.publish_until(table, range(2, 6)), 0)
        with mv.follow(self.folder) as view:
            np.testing.assert_array_equal(view.tables["w"].get(), np.arange(100) < 6)

    def test_a_removed_file_in_use_is_said_at_the_next_publication_or_at_the_end(self):
        def remove(pattern):
            for path in self.folder.glob(pattern):
                path.unlink()

        for pattern, is_error in {
            "publisher.lock": False,
            "*-full*": True,
            "latest*": True,
        }.items():
            with self.subTest(pattern), mv.session(name="job"):
                table = mv.ArrayTable(100, name="w")
                self.publish_until(table, range(1))
                mv.publish(9, to=self.folder)
                view = self.follow()
                view.wait(2, timeout=60)
                remove(pattern)
                if is_error:
                    self.assertGreater(self.publish_until(table, range(1, 6)), 0)
                else:
                    with self.assertLogs("multiverso", "WARNING") as logs:
                        self.publish_until(table, range(1, 6))
                    self.assertIn(str(self.folder), logs.output[0])
                    self.assertTrue((self.folder / pattern).exists())
                    view.wait(7, timeout=60)
                    remove(pattern)
                    with self.assertLogs("multiverso", "WARNING"):
                        mv.shutdown()
            with mv.follow(self.folder) as view:
                np.testing.assert_array_equal(view.tables["w"].get(), np.arange(100) < 6)
            shutil.rmtree(self.folder)

    def test_another_job_may_take_a_folder_whose_lock_was_removed(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            mv.publish(1, to=self.folder)
            self.follow()  # It is written.
            (self.folder / "publisher.lock").unlink()
            other = _folder.LocalFolder(str(self.folder)).lock()
            with self.assertRaisesRegex(StateError, "another job"):
                for step in range(3):
                    mv.publish(step, to=self.folder)
            other.close()
            self.publish_until(table, range(4))
        with mv.follow(self.folder) as view:
            np.testing.assert_array_equal(view.tables["w"].get(), np.arange(100) < 4)

    def test_one_folder_has_one_publisher(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            before = os.getcwd()
            self.addCleanup(os.chdir, before)
            self.folder.mkdir()
            os.chdir(self.folder.parent)
            for step, folder in enumerate((self.folder, "published", "./published/", "published/")):
                table.add(np.ones(100))
                mv.publish(step, to=folder)
        with mv.follow(self.folder) as view:
            self.assertEqual((view.version, view.step), (4, 3))
            np.testing.assert_array_equal(view.tables["w"].get(), np.full(100, 4))

    def test_copy_of_the_folder_keeps_the_lock(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(100, name="w")
            self.publish_until(table, [0])
            self.follow()  # when it has been written
            shutil.copytree(self.folder, self.folder.with_name("copy"))
            with self.assertRaisesRegex(StateError, "another job publishes"):
                _writer.Writer(str(self.folder), _writer.Place("1" * 16, 0, 1, 1.0))

    def test_session_that_fails_leaves_no_thread(self):
        tasks = Path("/proc/self/task")
        before = len(list(tasks.iterdir()))
        for _ in range(3):
            with self.assertRaises(ZeroDivisionError), mv.session(name="job"):
                table = mv.ArrayTable(100, name="w")
                self.publish_until(table, [0])
                raise ZeroDivisionError
        del table
        deadline = time.monotonic() + 60
        while len(list(tasks.iterdir())) > before and time.monotonic() < deadline:
            time.sleep(0.01)  # The last publication may still be written.
        self.assertLessEqual(len(list(tasks.iterdir())), before)

    def test_all_folders_are_completed_though_one_fails(self):
        other = self.folder.with_name("other")
        with self.assertRaises(PublicationError), mv.session(name="job"):
            table = mv.ArrayTable(3, name="w")
            mv.publish(0, to=self.folder)
            mv.publish(0, to=other)
            mv.publish(0, to=other)
            (self.folder / "latest.json").unlink()
            (self.folder / "latest.json").mkdir()
            table.add([1, 1, 1])
            mv.publish(1, to=self.folder)
            mv.publish(1, to=other)
        with mv.follow(other) as view:
            self.check(view, "w", [1, 1, 1])


class TestInterrupts(JobTestCase):
    def test_ctrl_c_in_wait_leaves_whole_versions(self):
        with mv.session(name="job"):
            table = mv.ArrayTable(50_000, name="w")
            keyed = mv.HashTable(2, 1000, name="k")
            view = None
            apply, interrupts = _tables.RowStore.update, 0

            def interrupted(store, *arguments):
                # To the main thread itself, where it cannot arrive after the call.
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                apply(store, *arguments)

            for step in range(1, 11):
                table.add(np.ones(50_000))
                keyed.add(np.ones((50, 2)), keys=range(50))
                mv.publish(step, to=self.folder, full_every=4)
                view = view or self.follow()
                with mock.patch.object(_tables.RowStore, "update", interrupted):
                    try:
                        view.wait(step, timeout=60)
                    except KeyboardInterrupt:
                        interrupts += 1
                with view.lock:
                    values, rows = view.tables["w"].get(), view.cut()["k"][1]
                    np.testing.assert_array_equal(values, np.full(50_000, view.step))
                    np.testing.assert_array_equal(rows, np.full((50, 2), view.step))
                self.assertEqual(view.wait(step, timeout=60), step)
        self.assertGreater(interrupts, 0)
