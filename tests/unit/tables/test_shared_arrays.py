"""The delta buffer and the view of a table on one rank, and arrays that outlive the table."""

import gc
import unittest

import numpy as np
from sessions import SessionCleanupTestCase

import multiverso as mv


class TestSharedArrays(SessionCleanupTestCase):
    def test_buffer_and_view_agree_with_a_model_in_every_mode(self):
        strict = {"sync": True, "nan_policy": "error"}
        for options in ({}, {"sync": True}, {"staleness": 1}, strict):
            for shape in ((5,), (3, 4)):
                for dtype in ("float32", "int64"):
                    with self.subTest(options, shape=shape, dtype=dtype), mv.session(**options):
                        kind = mv.ArrayTableHandler if len(shape) == 1 else mv.MatrixTableHandler
                        self._check(kind(*shape, 1, dtype=dtype))

    def _check(self, table):
        model = np.ones(table.shape, table.dtype)
        delta = table.delta_buffer()
        self.assertEqual((delta.shape, delta.dtype), (table.shape, table.dtype))
        self.assertFalse(delta.any())
        for step in range(1, 6):
            delta = table.delta_buffer()
            self.assertTrue((delta == step - 1).all())
            delta[...] = step
            model += step
            if step == 3:
                np.testing.assert_array_equal(table.add_get(delta), model)
            else:
                table.add(delta)
            view = table.view()
            np.testing.assert_array_equal(view, model)
            self.assertEqual((view.shape, view.dtype), (table.shape, table.dtype))
            with self.assertRaisesRegex(ValueError, "read-only"):
                view[...] = 0
        table.add(view)
        np.testing.assert_array_equal(table.get(), 2 * model)

    def test_sync_mode_on_one_node_copies_nothing(self):
        with mv.session(sync=True):
            table = mv.ArrayTableHandler(1000)
            self.assertIs(table.delta_buffer(), table.delta_buffer())
            self.assertIs(table.view(), table.view())
            view = table.view()
            delta = table.delta_buffer()
            delta[:] = 1
            table.add(delta)
            table.view()
            self.assertTrue((view == 1).all())  # the array is the table's memory

    def test_view_after_finish_is_a_copy(self):
        with mv.session(sync=True):
            table = mv.ArrayTableHandler(3, 2)
            mv.finish()
            np.testing.assert_array_equal(table.view(), [2, 2, 2])

    def test_arrays_outlive_the_table_and_the_session(self):
        for options in ({}, {"sync": True}):
            with self.subTest(options):
                with mv.session(**options):
                    table = mv.ArrayTableHandler(100_000)
                    delta, view = table.delta_buffer(), table.view()
                    part = delta[5:10]
                    del table
                    gc.collect()
                    delta[:] = 7
                del delta
                gc.collect()
                self.assertTrue((part == 7).all())
                self.assertFalse(view.any())

    def test_live_view_shows_the_current_values_and_outlives_the_session(self):
        for options in ({}, {"staleness": 1}):
            for dtype in ("float32", "int64", "float16"):
                with self.subTest(options, dtype=dtype):
                    with mv.session(**options):
                        table = mv.MatrixTableHandler(3, 2, 1, dtype=dtype)
                        view = table.view(live=True)
                        self.assertEqual((view.shape, view.dtype), ((3, 2), table.dtype))
                        table.add(np.ones((3, 2), table.value_dtype))
                        np.testing.assert_array_equal(view, np.full((3, 2), 2))
                        with self.assertRaisesRegex(ValueError, "read-only"):
                            view[...] = 0
                        del table
                        gc.collect()
                    self.assertTrue((view == 2).all())

    def test_a_closed_session_is_an_error(self):
        with mv.session(sync=True):
            table = mv.ArrayTableHandler(3)
        for call in (table.delta_buffer, table.view, lambda: table.view(live=True)):
            with self.assertRaises(mv.errors.StateError):
                call()


if __name__ == "__main__":
    unittest.main()
