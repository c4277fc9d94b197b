"""Array arguments of tables (`data`, `out`) and of aggregate: accepted, or rejected unchanged."""

import array
import ctypes

import ml_dtypes
import numpy as np
from sessions import SessionTestCase

import multiverso as mv
from multiverso._native import arrays
from multiverso._native.ids import as_ids


class OnlyDLPack:
    """Shares its memory only through DLPack."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class OnlyArrayMethod:
    """Shares its memory only through ``__array__``, like a tensor on the CPU."""

    def __init__(self, values, *, copies=False):
        self._values, self._copies = values, copies

    def __array__(self, dtype=None, copy=None):
        return self._values.copy() if self._copies else self._values


class ArraySubclass(np.ndarray):
    """Has the memory of a NumPy array but another class."""


# Before version 2.1, arrays that NumPy made from DLPack were read-only.
DLPACK_CAN_WRITE = np.from_dlpack(np.zeros(1)).flags.writeable


class TestInput(SessionTestCase):
    def setUp(self):
        super().setUp()
        self.table = mv.ArrayTableHandler(6)
        self.matrix = mv.MatrixTableHandler(2, 3)

    def check_adds(self, data, expected=(0, 1, 2, 3, 4, 5), table=None):
        """Check that add and add_get of these data increase the table by `expected`."""
        table = table or self.table
        before = table.get()
        table.add(data)
        after = table.get()
        np.testing.assert_array_equal((after - before).ravel(), expected)
        self.assertEqual(
            table.add_get(data).ravel().tolist(), (after - before + after).ravel().tolist()
        )

    def test_accepts_lists_ranges_and_buffers(self):
        values = [0, 1, 2, 3, 4, 5]
        for data in (
            *(values, tuple(values), range(6), bytearray(values)),
            *(array.array("f", values), memoryview(array.array("d", values))),
            (ctypes.c_float * 6)(*values),
        ):
            self.check_adds(data)
        for data in (values, [[0, 1, 2], [3, 4, 5]], [range(3), range(3, 6)]):
            self.check_adds(data, table=self.matrix)

    def test_accepts_read_only_and_unaligned_arrays(self):
        values = np.arange(6, dtype=np.float32)
        values.flags.writeable = False
        self.check_adds(values)
        raw = bytearray(1) + bytearray(np.arange(6, dtype=np.float32).tobytes())
        unaligned = np.frombuffer(raw, np.float32, offset=1)
        self.assertFalse(unaligned.flags.aligned)
        self.check_adds(unaligned)

    def test_accepts_subclasses_tensors_and_dlpack(self):
        values = np.arange(6, dtype=np.float32)
        for data in (values.view(ArraySubclass), OnlyArrayMethod(values), OnlyDLPack(values)):
            self.check_adds(data)

    def test_does_not_copy_a_matching_array(self):
        values = np.arange(6, dtype=np.float32)
        self.assertIs(arrays.as_input(values, np.dtype("f4"), ((6,),), "data"), values)
        values.flags.writeable = False
        self.assertIs(arrays.as_input(values, np.dtype("f4"), ((6,),), "data"), values)
        ids = np.array([1, 2])
        self.assertIs(as_ids(ids, "row_ids", 10), ids)


class TestOutput(SessionTestCase):
    def setUp(self):
        super().setUp()
        self.table = mv.ArrayTableHandler(6, range(6))
        self.matrix = mv.MatrixTableHandler(3, 2, range(6))

    def check_fills(self, out, view=None):
        """Check that get and add_get return `out`, and fill it as `view` shows."""
        view = out if view is None else view
        self.assertIs(self.table.get(out=out), out)
        np.testing.assert_array_equal(np.asarray(view), range(6))
        np.asarray(view)[...] = -1
        self.assertIs(self.table.add_get(np.zeros(6), out=out), out)
        np.testing.assert_array_equal(np.asarray(view), range(6))

    def test_out_may_be_any_writable_array_or_buffer(self):
        values = np.empty(6, np.float32)
        unaligned = np.frombuffer(bytearray(25), np.float32, offset=1)
        for out in (values, values.view(ArraySubclass), unaligned, np.empty(6, ">f4")):
            self.check_fills(out)
        self.check_fills(OnlyArrayMethod(values), values)
        if DLPACK_CAN_WRITE:
            self.check_fills(OnlyDLPack(values), values)
        self.check_fills(array.array("f", [0] * 6))


class TestAggregate(SessionTestCase):
    def check_keeps(self, array, view=None):
        """Check that aggregate returns the array unchanged, as the sum of one rank."""
        values = np.asarray(array if view is None else view)
        before = values.copy()
        self.assertIs(mv.aggregate(array), array)
        np.testing.assert_array_equal(values, before)

    def test_aggregates_arrays_of_every_shape_and_layout(self):
        dtypes = (
            *("float32", "float64", "int32", "int64", ">f4", ">i8"),
            *("float16", ml_dtypes.bfloat16, "int8", "int16", "uint8", "bool", ">f2", ">i2"),
        )
        grid = np.arange(12, dtype=np.float32).reshape(3, 4)
        for values in (
            *(np.arange(6).astype(dtype) for dtype in dtypes),
            *(grid, grid.T, grid[:, ::2], grid[::-1], np.asfortranarray(grid)),
            *(np.array(3, np.float32), np.empty((0, 3), np.float32)),
        ):
            self.check_keeps(values)

    def test_aggregates_buffers_and_tensors(self):
        values = np.arange(6, dtype=np.float32)
        self.check_keeps(OnlyArrayMethod(values), values)
        if DLPACK_CAN_WRITE:
            self.check_keeps(OnlyDLPack(values), values)
        self.check_keeps(array.array("d", [1, 2]))
