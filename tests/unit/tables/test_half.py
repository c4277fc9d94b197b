"""Tables whose parameters are stored as float16 or bfloat16."""

import unittest

import numpy as np

import multiverso as mv
from machine.halves import HALVES, round_stochastically


class TestHalf(unittest.TestCase):
    def each(self):
        for name, dtype in HALVES.items():
            with self.subTest(name), mv.session():
                yield name, dtype

    def test_values_of_all_sizes_are_rounded_as_the_model_says(self):
        patterns = np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
        for name, dtype in self.each():
            exact = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
            values = np.concatenate([patterns, exact])
            table = mv.ArrayTableHandler(values.size, values, dtype=name)
            sums = mv.ArrayTableHandler(values.size, dtype=name)
            with np.errstate(over="ignore", invalid="ignore"):
                nearest = values.astype(dtype).astype(np.float32)
                rounded = round_stochastically(values[None], *np.array([[0], [1]]), name)[0]
            np.testing.assert_array_equal(table.get(), nearest)
            np.testing.assert_array_equal(sums.add_get(values), rounded)

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
