"""Tables whose parameters are stored as float16 or bfloat16."""

import unittest

import numpy as np
from folders import FolderTestCase
from requirements import needs

import multiverso as mv
from machine.halves import HALVES, round_stochastically
from multiverso.checkpoint import Checkpoint, export_safetensors, import_safetensors


def patterns(seed, count=200_000):
    """Return float32 values of random bits, so of all sizes, with infinities and NaN."""
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32).view(np.float32)


class TestHalf(unittest.TestCase):
    def each(self):
        for name, dtype in HALVES.items():
            with self.subTest(name), mv.session():
                yield name, dtype

    def test_every_number_of_16_bits_is_stored_exactly(self):
        for name, dtype in self.each():
            numbers = np.arange(2**16, dtype=np.uint16).view(dtype)
            table = mv.ArrayTableHandler(2**16, numbers.astype(np.float32), dtype=name)
            np.testing.assert_array_equal(table.get(), numbers.astype(np.float32))

    def test_initial_values_are_rounded_to_the_nearest(self):
        for name, dtype in self.each():
            values = patterns(1)
            table = mv.ArrayTableHandler(values.size, values, dtype=name)
            with np.errstate(over="ignore", invalid="ignore"):
                expected = values.astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(table.get(), expected)

    def test_sums_of_all_sizes_are_rounded_as_the_model_says(self):
        for name, _ in self.each():
            values = patterns(2)
            table = mv.ArrayTableHandler(values.size, dtype=name)
            result = table.add_get(values)
            with np.errstate(over="ignore", invalid="ignore"):
                expected = round_stochastically(values[None], *np.array([[0], [1]]), name)[0]
            np.testing.assert_array_equal(result, expected)
            np.testing.assert_array_equal(table.get(), expected)

    def test_small_steps_are_not_lost_on_average(self):
        steps, elements = 256, 40_000
        for name, _ in self.each():
            # A step is a 64th of the distance between 1 and the next number.
            distance = {"bfloat16": 2.0**-7, "float16": 2.0**-10}[name]
            table = mv.MatrixTableHandler(elements // 8, 8, 1.0, dtype=name)
            for _ in range(steps):
                table.add(np.full((elements // 8, 8), distance / 64))
            change = (table.get() - 1) / distance
            # The sum of independent roundings has a variance of at most 1/4 each.
            deviation = np.sqrt(steps / 4 / elements)
            self.assertLess(abs(change.mean() - steps / 64), 5 * deviation)
            self.assertGreater(len(np.unique(change)), 3)

    def test_results_have_the_dtype_that_the_caller_chooses(self):
        for name, dtype in self.each():
            table = mv.MatrixTableHandler(4, 3, 1.5, dtype=dtype)
            self.assertEqual((table.dtype, table.value_dtype), (dtype, np.float32))
            self.assertEqual(table.get().dtype, np.float32)
            self.assertIn(name, repr(table))
            out = np.zeros((4, 3), dtype)
            self.assertIs(table.get(out=out), out)
            np.testing.assert_array_equal(out, np.full((4, 3), 1.5, dtype))
            rows = np.zeros((2, 3), dtype)
            table.get([3, 3], out=rows)
            table.get_async([0, 1], out=(later := np.zeros((2, 3), dtype))).result()
            np.testing.assert_array_equal(rows, later)
            table.add_get(np.ones((4, 3), dtype), out=out)
            np.testing.assert_array_equal(out, np.full((4, 3), 2.5, dtype))
            with self.assertRaisesRegex(TypeError, f"float32 or {name}, received float64"):
                table.get(out=np.zeros((4, 3)))

    def test_numbers_that_the_type_cannot_hold_are_rejected(self):
        for name, number in (("float16", 70_000.0), ("bfloat16", 3.4e38)):
            with mv.session(), self.assertRaisesRegex(ValueError, f"numbers that {name} can hold"):
                mv.ArrayTableHandler(3, mv.initializers.Constant(number), dtype=name)


class TestHalfInCheckpoints(FolderTestCase):
    def check(self, name, initial, convert):
        options = {"dtype": name, "updater": "adam", "name": "w"}
        deltas = np.random.default_rng(3).standard_normal((6, 40, 16)).astype(np.float32)
        with mv.session():
            table = mv.MatrixTableHandler(40, 16, initial, **options)
            for delta in deltas[:3]:
                table.add(delta[:20], range(0, 40, 2))
            mv.save(self.folder / "saved")
            saved = table.get()
            for delta in deltas[3:]:
                table.add(delta)
            expected = table.get()
        folder = convert(self.folder / "saved")
        with Checkpoint(folder) as checkpoint:
            self.assertEqual(checkpoint.read("w").dtype, HALVES[name])
            np.testing.assert_array_equal(checkpoint.read("w").astype(np.float32), saved)
            self.assertEqual(checkpoint.read("w", slot=0).dtype, np.float32)
            self.assertEqual(checkpoint.read_steps("w").tolist(), [3, 0] * 20)
        with mv.session():
            lazy = isinstance(initial, mv.initializers.Initializer) and folder.name == "saved"
            table = mv.MatrixTableHandler(40, 16, initial if lazy else None, **options)
            mv.load(folder)
            np.testing.assert_array_equal(table.get(), saved)
            for delta in deltas[3:]:
                table.add(delta)
            np.testing.assert_array_equal(table.get(), expected)

    @needs("safetensors")
    def test_safetensors_keep_the_types(self):
        def convert(folder):
            export_safetensors(folder, self.folder / "w.safetensors")
            import_safetensors(self.folder / "w.safetensors", self.folder / "again")
            return self.folder / "again"

        for name in HALVES:
            with self.subTest(name):
                self.check(name, 0.25, convert)
