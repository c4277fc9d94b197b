"""NaN and infinity in adds: nan_policy="error" rejects the add, and "propagate" applies it."""

import math
import unittest

import hypothesis
import numpy as np
from drawn_arguments import COLUMNS, ROWS, examples
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import multiverso as mv
from multiverso.sync import ParamSync


class TestNonFinite(unittest.TestCase):
    matrices = npst.arrays(
        np.float32,
        (ROWS, COLUMNS),
        elements=st.one_of(
            st.floats(-4, 4, width=32), st.sampled_from([math.nan, math.inf, -math.inf])
        ),
    )

    @staticmethod
    def add_calls(table, data):
        """Return functions that each add the data, in another memory layout, dtype or call."""
        return (
            lambda: table.add(data),
            lambda: table.add(np.asfortranarray(data)),
            lambda: table.add(data.astype(np.float64)),
            lambda: table.add_get(data),
            lambda: table.add(data, range(ROWS)),
            lambda: table.prepare_add(data)(),
        )

    @examples
    @hypothesis.given(matrices)
    def test_error_policy_names_the_first_value_and_applies_nothing(self, data):
        positions = np.argwhere(~np.isfinite(data))
        with mv.session(nan_policy="error"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            expected = table.get()
            for call in self.add_calls(table, data):
                if not len(positions):
                    call()
                    expected += data
                    continue
                row, column = positions[0]
                with self.assertRaisesRegex(ValueError, rf"(data|delta)\[{row}, {column}\]: "):
                    call()
            np.testing.assert_array_equal(table.get(), expected)

    @examples
    @hypothesis.given(matrices)
    def test_propagate_policy_adds_like_numpy(self, data):
        with mv.session(), np.errstate(invalid="ignore"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            expected = table.get()
            for call in self.add_calls(table, data):
                call()
                expected += data
            np.testing.assert_array_equal(table.get(), expected)

    def test_error_policy_accepts_integer_tables(self):
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(2, dtype="int64")
            self.assertEqual(table.add_get([1, 2]).tolist(), [1, 2])

    def test_error_policy_applies_to_aggregate_and_param_sync(self):
        with mv.session(nan_policy="error"):
            array = np.array([1, math.nan], np.float32)
            with self.assertRaisesRegex(ValueError, r"array\[1\]: expected a finite number"):
                mv.aggregate(array)
            # Both tensors share one float32 table, since float16 is summed in float32.
            tensors = [np.zeros((2, 2), np.float32), np.zeros(3, np.float16)]
            for overlap in (False, True):
                sync = ParamSync(tensors, overlap=overlap)
                tensors[1][2] = math.inf
                with self.assertRaisesRegex(ValueError, r"parameters, tensor 1\[2\]: "):
                    sync.sync()
                self.assertTrue(all((table.get() == 0).all() for table in sync.tables))
                tensors[1][2] = 1  # the worker can continue
                sync.sync()
                sync.wait()
                self.assertEqual(sync.tables[-1].get()[-3:].tolist(), [0, 0, 1])
                tensors[1][2] = 0
