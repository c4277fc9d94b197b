"""nan_policy: with "error", an add with NaN or infinity fails and names it; else it is applied."""

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
    numbers = npst.arrays(
        np.float32,
        (ROWS, COLUMNS),
        elements=st.one_of(
            st.floats(-4, 4, width=32), st.sampled_from([math.nan, math.inf, -math.inf])
        ),
    )

    @staticmethod
    def adds(table, data):
        """Return functions that add the data in different forms."""
        return (
            lambda: table.add(data),
            lambda: table.add(np.asfortranarray(data)),
            lambda: table.add(data.astype(np.float64)),
            lambda: table.add_get(data),
            lambda: table.add(data, [0, 1, 2]),
        )

    @examples
    @hypothesis.given(numbers)
    def test_error_policy_names_the_first_value_and_applies_nothing(self, data):
        wrong = np.argwhere(~np.isfinite(data))
        with mv.session(nan_policy="error"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            wanted = table.get()
            for call in self.adds(table, data):
                if not len(wrong):
                    call()
                    wanted += data
                    continue
                with self.assertRaises(ValueError) as caught:
                    call()
                self.assertIn(f"data[{wrong[0][0]}, {wrong[0][1]}]: ", str(caught.exception))
            np.testing.assert_array_equal(table.get(), wanted)

    @examples
    @hypothesis.given(numbers)
    def test_propagate_policy_adds_like_numpy(self, data):
        with mv.session(), np.errstate(invalid="ignore"):
            table = mv.MatrixTableHandler(ROWS, COLUMNS, 3)
            wanted = table.get()
            for call in self.adds(table, data):
                call()
                wanted += data
            np.testing.assert_array_equal(table.get(), wanted)

    def test_error_policy_does_not_check_integers(self):
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(2, dtype="int64")
            self.assertEqual(table.add_get([1, 2]).tolist(), [1, 2])

    def test_error_names_the_first_of_many_values(self):
        data = np.zeros(200_000)
        data[[150_000, 199_999]] = math.inf
        with mv.session(nan_policy="error"):
            table = mv.ArrayTableHandler(data.size, dtype="float64")
            with self.assertRaisesRegex(ValueError, r"data\[150000\]: .*received inf"):
                table.add(data)

    def test_error_policy_applies_to_aggregate_and_param_sync(self):
        with mv.session(nan_policy="error"):
            array = np.array([1, math.nan], np.float32)
            with self.assertRaisesRegex(ValueError, r"array\[1\]: expected a finite number"):
                mv.aggregate(array)
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

    def test_rejects_unknown_policies(self):
        for wrong, error in (("ignore", ValueError), (None, TypeError), (True, TypeError)):
            with self.assertRaisesRegex(error, "nan_policy: expected one of 'propagate', 'error'"):
                mv.init(nan_policy=wrong)
        self.assertFalse(mv.is_initialized())
