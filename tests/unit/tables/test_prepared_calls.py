"""Prepared calls: what they do, keep alive, reject and raise, compared with the ordinary calls."""

import gc
import weakref

import numpy as np
from sessions import SessionTestCase

import multiverso as mv

DTYPES = ("float32", "float64", "int32", "int64")


class TestCalls(SessionTestCase):
    def test_delta_may_be_flat_or_read_only_or_a_memoryview(self):
        matrix = mv.MatrixTableHandler(2, 3)
        flat = np.arange(6, dtype=np.float32)
        read_only = flat.reshape(2, 3)
        read_only.flags.writeable = False
        pushes = [matrix.prepare_add(delta) for delta in (flat, read_only, memoryview(flat))]
        flat[0] = 5
        for push in pushes:
            push()
        np.testing.assert_array_equal(matrix.get(), [[15, 3, 6], [9, 12, 15]])

    def test_function_keeps_the_table_and_the_memory(self):
        table = mv.ArrayTableHandler(100_000)
        push, pull = (
            table.prepare_add(np.ones(100_000, np.float32)),
            table.prepare_get(np.empty(100_000, np.float32)),
        )
        freed = weakref.ref(table)
        del table
        gc.collect()
        np.empty(100_000, np.float32).fill(7)  # This memory would be the memory of the delta.
        push()
        self.assertEqual(set(pull()), {1})
        del push, pull
        gc.collect()
        self.assertIsNone(freed())

    def test_delta_is_checked_in_each_call_if_it_must_be_finite(self):
        mv.shutdown()
        mv.init(nan_policy="error")
        table = mv.ArrayTableHandler(2)
        delta, out = np.ones(2, np.float32), np.zeros(2, np.float32)
        push, both = table.prepare_add(delta), table.prepare_add_get(delta, out)
        push()
        self.assertEqual(both().tolist(), [2, 2])
        delta[1] = np.nan
        for function in (push, both):
            with self.assertRaisesRegex(ValueError, r"delta\[1\]: expected a finite number"):
                function()
        self.assertEqual(table.get().tolist(), [2, 2])

    def test_closed_session_raises_the_error_of_an_ordinary_call(self):
        table = mv.ArrayTableHandler(2)
        values = np.ones(2, np.float32)
        functions = (
            table.prepare_add(values),
            table.prepare_get(values),
            table.prepare_add_get(values, values),
        )
        mv.shutdown()
        for function in functions:
            with self.assertRaises(mv.errors.StateError) as prepared:
                function()
            with self.assertRaises(mv.errors.StateError) as ordinary:
                table.add(values)
            self.assertEqual(str(prepared.exception), str(ordinary.exception))
            self.assertEqual(prepared.exception.status, ordinary.exception.status)


class TestArguments(SessionTestCase):
    def setUp(self):
        super().setUp()
        self.table = mv.ArrayTableHandler(4)

    def assert_rejected(self, kind, message, wrong):
        fine = np.zeros(4, np.float32)
        for name, prepare in (
            ("delta", self.table.prepare_add),
            ("out", self.table.prepare_get),
            ("delta", lambda array: self.table.prepare_add_get(array, fine)),
            ("out", lambda array: self.table.prepare_add_get(fine, array)),
        ):
            with self.assertRaisesRegex(kind, f"{name}: expected {message}"):
                prepare(wrong)

    def test_rejects_what_would_need_a_copy(self):
        for wrong in ([1, 2, 3, 4], 3, None, "text", np.float32(1)):
            self.assert_rejected(TypeError, "an array, received", wrong)
        for dtype in ("float64", "int32", ">f4", "O"):
            array = np.zeros(4, dtype)
            self.assert_rejected(TypeError, "(dtype float32|an array), received", array)
        for shape in ((3,), (5,), (4, 1), (2, 2), ()):
            array = np.zeros(shape, np.float32)
            self.assert_rejected(ValueError, r"shape \(4,\), received", array)
        unaligned = np.zeros(17, np.uint8)[1:].view(np.float32)
        for array in (np.zeros(8, np.float32)[::2], unaligned):
            self.assert_rejected(ValueError, "an aligned C-contiguous array, received", array)

    def test_rejects_read_only_results_and_overlapping_arrays(self):
        memory = np.zeros(6, np.float32)
        with self.assertRaisesRegex(ValueError, "out: .* received an overlap"):
            self.table.prepare_add_get(memory[:4], memory[2:])
        memory.flags.writeable = False
        for prepare in (
            self.table.prepare_get,
            lambda out: self.table.prepare_add_get(np.zeros(4, np.float32), out),
        ):
            with self.assertRaisesRegex(ValueError, "out: expected an array that can be written"):
                prepare(memory[:4])
