"""The bytes of checkpoint files match their documentation; conversion to and from safetensors."""

import checkpoint_bytes
import numpy as np
from folders import FolderTestCase
from requirements import needs

import multiverso as mv
from multiverso import checkpoint as checkpoints


class TestFiles(FolderTestCase):
    def test_bytes_match_the_documented_format(self):
        rng = np.random.default_rng(2)
        with mv.session():
            vector = rng.normal(size=70_000).astype("float32")
            array = mv.ArrayTableHandler(70_000, updater="adam", name="a")
            matrix = mv.MatrixTableHandler(9, 5, updater="adam", dtype="float64", name="müller")
            array.add(vector)
            array.add(vector)
            matrix.add(np.ones((2, 5)), [4, 7])
            whole = mv.ArrayTableHandler(3, [1, 2, 3], dtype="int64", name="c")
            rows = mv.MatrixTableHandler(9, 5, updater="rowwise_adagrad", name="d")
            rows.add(np.full((1, 5), 2), [6])
            mv.save(self.folder, step=300)
            saved = array.get(), matrix.get(), whole.get()
        manifest, arrays = checkpoint_bytes.read(checkpoints.latest(self.folder))
        self.assertEqual((manifest["number"], manifest["step"]), (1, 300))
        self.assertEqual((manifest["mode"], manifest["workers"]), (0, 1))
        self.assertEqual([t["name"] for t in manifest["tables"]], ["a", "müller", "c", "d"])
        self.assertEqual([t["counting"] for t in manifest["tables"]], [2, 1, 0, 0])
        self.assertEqual([t["row_slots"] for t in manifest["tables"]], [0, 0, 0, 1])
        self.assertEqual(manifest["tables"][0]["steps"], 2)
        self.assertEqual(manifest["tables"][1]["options"][4], 0.9)
        np.testing.assert_array_equal(arrays[0, 0].ravel(), saved[0])
        np.testing.assert_array_equal(arrays[1, 0], saved[1])
        np.testing.assert_array_equal(arrays[2, 0].ravel(), saved[2])
        steps = arrays[1, checkpoint_bytes.STEPS].ravel()
        np.testing.assert_array_equal(steps, [0, 0, 0, 0, 1, 0, 0, 1, 0])
        row_state = arrays[3, checkpoint_bytes.ROW_STATE]
        np.testing.assert_array_equal(row_state.ravel(), [0, 0, 0, 0, 0, 0, 4, 0, 0])
        with checkpoints.Checkpoint(self.folder) as opened:
            np.testing.assert_array_equal(opened.read_row_state("d"), row_state)
            self.assertIsNone(opened.read_row_state("a"))
            for slot in range(2):
                np.testing.assert_array_equal(opened.read("a", slot), arrays[0, 1 + slot].ravel())
            np.testing.assert_array_equal(opened.read_steps("müller"), steps)
            self.assertEqual(opened.tables[0].steps, 2)
            self.assertIsNone(opened.read_steps("a"))
            with self.assertRaises(KeyError):
                opened.read("b")
            with self.assertRaises(IndexError):
                opened.read("c", 0)

    @needs("safetensors")
    def test_safetensors_round_trip_restores_an_equal_checkpoint(self):
        kinds = (("adam", "float32"), ("rowwise_adagrad", "float32"))
        kinds += (("adam", "float16"), ("adam", "bfloat16"))
        with mv.session():
            array = mv.ArrayTableHandler(6, np.arange(6), dtype="int32", name="a")
            tables = [
                mv.MatrixTableHandler(4, 5, updater=updater, dtype=dtype, name=updater + dtype)
                for updater, dtype in kinds
            ]
            for table in tables:
                table.add(np.full((1, 5), 0.3), [2])
            mv.save(self.folder / "one", step=9)
            checkpoints.export_safetensors(self.folder / "one", self.folder / "file")
            checkpoints.import_safetensors(self.folder / "file", self.folder / "two")
            with checkpoints.Checkpoint(self.folder / "two") as opened:
                for table in tables:
                    self.assertEqual(opened.read(table.name).dtype, table.dtype)
            expected = [table.add_get(np.ones((4, 5))) for table in tables]
            self.assertEqual(mv.load(self.folder / "two"), 9)
            np.testing.assert_array_equal(array.get(), np.arange(6))
            loaded = [table.add_get(np.ones((4, 5))) for table in tables]
            np.testing.assert_array_equal(loaded, expected)

    @needs("safetensors")
    def test_imports_safetensors_of_other_tools(self):
        from safetensors.numpy import save_file

        arrays = {"bias": np.arange(3, dtype="float32"), "kernel": np.ones((2, 3), "float64")}
        save_file(arrays, self.folder / "file")
        checkpoints.import_safetensors(self.folder / "file", self.folder / "saved", step=4)
        with mv.session():
            bias = mv.ArrayTableHandler(3, name="bias")
            kernel = mv.MatrixTableHandler(2, 3, name="kernel", dtype="float64")
            self.assertEqual(mv.load(self.folder / "saved"), 4)
            np.testing.assert_array_equal(bias.get(), [0, 1, 2])
            np.testing.assert_array_equal(kernel.get(), np.ones((2, 3)))
        (self.folder / "file").write_bytes(b"something else")
        with self.assertRaisesRegex(ValueError, "expected a safetensors file"):
            checkpoints.import_safetensors(self.folder / "file", self.folder / "saved")
