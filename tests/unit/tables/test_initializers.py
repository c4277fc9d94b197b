"""Initializers: their arguments, their values in one process, and the limits of their memory."""

import unittest

import numpy as np

import multiverso as mv
from machine.initial_values import initial_values, inverse_normal, philox4x32
from multiverso import initializers
from multiverso.initializers import Constant, RandomNormal, RandomUniform, TruncatedNormal, Zeros


class TestModel(unittest.TestCase):
    """The model of the other tests has the properties that the documentation promises."""

    def test_philox_has_the_published_known_answers(self):
        for counter, key, expected in (
            ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            (
                (2**32 - 1,) * 4,
                (2**32 - 1,) * 2,
                (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
            ),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                (0xA4093822, 0x299F31D0),
                (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
            ),
        ):
            self.assertEqual(tuple(map(int, philox4x32(counter, key))), expected)

    def test_normal_values_have_the_moments_of_the_normal_distribution(self):
        values = initial_values(RandomNormal(1, 2, seed=5), (1000, 300), "float64")
        z = (values - 1) / 2
        moments = [(z**power).mean() for power in (1, 2, 3, 4)]
        np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.05)
        self.assertEqual(inverse_normal(0.5), 0)
        values = initial_values(TruncatedNormal(1, 2, seed=5), (1000, 300), "float32")
        self.assertLessEqual(np.abs(values - 1).max(), 4)
        self.assertAlmostEqual(((values - 1) / 2).std(), 0.87963, delta=0.005)


class TestArguments(unittest.TestCase):
    def test_defaults_are_those_of_keras(self):
        self.assertEqual(
            repr(RandomUniform()), "RandomUniform(minval=-0.05, maxval=0.05, seed=None)"
        )
        self.assertEqual(repr(RandomNormal()), "RandomNormal(mean=0.0, stddev=0.05, seed=None)")
        self.assertEqual(
            repr(TruncatedNormal()), "TruncatedNormal(mean=0.0, stddev=0.05, seed=None)"
        )
        self.assertEqual(repr(Constant()), "Constant(value=0.0)")
        self.assertEqual(repr(Zeros()), "Zeros()")

    def test_interleaved_table_has_the_same_values(self):
        with mv.session():
            for initial in (None, RandomUniform(seed=3)):
                table = mv.MatrixTableHandler(70_000, 9, initial, numa="interleave")
                table.add(np.ones((2, 9)), [3, 69_999])
                expected = np.zeros((70_000, 9), np.float32)
                if initial is not None:
                    expected = initial_values(initial, (70_000, 9), "float32")
                expected[[3, 69_999]] += 1
                np.testing.assert_array_equal(table.get(), expected)


class TestValues(unittest.TestCase):
    def test_reading_is_possible_without_room_and_changing_is_not(self):
        with mv.session():
            for initial in (None, RandomUniform(seed=1)):
                table = mv.ArrayTableHandler(1000, initial, max_bytes=3999)
                before = table.get()
                for change in (table.add, table.add_get):
                    with self.assertRaisesRegex(MemoryError, r"1000 rows .* 3\.9 KiB"):
                        change(np.ones(1000))
                np.testing.assert_array_equal(table.get(), before)
            table = mv.ArrayTableHandler(1000, max_bytes=4000)
            table.add(np.ones(1000))
            table.add(np.ones(1000))
            np.testing.assert_array_equal(table.get(), np.full(1000, 2))

    def test_package_lists_its_initializers(self):
        self.assertEqual(
            set(initializers.__all__),
            {"Initializer", *(kind.__name__ for kind in initializers.Initializer.__subclasses__())}
            | {"TruncatedNormal"},
        )
