"""Arguments of hash tables, and what one worker sees; tests/mpi/programs/keys.py has the rest."""

import copy
import unittest

import numpy as np
from sessions import SessionTestCase

import multiverso as mv


class TestArguments(SessionTestCase):
    def test_capacity_may_be_a_size(self):
        for capacity, keys in (("4KB", 1000), ("4KiB", 1024), ("0.004 MB", 1000)):
            table = mv.HashTableHandler(1, capacity)
            table.get(range(keys))
            with self.assertRaisesRegex(MemoryError, "cannot hold 1 "):
                table.get([-1])


class TestTable(SessionTestCase):
    def test_describes_itself(self):
        table = mv.HashTableHandler(3, 10, name="users", updater="adagrad", dtype="float64")
        self.assertEqual(repr(table), "<HashTable 'users': rows of 3 float64, updater adagrad>")
        self.assertEqual((table.num_col, table.name, table.updater), (3, "users", "adagrad"))
        self.assertTrue(table)  # also without keys
        with self.assertRaisesRegex(TypeError, "cannot be copied"):
            copy.copy(table)

    def test_add_of_a_repeated_key_is_summed_or_refused(self):
        table = mv.HashTableHandler(1, 10, updater="easgd")
        with self.assertRaisesRegex(ValueError, r"keys\[0\]: updater 'easgd' expected every row"):
            table.add([[1], [2]], [7, 7])
        self.assertEqual(len(table), 0)

    def test_errors_in_the_background_are_raised(self):
        table = mv.HashTableHandler(1, 10)
        table.get_async(range(11))
        with self.assertRaisesRegex(MemoryError, "capacity"):
            table.flush()


class TestHashKeys(unittest.TestCase):
    def test_keys_are_the_documented_hashes(self):
        keys = mv.hash_keys(["", "user:1", b"user:1", "Zürich"])
        self.assertEqual(keys.dtype, np.int64)
        self.assertEqual(keys[1], keys[2])
        self.assertEqual(
            keys[0], int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "little", signed=True)
        )
        self.assertEqual(len(mv.hash_keys([])), 0)
