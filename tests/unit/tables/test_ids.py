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


class TestRejectedIds(unittest.TestCase):
    def check_rejected(self, error, *cases):
        """Check the error and its texts for cases of (row ids, text, ...)."""
        for row_ids, *texts in cases:
            with self.subTest(row_ids=row_ids), self.assertRaises(error) as caught:
                as_ids(row_ids, "row_ids", 10)
            for text in texts:
                self.assertIn(text, str(caught.exception))

    def test_rejects_values_that_are_not_integers(self):
        self.check_rejected(
            TypeError,
            ([True], "True", "row_ids[0]"),
            ([1, 2, False], "False", "row_ids[2]"),
            ([1, np.bool_(True)], "row_ids[1]"),
            (np.array([True, False]), "bool"),
            ([1, 2.0], "2.0", "row_ids[1]"),
            (np.array([1.0]), "float64"),
            (np.empty(0), "float64"),
            ([float("nan")], "nan", "row_ids[0]"),
            (["1"], "'1'", "row_ids[0]"),
            ([None], "None"),
            ([[1, 2]], "[1, 2]"),
            (np.array([1, 2], object), "object"),
        )

    def test_rejects_other_containers_and_dimensions(self):
        self.check_rejected(TypeError, (3, "int"), (np.array(3), "ndarray"), ("12", "str"))
        self.check_rejected(TypeError, ({1, 2}, "set"), ((i for i in range(2)), "generator"))
        self.check_rejected(ValueError, (np.zeros((2, 2), int), "(2, 2)"))

    def test_rejects_ids_and_ranges_that_leave_the_table(self):
        self.check_rejected(
            IndexError,
            ([1, 2**63], str(2**63), "row_ids[1]", "0 to 9"),
            ([-1, 2**63], "received -1", "row_ids[0]"),
            ([0, -(2**70)], str(-(2**70)), "row_ids[1]"),
            (np.array([0, 2**63 + 5], np.uint64), str(2**63 + 5), "row_ids[1]"),
            (range(11), "received 10", "row_ids[10]"),
            (range(0, 2**90, 3), "received 12", "row_ids[4]"),
            (range(4, -4, -2), "received -2", "row_ids[3]"),
            (range(-1, 5), "received -1", "row_ids[0]"),
            (range(2**70, 2**71), str(2**70), "row_ids[0]"),
            (range(10**15), "received 10", "row_ids[10]"),
        )


class TestRowsOfATable(SessionTestCase):
    def setUp(self):
        super().setUp()
        self.matrix = mv.MatrixTableHandler(4, 2, np.arange(8))

    def test_ids_may_share_memory_with_out(self):
        table = mv.MatrixTableHandler(3, 1, [[30], [20], [10]], dtype="int64")
        memory = np.array([2, 0, 1])
        self.assertIs(table.get(memory, out=memory[:, np.newaxis]).base, memory)
        self.assertEqual(memory.tolist(), [10, 30, 20])
