"""ParamSync on one rank: supported and rejected arrays, the values after syncs, lifetime."""

import array
import gc
import unittest

import numpy as np
from sessions import SessionTestCase

import multiverso as mv
from multiverso._native import capi, library
from multiverso.sync import ParamSync


class TestSupportedArrays(SessionTestCase):
    def check(self, arrays, atol=0.0):
        """Check that a sync gives the arrays the sum of training and of another worker's adds."""
        expected = [np.array(a, np.float64) for a in arrays]
        sync = ParamSync(arrays)
        generator = np.random.default_rng(0)
        for _ in range(3):
            for a, wanted in zip(arrays, expected, strict=True):
                delta = generator.integers(-4, 5, a.shape)
                a += delta.astype(a.dtype)
                wanted += delta + 2
            for table in sync.tables:
                table.add(np.full(table.size, 2, table.dtype))
            sync.sync()
            for a, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_allclose(np.asarray(a, np.float64), wanted, rtol=0, atol=atol)
        return sync

    def test_infinities_and_nans_that_do_not_change_stay(self):
        for options in (
            {},
            {"average": True},
            {"overlap": True},
            {"updater": "sgd", "learning_rate": 1.0},
            {"updater": "easgd"},
        ):
            for dtype in (np.float32, np.float64, np.float16):
                with self.subTest(**options, dtype=dtype.__name__):
                    weights = np.array([np.inf, -np.inf, np.nan, 1, 1], dtype)
                    sync = ParamSync([weights], **options)
                    for _ in range(2):
                        weights[3] += 1
                        sync.sync()
                        sync.wait()
                    self.assertEqual(weights[:2].tolist(), [np.inf, -np.inf])
                    self.assertTrue(np.isnan(weights[2]))
                    self.assertTrue(np.isfinite(weights[3:]).all())
                    np.testing.assert_array_equal(sync.tables[0].get()[:3], weights[:3])

    def test_syncs_arrays_of_any_layout_shape_and_number(self):
        whole = np.zeros((6, 8), np.float32)
        for arrays in (
            [whole[::2, 1:7:2], np.asfortranarray(np.zeros((3, 4))), whole[1::2].T],
            [np.zeros(9)[::-1], np.zeros(9, ">f4"), np.zeros(4, ">f2")],
            [np.zeros(()), np.zeros((0, 3)), np.zeros(4)],
            [np.zeros(size % 37 + 1, np.float32) for size in range(1000)],
        ):
            self.check(arrays)
        np.testing.assert_array_equal(whole[::2, ::2], 0)

    def test_syncs_objects_with_a_buffer(self):
        numbers, bits = array.array("f", [1, 2]), bytearray(16)
        sync = ParamSync([numbers, memoryview(bits).cast("d")])
        numbers[1] += 5
        sync.sync()
        np.testing.assert_array_equal(sync.tables[0].get(), [1, 7])
        sync.tables[1].add([1, 2])
        sync.sync()
        np.testing.assert_array_equal(np.frombuffer(bits), [1, 2])

    def test_table_starts_with_the_values_of_the_arrays_of_an_iterator(self):
        sync = ParamSync(iter([np.full(2, 3.0), np.full((1, 1), 4.0)]))
        np.testing.assert_array_equal(sync.tables[0].get(), [3, 3, 4])


class TestLifetime(unittest.TestCase):
    def test_keeps_the_arrays_alive(self):
        with mv.session():
            sync = ParamSync([np.zeros(100_000)])
            gc.collect()
            sync.sync()

    def test_frees_the_native_object_with_the_last_reference(self):
        with mv.session():
            sync = ParamSync([np.zeros(2)])
            handle = capi.MV_ParamSync(sync._sync._fragments[0][0]._handle.value)
            del sync
            gc.collect()
            self.assertEqual(library.lib.MV_ParamSyncFree(handle), capi.MV_ERR_HANDLE)

    def test_repr_and_names_describe_the_arrays(self):
        with mv.session():
            sync = ParamSync([np.zeros(2), np.zeros(3, np.float32)], name="net")
            self.assertEqual(repr(sync), "<ParamSync 'net': 2 float64, 3 float32>")
            self.assertEqual(sync.name, "net")
            self.assertRegex(sync.tables[0].name, r"^net \(2 tensors, layout [0-9a-f]{8}\)$")
