"""Saving and loading in one process, and their errors."""

import errno
import os
import shutil
import sys
import unittest
from unittest import mock

import numpy as np
from folders import FolderTestCase
from programs import run_command, run_program
from requirements import needs

import multiverso as mv
from multiverso import checkpoint as checkpoints

#: This program saves while a limit on the size of files, if there is one, simulates a full disk.
FULL_DISK_PROGRAM = """
import os, resource, sys
import numpy as np
import multiverso as mv
folder, limit = sys.argv[1], int(sys.argv[2])
with mv.session():
    table = mv.ArrayTableHandler(1_000_000, np.ones(1_000_000), name="w")
    mv.save(folder, step=1)
    table.add(np.ones(1_000_000))
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for background in (False, True):
        try:
            mv.save(folder, step=2, background=background)
            mv.wait_for_save()
        except mv.errors.CheckpointIOError as error:
            print(error.errno, error.path, 0 < error.bytes_written <= (limit or 3_999_999))
    assert (table.get() == 2).all()
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert mv.load(folder) == 1
    assert (table.get() == 1).all()
    if not limit:
        os.remove(os.path.join(folder, "other"))
    assert os.listdir(folder) == ["000001-step-1"]
    mv.save(folder, step=3)
"""

#: A shell script that mounts a private file system of 9 MB, fills 2 MB with another file, and runs
#: a Python program on the rest; it exits with 77 if it cannot mount.
SMALL_DISK_SCRIPT = """
mount -t tmpfs -o size=9m none "$1" || exit 77
head -c 2000000 /dev/zero > "$1/other"
exec "$2" -c "$3" "$1" 0
"""


class TestSaving(FolderTestCase):
    def test_clipnorm_is_kept_but_sync_mode_refuses_it(self):
        def table():
            return mv.ArrayTableHandler(2, updater="sgd", learning_rate=1, name="w")

        with mv.session():
            saving = table()
            saving.set_option(clipnorm=5)
            mv.save(self.folder)
        with checkpoints.Checkpoint(self.folder) as saved:
            self.assertEqual(saved.tables[0].options["clipnorm"], 5)
        with mv.session():
            loaded = table()
            mv.load(self.folder)
            self.assertEqual(loaded.options["clipnorm"], 5)
            self.assertEqual(loaded.add_get([6, 8]).tolist(), [-3, -4])
        with mv.session(sync=True):
            loaded = table()
            with self.assertRaisesRegex(ValueError, "not fit: table 'w': clipnorm: expected 0"):
                mv.load(self.folder)
            self.assertEqual(loaded.options, {"learning_rate": 1})

    def test_checkpoints_are_numbered_and_keep_removes_the_oldest(self):
        with mv.session():
            table = mv.ArrayTableHandler(3)
            self.assertIsNone(checkpoints.latest(self.folder))
            for step in (10, 20, None):
                table.add(np.ones(3))
                mv.save(self.folder, step=step)
            self.assertEqual(self.names(), ["000001-step-10", "000002-step-20", "000003-step-21"])
            mv.save(self.folder, step=1, keep=2)
            names = [path.name for path in checkpoints.saved_in(self.folder)]
            self.assertEqual(names, ["000003-step-21", "000004-step-1"])
            self.assertEqual(checkpoints.latest(self.folder), self.folder / "000004-step-1")
            self.assertEqual(mv.load(self.folder / "000003-step-21"), 21)
            self.assertEqual(mv.load(self.folder), 1)
        # The space of the others is free at the latest when the session has ended.
        self.assertEqual(self.names(), ["000003-step-21", "000004-step-1"])

    def test_shutdown_completes_a_background_save(self):
        with mv.session():
            table = mv.ArrayTableHandler(100_000)
            mv.save(self.folder, step=1, background=True)
        with checkpoints.Checkpoint(self.folder) as saved:
            saved.verify()
            self.assertEqual([found.name for found in saved.tables], ["table 0"])
        del table

    def test_one_table_can_be_saved_and_loaded(self):
        with mv.session():
            one = mv.ArrayTableHandler(4, np.arange(4), name="one")
            two = mv.ArrayTableHandler(4, np.ones(4), name="two")
            one.save(self.folder / "one", step=3)
            mv.save(self.folder / "all", step=4)
            self.assertEqual(two.load(self.folder / "one"), 3)  # by a table of another name
            np.testing.assert_array_equal(two.get(), np.arange(4))
            one.add(np.ones(4))
            self.assertEqual(two.load(self.folder / "all"), 4)
            np.testing.assert_array_equal(two.get(), np.ones(4))
            np.testing.assert_array_equal(one.get(), np.arange(4) + 1)
            with self.assertRaises(mv.errors.MismatchError):
                mv.load(self.folder / "one")

    def test_missing_ok_allows_a_missing_checkpoint(self):
        with mv.session():
            table = mv.ArrayTableHandler(1)
            for directory in (self.folder, self.folder / "none"):
                self.assertIsNone(mv.load(directory, missing_ok=True))
                self.assertIsNone(table.load(directory, missing_ok=True))
                with self.assertRaises(mv.errors.CheckpointIOError) as caught:
                    mv.load(directory)
                self.assertEqual(caught.exception.errno, errno.ENOENT)
                self.assertEqual(caught.exception.path, str(directory))


class TestAddresses(FolderTestCase):
    @needs("fsspec")
    def test_what_is_saved_at_an_address_is_complete_or_absent(self):
        import fsspec

        place = f"memory://{self.folder.name}"
        store = fsspec.filesystem("memory")
        with mv.session():
            table = mv.ArrayTable(2, updater="momentum", name="w")
            self.assertIsNone(mv.load(place, missing_ok=True))
            store.pipe(f"{place}/000007-step-9/shard-00000.mv", b"of a job that was killed")
            self.assertIsNone(checkpoints.latest(place))
            with self.assertRaisesRegex(mv.errors.CheckpointIOError, f"{place}: expected a check"):
                mv.load(place)
            for _ in range(3):
                table.add([1, 2])
                mv.save(place, keep=2, background=True)
            saved = table.get()
            mv.wait_for_save()
            table.add([1, 1])
            self.assertEqual(mv.load(place), 12)
            self.assertTrue((table.get() == saved).all())
            names = [f"{place}/{number:06}-step-{number + 2}" for number in (9, 10)]
            self.assertEqual(checkpoints.saved_in(place), names)
            self.assertEqual(mv.load(names[0]), 11)
            store.pipe(f"{names[1]}/shard-00000.mv", b"damaged")
            with self.assertRaisesRegex(mv.errors.CheckpointCorruptError, names[1]):
                mv.load(place)
            with self.assertRaisesRegex(ValueError, "incremental"):
                mv.save(place, incremental=True)
            with mock.patch.object(type(store), "put_file", side_effect=PermissionError("no")):
                mv.save(place)
                with self.assertRaisesRegex(mv.errors.CheckpointIOError, f"{place}.*: no"):
                    mv.wait_for_save()
            mv.save(place)
        self.assertEqual(checkpoints.latest(place), f"{place}/000011-step-13")


class TestErrors(FolderTestCase):
    @unittest.skipIf(os.geteuid() == 0, "root can write everywhere")
    def test_save_fails_without_permission(self):
        self.folder.chmod(0o500)
        self.addCleanup(self.folder.chmod, 0o700)
        with mv.session():
            mv.ArrayTableHandler(1)
            with self.assertRaises(mv.errors.CheckpointIOError) as caught:
                mv.save(self.folder)
            self.assertEqual(caught.exception.errno, errno.EACCES)

    def check_errors(self, printed, code):
        """Check that both saves of the program have failed in the file of the tables."""
        line = rf"{code} {self.folder}/\.saving-.*shard-00000.* True\n"
        self.assertRegex(printed, rf"^({line}){{2}}$")

    def test_failed_write_leaves_earlier_checkpoint_and_tables_intact(self):
        status, printed, errors = run_program(FULL_DISK_PROGRAM, self.folder, 2_000_000)
        self.assertEqual(status, 0, errors)
        self.check_errors(printed, errno.EFBIG)
        self.assertEqual(self.names(), ["000001-step-1", "000002-step-3"])

    def test_full_file_system_leaves_earlier_checkpoint_and_tables_intact(self):
        unshare = shutil.which("unshare")
        if unshare is None:
            self.skipTest("needs unshare, to mount a small file system")
        # Besides the other file, 7 MB are left for two checkpoints of 4 MB each.
        shell = ["sh", "-c", SMALL_DISK_SCRIPT, "sh", self.folder]
        paths = os.pathsep.join(sys.path)
        status, printed, errors = run_command(
            unshare,
            "--map-root-user",
            "--mount",
            *shell,
            sys.executable,
            FULL_DISK_PROGRAM,
            PYTHONPATH=paths,
        )
        if status == 77 or "unshare:" in errors:
            self.skipTest(f"cannot mount a file system here: {errors.strip()}")
        self.assertEqual(status, 0, errors)
        self.check_errors(printed, errno.ENOSPC)
