"""Row ids: integers of every kind are accepted; an error names the first invalid id's position."""

import array
import unittest

import numpy as np
from sessions import SessionTestCase

import multiverso as mv
from multiverso.tables._ids import as_ids


class TestAcceptedIds(unittest.TestCase):
    def test_accepts_sequences_ranges_and_integer_arrays_of_any_layout(self):
        unaligned = np.zeros(17, np.uint8)[1:].view(np.int64)
        for row_ids, expected in (
            ([3, 1, 3], [3, 1, 3]),
            ((9,), [9]),
            ([np.int32(4), 5, np.uint8(6)], [4, 5, 6]),
            (array.array("i", [1, 2]), [1, 2]),
            *((nothing, []) for nothing in ([], (), range(5, 5), np.empty(0, np.int32))),
            (range(4), [0, 1, 2, 3]),
            (range(9, -1, -3), [9, 6, 3, 0]),
            (range(2, 10, 4), [2, 6]),
            (range(7, 2**79, 2**79), [7]),
            *((np.array([2, 0], code), [2, 0]) for code in (*"bBhHiIlLqQ", ">i4", ">i8")),
            (np.arange(10)[::-3], [9, 6, 3, 0]),
            (np.arange(20).reshape(10, 2)[:3, 1], [1, 3, 5]),
            (unaligned, [0, 0]),
        ):
            with self.subTest(row_ids=row_ids):
                ids = as_ids(row_ids, "row_ids", 10)
                self.assertEqual(ids.dtype, np.int64)
                flags = ids.flags
                self.assertTrue(flags.c_contiguous and flags.aligned and ids.dtype.isnative)
                self.assertEqual(ids.tolist(), expected)

    def test_does_not_copy_a_contiguous_int64_array(self):
        ids = np.array([1, 2])
        self.assertIs(as_ids(ids, "row_ids", 10), ids)


class TestRowsOfATable(SessionTestCase):
    def setUp(self):
        super().setUp()
        self.matrix = mv.MatrixTableHandler(4, 2, np.arange(8))

    def test_ids_may_share_memory_with_out(self):
        table = mv.MatrixTableHandler(3, 1, [[30], [20], [10]], dtype="int64")
        memory = np.array([2, 0, 1])
        self.assertIs(table.get(memory, out=memory[:, np.newaxis]).base, memory)
        self.assertEqual(memory.tolist(), [10, 30, 20])
