"""Prepared calls: what they do, keep alive, reject and raise, compared with the ordinary calls."""

import gc
import weakref

import numpy as np
from sessions import SessionTestCase

import multiverso as mv


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
