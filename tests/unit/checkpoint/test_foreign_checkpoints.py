"""Files and folders that anyone may have made: large promises in small files, names, metadata."""

import json
import resource
import shutil

import numpy as np
from folders import FolderTestCase
from requirements import needs

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso.checkpoint import _files
from multiverso.initializers import Constant


class TestLargeTables(FolderTestCase):
    """A checkpoint of some kilobytes with a table that is larger than the memory."""

    def setUp(self):
        super().setUp()
        with mv.session():
            large = mv.MatrixTableHandler(
                10**9, 64, Constant(3), updater="rowwise_adagrad", name="large"
            )
            large.add(np.ones((1, 64)), [7])
            small = mv.MatrixTableHandler(1000, 8, Constant(2), updater="adam", name="small")
            mv.save(self.folder / "saved")
            del small

    def test_read_refuses_more_than_the_files_can_explain(self):
        with checkpoints.Checkpoint(self.folder / "saved") as opened:
            self.assertLess(opened.num_bytes + _files.MAX_UNSTORED_BYTES, 2 << 30)
            for read in (opened.read, opened.read_row_state):
                with self.assertRaisesRegex(MemoryError, r"'large': expected at most .*max_bytes="):
                    read("large")
            np.testing.assert_array_equal(opened.read("small"), np.full((1000, 8), 2))
            for wrong in (-1, 1.5, True):
                with self.assertRaises((TypeError, ValueError)):
                    opened.read("small", max_bytes=wrong)

    def test_max_bytes_is_the_exact_limit(self):
        with mv.session():
            kept = mv.MatrixTableHandler(1000, 64, Constant(2), name="w")
            mv.save(self.folder / "other")
            del kept
        with checkpoints.Checkpoint(self.folder / "other") as opened:
            limit = 1000 * 64 * 4 - opened.num_bytes
            self.assertGreater(limit, 0)
            self.assertEqual(opened.read("w", max_bytes=limit).sum(), 128_000)
            with self.assertRaisesRegex(MemoryError, f"at most {limit - 1} bytes"):
                opened.read("w", max_bytes=limit - 1)

    @needs("safetensors")
    def test_export_refuses_tensors_that_are_too_large_together(self):
        target = self.folder / "file"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with self.assertRaisesRegex(MemoryError, "all tensors: expected at most"):
            checkpoints.export_safetensors(self.folder / "saved", target)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.assertLess(after - before, 1 << 18)
        self.assertEqual(self.names(), ["saved"])


class TestNames(FolderTestCase):
    def test_names_that_are_no_checkpoints_are_ignored(self):
        with mv.session():
            kept = mv.ArrayTableHandler(2, name="w")
            mv.save(self.folder, step=1)
            for name in (
                *("0000009-step-1", "000009-step-01", "٠٠٠٠٠٩-step-1", "9-step-1"),
                *("000009-step-1x", "000009-step--1", f"{2**63}-step-1", f"000009-step-{2**63}"),
            ):
                (self.folder / name).mkdir()
            self.assertEqual(mv.load(self.folder), 1)
            del kept
        self.assertEqual(checkpoints.latest(self.folder).name, "000001-step-1")


@needs("safetensors")
class TestMetadata(FolderTestCase):
    """The metadata of a safetensors file, in which anyone can write anything."""

    def setUp(self):
        super().setUp()
        with mv.session():
            kept = (
                mv.MatrixTableHandler(2, 3, updater="rowwise_adagrad", name="w"),
                mv.ArrayTableHandler(4, updater="adam", name="v"),
            )
            mv.save(self.folder / "saved", step=5)
            del kept
        checkpoints.export_safetensors(self.folder / "saved", self.folder / "file")
        import safetensors

        with safetensors.safe_open(self.folder / "file", framework="numpy") as opened:
            self.tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            self.metadata = json.loads(opened.metadata()["multiverso"])

    def attempt(self, text):
        """Import a file with these metadata; return the error, which must be typed, or None."""
        from safetensors.numpy import save_file

        save_file(self.tensors, self.folder / "changed", metadata={"multiverso": text})
        target = self.folder / "target"
        try:
            checkpoints.import_safetensors(self.folder / "changed", target)
        except ValueError as error:
            self.assertFalse(target.exists())
            return error
        checkpoints.verify(target)
        shutil.rmtree(target)
        return None

    def test_unchanged_metadata_are_accepted(self):
        self.assertIsNone(self.attempt(json.dumps(self.metadata)))

    def test_hostile_metadata_raise_value_error(self):
        deep = "[" * 100_000 + "]" * 100_000
        for text in (
            *("", "null", "0", "[]", "{}", '"x"', "NaN", "{", deep, "1" * 5000),
            *('{"tables": 3}', '{"tables": [3]}', '{"tables": null, "step": 1}'),
            f'{{"step": 1, "tables": {deep}}}',
        ):
            with self.subTest(text[:20]):
                self.assertRegex(str(self.attempt(text)), "expected metadata that match")
        entry = self.metadata["tables"][0]
        for key in entry:
            for value in (
                *(None, [], {}, "x", [[]], True),
                *(-1, 2**31, 2**64, 1e400, float("nan"), 0.5),
            ):
                with self.subTest(key=key, value=value):
                    changed = {"step": 1, "tables": [{**entry, key: value}]}
                    error = self.attempt(json.dumps(changed))
                    self.assertEqual(error is None, (key, value) == ("steps", 2**31))
        for step in (None, -1, 2**63, "1", 1.5, [], True):
            changed = {**self.metadata, "step": step}
            self.assertIsNotNone(self.attempt(json.dumps(changed)), step)
        twice = {"step": 1, "tables": self.metadata["tables"][:1] * 2}
        self.assertRegex(str(self.attempt(json.dumps(twice))), "the same name")
