"""Saving and loading in one process, what is refused, and the files without a session."""

import contextlib
import errno
import importlib.util
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import checkpoint_bytes
import numpy as np

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso._commands import main

ROOT = Path(__file__).resolve().parents[2]
DTYPES = ("float32", "float64", "int32", "int64")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "dcasgd")

# Under a limit on the size of files, which stands for a disk that is full.
FULL = """
import resource, sys
import numpy as np
import multiverso as mv
with mv.session():
    table = mv.ArrayTableHandler(1_000_000, np.ones(1_000_000), name="w")
    mv.save(sys.argv[1], step=1)
    table.add(np.ones(1_000_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
    for background in (False, True):
        try:
            mv.save(sys.argv[1], step=2, background=background)
            mv.wait_for_save()
        except mv.CheckpointIOError as error:
            print(error.errno, error.path, 0 < error.bytes_written <= 2_000_000)
    assert (table.get() == 2).all()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert mv.load(sys.argv[1]) == 1
    assert (table.get() == 1).all()
    mv.save(sys.argv[1], step=3)
"""


# On a file system of its own, of a few megabytes, which is full before the second save is complete.
FULL_DISK = """
import errno, os, sys
import numpy as np
import multiverso as mv
with mv.session():
    table = mv.ArrayTableHandler(1_000_000, np.ones(1_000_000), name="w")
    mv.save(sys.argv[1], step=1)
    table.add(np.ones(1_000_000))
    for background in (False, True):
        try:
            mv.save(sys.argv[1], step=2, background=background)
            mv.wait_for_save()
        except mv.CheckpointIOError as error:
            print(error.errno == errno.ENOSPC, 0 < error.bytes_written < 4_000_000)
    assert (table.get() == 2).all()
    assert mv.load(sys.argv[1]) == 1
    assert (table.get() == 1).all()
    os.remove(os.path.join(sys.argv[1], "other"))
    assert sorted(os.listdir(sys.argv[1])) == ["000001-step-1"]
    mv.save(sys.argv[1], step=3)
"""

#: Mounts a file system that no other process sees, with a file that takes a part of it.
SMALL_DISK = """
mount -t tmpfs -o size=9m none "$1" || exit 77
head -c 2000000 /dev/zero > "$1/other"
exec "$2" -c "$3" "$1"
"""


class Folder(unittest.TestCase):
    """A test with a folder of its own, and a session if it opens one."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class TestSaving(Folder):
    def test_what_was_saved_comes_back(self):
        for dtype in DTYPES:
            with self.subTest(dtype), mv.session():
                values = np.arange(70).astype(dtype)
                array = mv.ArrayTableHandler(70, values, dtype=dtype)
                matrix = mv.MatrixTableHandler(7, 10, values.reshape(7, 10), dtype=dtype)
                mv.save(self.folder, step=5)
                array.add(values)
                matrix.add(values[:10], [3])
                self.assertEqual(mv.load(self.folder), 5)
                np.testing.assert_array_equal(array.get(), values)
                np.testing.assert_array_equal(matrix.get(), values.reshape(7, 10))

    def test_updaters_go_on_as_if_nothing_had_been(self):
        def tables(updater):
            options = {} if updater == "dcasgd" else {"learning_rate": 0.25}
            return (
                mv.ArrayTableHandler(50, updater=updater, **options),
                mv.MatrixTableHandler(5, 10, updater=updater, **options),
            )

        def train(array, matrix, steps):
            for step in range(steps):
                array.add(np.linspace(-1, 1, 50) * (step + 1))
                matrix.add(np.linspace(1, 2, 20).reshape(2, 10), [step % 5, 4])
            return np.concatenate([array.get(), matrix.get().ravel()])

        for updater in OPTIMIZERS:
            with self.subTest(updater):
                with mv.session():
                    both = tables(updater)
                    both[0].set_option(learning_rate=0.125)
                    train(*both, 3)
                    mv.save(self.folder)
                    expected = train(*both, 3)
                with mv.session():
                    both = tables(updater)
                    train(*both, 1)
                    mv.load(self.folder)
                    self.assertEqual(both[0].options["learning_rate"], 0.125)
                    np.testing.assert_array_equal(train(*both, 3), expected)

    def test_checkpoints_are_numbered_and_the_oldest_go(self):
        with mv.session():
            table = mv.ArrayTableHandler(3)
            self.assertIsNone(checkpoints.latest(self.folder))
            for step in (10, 20, None):
                table.add(np.ones(3))
                mv.save(self.folder, step=step)
            self.assertEqual(self.names(), ["000001-step-10", "000002-step-20", "000003-step-21"])
            mv.save(self.folder, step=1, keep=2)
            self.assertEqual(self.names(), ["000003-step-21", "000004-step-1"])
            self.assertEqual(checkpoints.latest(self.folder), self.folder / "000004-step-1")
            self.assertEqual(mv.load(self.folder / "000003-step-21"), 21)
            self.assertEqual(mv.load(self.folder), 1)

    def test_in_the_background_it_is_the_state_of_the_call(self):
        with mv.session():
            table = mv.ArrayTableHandler(300_000)
            for step in range(1, 4):
                table.add(np.ones(300_000))
                mv.save(self.folder, step=step, background=True)
                table.add(np.ones(300_000))
            mv.wait_for_save()
            mv.wait_for_save()
        for step in range(1, 4):
            with checkpoints.Checkpoint(self.folder / f"{step:06}-step-{step}") as saved:
                np.testing.assert_array_equal(saved.read(0), np.full(300_000, 2 * step - 1))

    def test_shutdown_completes_a_save_in_the_background(self):
        with mv.session():
            table = mv.ArrayTableHandler(100_000)
            mv.save(self.folder, step=1, background=True)
        with checkpoints.Checkpoint(self.folder) as saved:
            saved.verify()
            self.assertEqual([found.name for found in saved.tables], ["table 0"])
        del table

    def test_one_table_alone(self):
        with mv.session():
            one = mv.ArrayTableHandler(4, np.arange(4), name="one")
            two = mv.ArrayTableHandler(4, np.ones(4), name="two")
            one.save(self.folder / "one", step=3)
            mv.save(self.folder / "all", step=4)
            self.assertEqual(two.load(self.folder / "one"), 3)  # whatever its name
            np.testing.assert_array_equal(two.get(), np.arange(4))
            one.add(np.ones(4))
            self.assertEqual(two.load(self.folder / "all"), 4)
            np.testing.assert_array_equal(two.get(), np.ones(4))
            np.testing.assert_array_equal(one.get(), np.arange(4) + 1)
            with self.assertRaises(mv.MismatchError):
                mv.load(self.folder / "one")

    def test_what_may_be_missing(self):
        with mv.session():
            table = mv.ArrayTableHandler(1)
            for directory in (self.folder, self.folder / "none"):
                self.assertIsNone(mv.load(directory, missing_ok=True))
                self.assertIsNone(table.load(directory, missing_ok=True))
                with self.assertRaises(mv.CheckpointIOError) as caught:
                    mv.load(directory)
                self.assertEqual(caught.exception.errno, errno.ENOENT)
                self.assertEqual(caught.exception.path, str(directory))


class TestRefused(Folder):
    def test_wrong_arguments(self):
        wrong = [
            (TypeError, {"directory": 3}),
            (TypeError, {"directory": b"folder"}),
            (ValueError, {"directory": ""}),
            (ValueError, {"directory": "a\0b"}),
            (TypeError, {"step": 1.0}),
            (TypeError, {"step": True}),
            (ValueError, {"step": -1}),
            (ValueError, {"step": 2**64 + 7}),
            (ValueError, {"keep": 0}),
            (TypeError, {"keep": "2"}),
            (TypeError, {"background": 1}),
        ]
        with mv.session():
            mv.ArrayTableHandler(1)
            for error, arguments in wrong:
                with self.subTest(arguments), self.assertRaisesRegex(error, "expected"):
                    mv.save(**{"directory": self.folder, **arguments})
        self.assertEqual(self.names(), [])

    def test_no_session(self):
        for call in (lambda: mv.save(self.folder), lambda: mv.load(self.folder)):
            with self.assertRaises(mv.StateError):
                call()

    def test_tables_that_are_not_those_that_were_saved(self):
        with mv.session():
            kept = mv.MatrixTableHandler(3, 4, name="w", updater="sgd")
            mv.save(self.folder)
            self.assertEqual(kept.load(self.folder), 0)
        others = [
            lambda: mv.MatrixTableHandler(4, 3, name="w", updater="sgd"),
            lambda: mv.MatrixTableHandler(3, 4, name="v", updater="sgd"),
            lambda: mv.MatrixTableHandler(3, 4, name="w", updater="adam"),
            lambda: mv.MatrixTableHandler(3, 4, name="w", updater="sgd", dtype="float64"),
            lambda: mv.ArrayTableHandler(12, name="w", updater="sgd"),
        ]
        for make in others:
            with mv.session():
                table = make()
                with self.assertRaisesRegex(mv.MismatchError, "expected .*, received"):
                    mv.load(self.folder)
                self.assertFalse(table.get().any())

    def test_folder_that_cannot_be(self):
        (self.folder / "file").write_text("mine")
        with mv.session():
            mv.ArrayTableHandler(1)
            with self.assertRaises(mv.CheckpointIOError) as caught:
                mv.save(self.folder / "file" / "below")
            self.assertEqual(caught.exception.errno, errno.ENOTDIR)
            with self.assertRaises(mv.CheckpointIOError):
                mv.save(self.folder / "file")
        self.assertEqual((self.folder / "file").read_text(), "mine")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_folder_without_rights(self):
        self.folder.chmod(0o500)
        self.addCleanup(self.folder.chmod, 0o700)
        with mv.session():
            mv.ArrayTableHandler(1)
            with self.assertRaises(mv.CheckpointIOError) as caught:
                mv.save(self.folder)
            self.assertEqual(caught.exception.errno, errno.EACCES)

    def test_full_disk(self):
        result = subprocess.run(
            [sys.executable, "-c", FULL, str(self.folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.split("\n")
        for line in lines[:2]:
            self.assertRegex(line, rf"^{errno.EFBIG} {self.folder}/\.saving-.*shard-00000.* True$")
        self.assertEqual(self.names(), ["000001-step-1", "000002-step-3"])

    def test_disk_that_is_really_full(self):
        unshare = shutil.which("unshare")
        if unshare is None:
            self.skipTest("there is no unshare, to mount a disk that is small")
        # The first checkpoint takes 4 MB, what lies beside it 2 MB, and the second would take 4 MB.
        shell = ["sh", "-c", SMALL_DISK, "sh", str(self.folder), sys.executable, FULL_DISK]
        result = subprocess.run(
            [unshare, "--map-root-user", "--mount", *shell],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode == 77 or "unshare:" in result.stderr:
            self.skipTest(f"no disk can be mounted here: {result.stderr.strip()}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "True True\n" * 2)


class TestDamage(Folder):
    """Of each kind, on a checkpoint of a matrix with state and counts of updates."""

    def setUp(self):
        super().setUp()
        with mv.session():
            table = mv.MatrixTableHandler(40, 300, updater="adam", name="w")
            table.add(np.ones((40, 300)))
            mv.save(self.folder, step=1)
            mv.save(self.folder, step=2)
        self.path = self.folder / "000002-step-2"

    def check_refused(self, file, error=mv.CheckpointCorruptError):
        with self.assertRaises(error) as caught:
            checkpoints.verify(self.folder)
        self.assertEqual(caught.exception.path, str(self.path / file))
        with mv.session():
            table = mv.MatrixTableHandler(40, 300, updater="adam", name="w")
            table.add(np.ones((40, 300)))
            before = table.get()
            with self.assertRaises(error) as caught:
                mv.load(self.folder)
            self.assertEqual(caught.exception.path, str(self.path / file))
            np.testing.assert_array_equal(table.get(), before)
            self.assertEqual(mv.load(self.folder / "000001-step-1"), 1)
        return caught.exception

    def test_flipped_bits_anywhere(self):
        rng = np.random.default_rng(1)
        for file in ("manifest.mv", "shard-00000.mv"):
            whole = (self.path / file).read_bytes()
            for _ in range(5):
                at = int(rng.integers(len(whole)))
                with self.subTest(file=file, at=at):
                    damaged = bytearray(whole)
                    damaged[at] ^= 1 << int(rng.integers(8))
                    (self.path / file).write_bytes(damaged)
                    self.assertIsInstance(self.check_refused(file).offset, int)
            (self.path / file).write_bytes(whole)

    def test_truncated_and_extended(self):
        for file in ("manifest.mv", "shard-00000.mv"):
            whole = (self.path / file).read_bytes()
            for data in (b"", whole[:10], whole[:4096], whole[: len(whole) // 2], whole[:-1]):
                if data != whole:
                    with self.subTest(file=file, size=len(data)):
                        (self.path / file).write_bytes(data)
                        self.check_refused(file)
            (self.path / file).write_bytes(whole + b"\0")
            self.check_refused(file)
            (self.path / file).write_bytes(whole)

    def test_shard_of_another_checkpoint(self):
        shutil.copy(self.folder / "000001-step-1" / "shard-00000.mv", self.path)
        self.assertIn("of another", str(self.check_refused("shard-00000.mv")))

    def test_missing_file(self):
        (self.path / "shard-00000.mv").unlink()
        self.check_refused("shard-00000.mv")

    def test_pickle_is_not_opened(self):
        class Evil:
            def __reduce__(self):
                return (os.mkdir, (str(folder / "opened"),))

        folder = self.folder
        (self.path / "manifest.mv").write_bytes(pickle.dumps(Evil()))
        self.assertIn("a pickle", str(self.check_refused("manifest.mv")))
        with mv.session(), self.assertRaisesRegex(mv.CheckpointCorruptError, "a pickle"):
            mv.ArrayTableHandler(1)
            mv.load(self.path / "manifest.mv")
        self.assertFalse((folder / "opened").exists())

    def test_other_version_is_named(self):
        data = bytearray((self.path / "manifest.mv").read_bytes())
        data[8] = 2
        (self.path / "manifest.mv").write_bytes(checkpoint_bytes.with_crc(bytes(data)))
        self.assertIn("version 2", str(self.check_refused("manifest.mv")))

    def test_options_that_cannot_be(self):
        data = bytearray((self.path / "manifest.mv").read_bytes())
        data[96 + 104 : 96 + 112] = np.float64(np.nan).tobytes()  # learning_rate
        (self.path / "manifest.mv").write_bytes(checkpoint_bytes.with_crc(bytes(data)))
        with mv.session():
            table = mv.MatrixTableHandler(40, 300, updater="adam", name="w")
            with self.assertRaisesRegex(mv.CheckpointCorruptError, "learning_rate"):
                mv.load(self.folder)
            self.assertFalse(table.get().any())

    def test_verify_command(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main(["verify", str(self.folder)]), 0)
        self.assertEqual(out.getvalue().count("whole"), 2)
        self.assertIn("'w': 40 x 300 float32, adam", out.getvalue())
        (self.path / "shard-00000.mv").write_bytes(b"not one")
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(main(["verify", str(self.folder)]), 1)
            self.assertEqual(main(["verify", str(self.folder / "none")]), 1)
        self.assertEqual(out.getvalue().count("whole"), 1)
        self.assertIn(str(self.path / "shard-00000.mv"), err.getvalue())
        self.assertIn(str(self.folder / "none"), err.getvalue())

    def test_counts_that_do_not_make_the_size(self):
        # A header that claims 2^31 tables and a matching size, in a file of 100 bytes.
        data = bytearray((self.path / "manifest.mv").read_bytes())[:100]
        data[12:16] = (2**31).to_bytes(4, "little")
        data[16:24] = (100).to_bytes(8, "little")
        (self.path / "manifest.mv").write_bytes(checkpoint_bytes.with_crc(bytes(data)))
        self.check_refused("manifest.mv")


class TestFiles(Folder):
    def test_bytes_are_those_of_the_page(self):
        rng = np.random.default_rng(2)
        with mv.session():
            vector = rng.normal(size=70_000).astype("float32")
            array = mv.ArrayTableHandler(70_000, updater="adam", name="a")
            matrix = mv.MatrixTableHandler(9, 5, updater="adam", dtype="float64", name="müller")
            array.add(vector)
            array.add(vector)
            matrix.add(np.ones((2, 5)), [4, 7])
            whole = mv.ArrayTableHandler(3, [1, 2, 3], dtype="int64", name="c")
            mv.save(self.folder, step=300)
            saved = array.get(), matrix.get(), whole.get()
        manifest, arrays = checkpoint_bytes.read(checkpoints.latest(self.folder))
        self.assertEqual((manifest["number"], manifest["step"]), (1, 300))
        self.assertEqual((manifest["mode"], manifest["workers"]), (0, 1))
        self.assertEqual([t["name"] for t in manifest["tables"]], ["a", "müller", "c"])
        self.assertEqual([t["counting"] for t in manifest["tables"]], [2, 1, 0])
        self.assertEqual(manifest["tables"][0]["steps"], 2)
        self.assertEqual(manifest["tables"][1]["options"][4], 0.9)
        np.testing.assert_array_equal(arrays[0, 0].ravel(), saved[0])
        np.testing.assert_array_equal(arrays[1, 0], saved[1])
        np.testing.assert_array_equal(arrays[2, 0].ravel(), saved[2])
        steps = arrays[1, checkpoint_bytes.STEPS].ravel()
        np.testing.assert_array_equal(steps, [0, 0, 0, 0, 1, 0, 0, 1, 0])
        with checkpoints.Checkpoint(self.folder) as opened:
            for slot in range(2):
                np.testing.assert_array_equal(opened.read("a", slot), arrays[0, 1 + slot].ravel())
            np.testing.assert_array_equal(opened.read_steps("müller"), steps)
            self.assertEqual(opened.tables[0].steps, 2)
            self.assertIsNone(opened.read_steps("a"))
            with self.assertRaises(KeyError):
                opened.read("b")
            with self.assertRaises(IndexError):
                opened.read("c", 0)

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "safetensors is not installed")
    def test_safetensors_and_back(self):
        with mv.session():
            matrix = mv.MatrixTableHandler(4, 5, updater="adam", name="m")
            array = mv.ArrayTableHandler(6, np.arange(6), dtype="int32", name="a")
            matrix.add(np.ones((1, 5)), [2])
            mv.save(self.folder / "one", step=9)
            checkpoints.export_safetensors(self.folder / "one", self.folder / "file")
            checkpoints.import_safetensors(self.folder / "file", self.folder / "two")
            matrix.add(np.ones((4, 5)))
            expected = matrix.get()
            self.assertEqual(mv.load(self.folder / "two"), 9)
            np.testing.assert_array_equal(array.get(), np.arange(6))
            matrix.add(np.ones((4, 5)))
            np.testing.assert_array_equal(matrix.get(), expected)

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "safetensors is not installed")
    def test_safetensors_of_another_tool(self):
        from safetensors.numpy import save_file

        save_file(
            {"bias": np.arange(3, dtype="float32"), "kernel": np.ones((2, 3), "float64")},
            self.folder / "file",
        )
        checkpoints.import_safetensors(self.folder / "file", self.folder / "saved", step=4)
        with mv.session():
            bias = mv.ArrayTableHandler(3, name="bias")
            kernel = mv.MatrixTableHandler(2, 3, name="kernel", dtype="float64")
            self.assertEqual(mv.load(self.folder / "saved"), 4)
            np.testing.assert_array_equal(bias.get(), [0, 1, 2])
            np.testing.assert_array_equal(kernel.get(), np.ones((2, 3)))
        (self.folder / "file").write_bytes(b"something else")
        with self.assertRaisesRegex(ValueError, "expected a file of safetensors"):
            checkpoints.import_safetensors(self.folder / "file", self.folder / "saved")


if __name__ == "__main__":
    unittest.main()
