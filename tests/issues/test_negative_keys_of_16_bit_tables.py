"""An add for a small negative key of a 16-bit hash table had no effect, or ended the process."""

import unittest

import numpy as np

import multiverso as mv


class TestNegativeKeysOf16BitTables(unittest.TestCase):
    def test_every_key_gets_its_delta(self):
        for dtype in ("bfloat16", "float16"):
            # The key -1 had no effect, which fails before the others end the process.
            for keys in ([-1], range(-300, 3), (2**63 - 1, -(2**63), 2**62, -(2**62))):
                for columns in (1, 2, 5, 300):
                    with self.subTest(dtype=dtype, keys=keys, columns=columns), mv.session():
                        table = mv.HashTableHandler(columns, 400, dtype=dtype)
                        delta = np.arange(len(keys) * columns).reshape(len(keys), columns) % 8
                        table.add(delta, list(keys))
                        np.testing.assert_array_equal(table.get(list(keys)), delta)
