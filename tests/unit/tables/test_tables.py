"""Tables on one rank: creation, initial values, and whose memory results have."""

import gc
import math

import numpy as np
from sessions import SessionTestCase

import multiverso as mv

DTYPES = ("float32", "float64", "int32", "int64")


class TestCreation(SessionTestCase):
    def test_properties_describe_the_table(self):
        table = mv.ArrayTableHandler(5, name="weights", dtype="float64")
        self.assertEqual((table.size, table.shape, table.name), (5, (5,), "weights"))
        self.assertEqual((table.dtype, table.updater), (np.float64, "add"))
        self.assertEqual(repr(table), "<ArrayTable 'weights': 5 float64, updater add>")
        matrix = mv.MatrixTableHandler(3, 4, updater="sgd")
        self.assertEqual((matrix.size, matrix.shape, matrix.name), (12, (3, 4), "table 1"))
        self.assertEqual((matrix.num_row, matrix.num_col, matrix.updater), (3, 4, "sgd"))
        self.assertEqual(repr(matrix), "<MatrixTable 'table 1': 3 x 4 float32, updater sgd>")

    def test_supports_sizes_above_2_to_the_31(self):
        rows = 2**31 + 7
        try:
            matrix = mv.MatrixTableHandler(rows, 1)
        except MemoryError as error:
            self.skipTest(str(error))
        self.assertEqual(matrix.size, rows)
        matrix.add([[1], [4]], [rows - 1, 2**31])
        self.assertEqual(matrix.get([2**31, rows - 1]).tolist(), [[4], [1]])
        self.assertEqual(matrix.get([6, 0, 7]).tolist(), [[0]] * 3)
        with self.assertRaisesRegex(IndexError, str(rows)):
            matrix.get([rows])
        with self.assertRaisesRegex(ValueError, str(rows)):
            matrix.add(range(7))

    def test_unreferenced_table_frees_its_memory(self):
        for _ in range(70_000):  # more tables than the library has handles
            mv.ArrayTableHandler(1)
        gc.collect()
        self.assertEqual(mv.ArrayTableHandler(1, 3).get().tolist(), [3])


class TestInitValue(SessionTestCase):
    def test_initial_value_defaults_to_zero_and_may_be_a_scalar(self):
        for dtype in DTYPES:
            self.assertEqual(mv.ArrayTableHandler(3, dtype=dtype).get().tolist(), [0, 0, 0])
        for value in (2.5, np.float32(2.5), np.array(2.5), np.float64(2.5)):
            self.assertEqual(mv.ArrayTableHandler(3, value).get().tolist(), [2.5] * 3)
            self.assertEqual(mv.MatrixTableHandler(2, 1, value).get().tolist(), [[2.5]] * 2)
        for value in (0, 0.0, False, np.int8(0)):
            self.assertEqual(mv.ArrayTableHandler(3, value).get().tolist(), [0] * 3)
        self.assertTrue(np.signbit(mv.ArrayTableHandler(1, -0.0).get()).all())
        self.assertTrue(np.isnan(mv.ArrayTableHandler(1, math.nan).get()).all())
        self.assertEqual(mv.ArrayTableHandler(1, True, dtype="int32").get().tolist(), [1])

    def test_initial_value_is_not_modified(self):
        value = np.ones(3, np.float32)
        table = mv.ArrayTableHandler(3, value)
        table.add([1, 1, 1])
        self.assertEqual(value.tolist(), [1, 1, 1])
        value[:] = 9
        self.assertEqual(table.get().tolist(), [2, 2, 2])


class TestValues(SessionTestCase):
    def test_results_are_independent_copies(self):
        table = mv.ArrayTableHandler(3)
        first = table.get()
        first[:] = 5
        self.assertEqual(table.get().tolist(), [0, 0, 0])
        self.assertTrue(first.flags.owndata and first.flags.writeable)

    def test_ids_may_share_memory_with_out(self):
        table = mv.MatrixTableHandler(3, 1, [[30], [20], [10]], dtype="int64")
        memory = np.array([2, 0, 1])
        self.assertIs(table.get(memory, out=memory[:, np.newaxis]).base, memory)
        self.assertEqual(memory.tolist(), [10, 30, 20])

    def test_accepts_positional_arguments(self):
        table, matrix = mv.ArrayTableHandler(2, 3), mv.MatrixTableHandler(2, 1, 3)
        out = np.empty(2, np.float32)
        self.assertIs(table.get(False, out), out)
        out = np.empty((1, 1), np.float32)
        self.assertIs(matrix.get([1], True, out), out)
        self.assertEqual(out.tolist(), [[3]])


class TestIdentity(SessionTestCase):
    def test_tables_are_distinct_and_hashable(self):
        first, second = mv.ArrayTableHandler(1), mv.ArrayTableHandler(1)
        self.assertNotEqual(first, second)
        self.assertEqual(len({first, second, first}), 2)
