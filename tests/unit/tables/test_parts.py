"""Parts and single elements of tables on one rank: indices, errors, and all updaters."""

import numpy as np
from sessions import SessionCleanupTestCase

import multiverso as mv


class TestParts(SessionCleanupTestCase):
    def test_rejects_other_indices_and_changes_nothing(self):
        with mv.session():
            matrix, array = mv.MatrixTableHandler(3, 5), mv.ArrayTableHandler(4)
            for index, error in (
                (3, IndexError),
                ((0, -6), IndexError),
                ((0, 0, 0), IndexError),
                (np.s_[..., ...], IndexError),
                (np.s_[::2], ValueError),
                (np.s_[::-1], ValueError),
                ([0, 1], TypeError),
                (1.0, TypeError),
                (True, TypeError),
                ((None, 0), TypeError),
                (slice("a"), TypeError),
            ):
                with self.subTest(index=index):
                    self.assertRaises(error, matrix.get, index=index)
                    self.assertRaises(error, matrix.add, 1, index=index)
                    self.assertRaises((TypeError, error), matrix.fetch_add, index)
            for data in ([1, 2], np.ones((2, 2)), 1):
                self.assertRaises(ValueError, array.add, data, index=np.s_[:3])
            self.assertRaises(TypeError, array.add, [1j], index=np.s_[:1])
            self.assertRaises(ValueError, array.get, index=np.s_[:3], out=np.empty(2, np.float32))
            for call in (matrix.get, lambda **options: matrix.add([0] * 5, **options)):
                with self.assertRaisesRegex(TypeError, "row_ids: expected None"):
                    call(row_ids=[0], index=0)
            self.assertFalse(matrix.get().any() or array.get().any())

    def test_elements_are_integers_that_wrap_around(self):
        with mv.session():
            counter = mv.ArrayTableHandler(2, dtype="int32")
            counter.add([2**31 - 1, 0])
            self.assertEqual(counter.fetch_add(0), 2**31 - 1)
            self.assertEqual(counter.fetch_add(-2, 5), -(2**31))  # wraps around
            self.assertIsInstance(counter.fetch_add(1), np.int32)
            self.assertRaises(ValueError, counter.fetch_add, 0, 2**31)
            self.assertRaises(TypeError, counter.fetch_add, 0, 0.5)
            self.assertRaises(ValueError, counter.compare_swap, 0, [1, 2], 3)
            for index in (np.s_[:1], ..., (0, 0), [0]):
                self.assertRaises((TypeError, IndexError), counter.fetch_add, index)
        self.assertRaises(mv.errors.StateError, counter.fetch_add, 0)
        self.assertRaises(mv.errors.StateError, counter.get, index=0)

    def test_nan_is_rejected_by_its_policy_and_equals_nothing(self):
        with mv.session():
            table = mv.ArrayTableHandler(1, np.nan, dtype="float64")
            self.assertTrue(np.isnan(table.compare_swap(0, np.nan, 1)))
            self.assertTrue(np.isnan(table.get(index=0)))
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(1)
            self.assertRaisesRegex(ValueError, "delta", table.fetch_add, 0, np.nan)
            self.assertRaisesRegex(ValueError, "new", table.compare_swap, 0, 0, np.inf)
            self.assertRaisesRegex(ValueError, "data", table.add, np.nan, index=0)

    def test_fresh_get_returns_the_adds_to_parts(self):
        with mv.session():
            table = mv.MatrixTableHandler(100, 4)
            future = table.get_async(range(100), fresh=True)
            table.add([1, 1], index=np.s_[7, 1:3])
            table.fetch_add((8, 0))
            table.compare_swap((9, 0), 0, 4)
            np.testing.assert_array_equal(future.result(), table.get())
