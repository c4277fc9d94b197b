"""Integers that float64 cannot hold were off by one in Constant, and in what Lua received."""

import numpy as np
from folders import FolderTestCase
from requirements import needs

import multiverso as mv
from multiverso import checkpoint as checkpoints
from multiverso.initializers import Constant

NUMBERS = (
    *(2**53 + 1, -(2**53) - 1, 2**53, 2**60 + 7, 2**63 - 1, -(2**63), -(2**63) + 1),
    *(2**62 + 2**9 - 1, 12345678901234567),
)


class TestIntegersAboveTwoTo53(FolderTestCase):
    def test_constants_are_exact_in_every_table_and_checkpoint(self):
        for index, number in enumerate((*NUMBERS, np.int64(2**53 + 3))):
            folder = self.folder / str(index)
            with self.subTest(number=number), mv.session():
                initial = Constant(number)
                array = mv.ArrayTableHandler(3, initial, dtype="int64", name="a")
                matrix = mv.MatrixTableHandler(2, 2, initial, dtype="int64", name="m")
                table = mv.HashTableHandler(1, 100, initial, dtype="int64", name="h")
                self.assertEqual(array.get().tolist(), [number] * 3)
                self.assertEqual(matrix.get([1, 0]).tolist(), [[number] * 2] * 2)
                self.assertEqual(table.get([5]).tolist(), [[number]])
                sign = -1 if number > 0 else 1
                self.assertEqual(array.fetch_add(1, sign), number)
                matrix.add([[sign, 0]], [1])
                mv.save(folder, step=1)
                array.add([sign] * 3)
                mv.load(folder)
                self.assertEqual(array.get().tolist(), [number, number + sign, number])
                self.assertEqual(matrix.get().tolist(), [[number] * 2, [number + sign, number]])
                self.assertEqual(table.get([5, 6]).tolist(), [[number]] * 2)
            with checkpoints.Checkpoint(folder) as opened:
                self.assertEqual(opened.read("a").tolist(), [number, number + sign, number])

    def test_constants_beyond_the_dtype_are_refused(self):
        with mv.session():
            for number, dtype in (
                *((2**63, "int64"), (-(2**63) - 1, "int64"), (2**64 + 1, "int64")),
                *((2**31, "int32"), (2**53 + 1, "int32"), (10**300, "int64")),
            ):
                with self.subTest(number=number), self.assertRaises(ValueError):
                    mv.ArrayTableHandler(2, Constant(number), dtype=dtype)
            with self.assertRaisesRegex(TypeError, "an integer"):
                mv.ArrayTableHandler(2, Constant(0.5), dtype="int64")
            self.assertEqual(
                mv.ArrayTableHandler(1, Constant(-(2**31)), dtype="int32").get(), -(2**31)
            )

    def test_values_of_calls_are_exact(self):
        for number in NUMBERS:
            with self.subTest(number=number), mv.session():
                for initial in (number, [number, number]):
                    table = mv.ArrayTableHandler(2, initial, dtype="int64")
                    self.assertEqual(table.get().tolist(), [number] * 2)
                table = mv.ArrayTableHandler(2, dtype="int64")
                self.assertEqual(table.add_get([number, 0]).tolist(), [number, 0])
                self.assertEqual(table.fetch_add(1, number), 0)
                self.assertEqual(table.compare_swap(1, number, 0), number)
                self.assertEqual(table.get().tolist(), [number, 0])
                self.assertEqual(mv.aggregate(np.array([number])).tolist(), [number])

    @needs("safetensors")
    def test_values_and_steps_in_safetensors_are_exact(self):
        with mv.session():
            kept = mv.ArrayTableHandler(len(NUMBERS), list(NUMBERS), dtype="int64", name="a")
            mv.save(self.folder / "one", step=2**53 + 1)
            del kept
        checkpoints.export_safetensors(self.folder / "one", self.folder / "file")
        checkpoints.import_safetensors(self.folder / "file", self.folder / "two")
        with checkpoints.Checkpoint(self.folder / "two") as opened:
            self.assertEqual(opened.step, 2**53 + 1)
            self.assertEqual(opened.read("a").tolist(), list(NUMBERS))
