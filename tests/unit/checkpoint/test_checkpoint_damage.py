"""Checkpoint files that were changed, truncated or exchanged are detected and named."""

import contextlib
import io
import json
import os
import pickle
import shutil
from unittest import mock

import checkpoint_bytes
import numpy as np
from folders import FolderTestCase

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso._commands import main
from multiverso._native import checkpoint_calls


class TestNewestIntact(FolderTestCase):
    """Errors about a damaged checkpoint name the newest intact one, and the call that loads it."""

    def setUp(self):
        super().setUp()
        with mv.session():
            table = mv.ArrayTable(3, name="w")
            for step in range(1, 5):
                table.add(np.ones(3))
                mv.save(self.folder, step=step)
        self.paths = checkpoints.saved_in(self.folder)

    def damage(self, index, kind):
        manifest, shard = (self.paths[index] / name for name in ("manifest.mv", "shard-00000.mv"))
        match kind:
            case "data":
                content = bytearray(shard.read_bytes())
                content[4096] ^= 1
                shard.write_bytes(content)
            case "manifest":
                manifest.write_bytes(b"?")
            case "missing":
                shard.unlink()
            case "folder":
                manifest.unlink()
                manifest.mkdir()

    def test_load_and_verify_name_it(self):
        kinds = ("data", "manifest", "missing", "folder")
        for damaged, kind in enumerate(kinds, start=1):
            self.damage(-damaged, kind)
            loaded = self.paths[-damaged - 1] if damaged < 4 else None
            with mv.session():
                table = mv.ArrayTable(3, name="w")
                for call, name in (
                    (mv.load, "mv.load"),
                    (table.load, "table.load"),
                    (checkpoints.verify, "mv.load"),
                ):
                    for path in (self.folder, self.paths[-damaged]):
                        with self.subTest(damaged=damaged, call=name, path=path.name):
                            with self.assertRaises(mv.MultiversoError) as caught:
                                call(path)
                            text = caught.exception.args[0]
                            if loaded is None:
                                self.assertIn("none of the 3 other checkpoints", text)
                            else:
                                self.assertTrue(text.endswith(f"{name}({str(loaded)!r})"), text)
                if loaded is not None:
                    self.assertEqual(mv.load(str(loaded)), 4 - damaged)
                    np.testing.assert_array_equal(table.get(), np.full(3, 4 - damaged))

    def test_command_names_it(self):
        self.damage(-1, "data")
        for path in (self.folder, self.paths[-1]):
            errors = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                self.assertEqual(main(["verify", str(path)]), 1)
            self.assertIn(f"mv.load({str(self.paths[-2])!r})", errors.getvalue())

    def test_search_ends_in_time(self):
        self.damage(-1, "data")
        with mock.patch.object(checkpoint_calls, "_MOST_SECONDS", 0):
            with self.assertRaisesRegex(mv.errors.CheckpointCorruptError, "multiverso verify"):
                checkpoints.verify(self.folder)

    def test_other_errors_name_none(self):
        for path in (self.folder / "none", self.folder.parent / "nowhere"):
            with self.assertRaises(mv.errors.CheckpointIOError) as caught:
                checkpoints.verify(path)
            self.assertNotIn("mv.load(", str(caught.exception))


class TestDamage(FolderTestCase):
    """Each kind of damage, on the checkpoint of a matrix with updater state and update counts."""

    def setUp(self):
        super().setUp()
        with mv.session():
            table = mv.MatrixTableHandler(40, 300, updater="adam", name="w")
            table.add(np.ones((40, 300)))
            mv.save(self.folder, step=1)
            mv.save(self.folder, step=2)
        self.path = self.folder / "000002-step-2"

    def check_refused(self, file, error=mv.errors.CheckpointCorruptError):
        """Check that verify and load raise an error that names the file; return it."""
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

    def test_detects_a_missing_file_and_one_of_another_checkpoint(self):
        shutil.copy(self.folder / "000001-step-1" / "shard-00000.mv", self.path)
        self.assertIn("of another", str(self.check_refused("shard-00000.mv")))
        (self.path / "shard-00000.mv").unlink()
        self.check_refused("shard-00000.mv")

    def test_does_not_unpickle(self):
        class MakesFolder:
            def __reduce__(self):
                return (os.mkdir, (str(folder / "opened"),))

        folder = self.folder
        (self.path / "manifest.mv").write_bytes(pickle.dumps(MakesFolder()))
        self.assertIn("a pickle", str(self.check_refused("manifest.mv")))
        with mv.session(), self.assertRaisesRegex(mv.errors.CheckpointCorruptError, "a pickle"):
            mv.ArrayTableHandler(1)
            mv.load(self.path / "manifest.mv")
        self.assertFalse((folder / "opened").exists())

    def forge(self, changes, size=None):
        """Cut the manifest to `size`, replace bytes at the given offsets, correct the checksum."""
        data = bytearray((self.path / "manifest.mv").read_bytes()[:size])
        for offset, new in changes.items():
            data[offset : offset + len(new)] = new
        (self.path / "manifest.mv").write_bytes(checkpoint_bytes.with_crc(bytes(data)))

    def test_names_an_unsupported_version(self):
        self.forge({8: b"\6"})
        self.assertIn("version 6", str(self.check_refused("manifest.mv")))

    def test_detects_invalid_options(self):
        self.forge({96 + 104: np.float64(np.nan).tobytes()})  # learning_rate
        with mv.session():
            table = mv.MatrixTableHandler(40, 300, updater="adam", name="w")
            with self.assertRaisesRegex(mv.errors.CheckpointCorruptError, "learning_rate"):
                mv.load(self.folder)
            self.assertFalse(table.get().any())

    def test_verify_command_reports_damage(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main(["verify", str(self.folder)]), 0)
        self.assertEqual(out.getvalue().count("intact"), 2)
        self.assertIn("'w': 40 x 300 float32, adam", out.getvalue())
        (self.path / "shard-00000.mv").write_bytes(b"not one")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(main(["verify", str(self.folder)]), 1)
            self.assertEqual(main(["verify", str(self.folder / "none")]), 1)
        self.assertEqual(out.getvalue().count("intact"), 1)
        self.assertIn(f"damaged: {self.path / 'shard-00000.mv'} at byte 0", err.getvalue())
        self.assertIn(str(self.folder / "none"), err.getvalue())
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(main(["verify", "--json", str(self.folder)]), 1)
        results = json.loads(out.getvalue())
        self.assertEqual(sorted(result["intact"] for result in results), [False, True])
        (damaged,) = (result for result in results if not result["intact"])
        self.assertEqual((damaged["file"], damaged["byte"]), (str(self.path / "shard-00000.mv"), 0))
        (intact,) = (result for result in results if result["intact"])
        self.assertEqual(intact["tables"][0]["shape"], [40, 300])
