"""NaN and infinity in adds: nan_policy="error" rejects the add, and "propagate" applies it."""

import math
import unittest

import numpy as np

import multiverso as mv
from multiverso.sync import ParamSync


class TestNonFinite(unittest.TestCase):
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
