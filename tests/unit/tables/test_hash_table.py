"""Arguments of hash tables, and what one worker sees; tests/mpi/programs/keys.py has the rest."""

import copy
import unittest

import numpy as np
from sessions import SessionTestCase

import multiverso as mv


class TestArguments(SessionTestCase):
    def test_rejects_invalid_options(self):
        for options, error, message in (
            ({}, ValueError, "capacity: expected a number of keys or a size such as '4GB'"),
            ({"capacity": 0}, ValueError, "capacity: expected 1 to"),
            ({"capacity": 2**40}, ValueError, "capacity: expected 1 to 2.36 keys"),
            ({"capacity": "4 apples"}, ValueError, "received '4 apples'"),
            ({"capacity": 1.5}, TypeError, "capacity"),
            ({"capacity": 9, "evict": "fifo"}, ValueError, "evict: expected .*'lru'.* 'fifo'"),
            ({"capacity": 9, "admit": 0}, ValueError, "admit: expected 1 to"),
            ({"capacity": 9, "admit": 256}, ValueError, "admit: expected 1 to 255"),
            ({"capacity": 9, "ttl": 60}, TypeError, "ttl.*keys do not expire: .* table.remove"),
            ({"capacity": 9, "key_dtype": "int32"}, TypeError, "key_dtype: expected int64"),
            ({"capacity": 9, "initializer": "ones"}, TypeError, "multiverso.initializers"),
            ({"capacity": 9, "init_value": [1, 2]}, TypeError, "init_value: expected a number"),
            ({"capacity": 9, "init_value": True}, TypeError, "expected a finite number"),
            (
                {"capacity": 9, "init_value": 1, "initializer": mv.initializers.Zeros()},
                TypeError,
                "initializer: expected None with init_value",
            ),
            ({"capacity": 9, "updater": "sdg"}, ValueError, "updater"),
        ):
            with self.subTest(options), self.assertRaisesRegex(error, message):
                mv.HashTableHandler(2, **options)
        for columns in (0, 200_000):
            with self.assertRaisesRegex(ValueError, "num_col"):
                mv.HashTableHandler(columns, 10)
        self.assertEqual(len(mv.HashTableHandler(1, 10)), 0)  # the session is usable

    def test_former_method_names_what_to_use(self):
        table = mv.HashTable(1, capacity=10)
        with self.assertRaisesRegex(AttributeError, r"'to_parquet': write what items\(\) yields"):
            table.to_parquet("rows.parquet")
        self.assertFalse(hasattr(table, "to_parquets"))

    def test_capacity_may_be_a_size(self):
        for capacity, keys in (("4KB", 1000), ("4KiB", 1024), ("0.004 MB", 1000)):
            table = mv.HashTableHandler(1, capacity)
            table.get(range(keys))
            with self.assertRaisesRegex(MemoryError, "cannot hold 1 "):
                table.get([-1])

    def test_rejects_what_is_no_key(self):
        table = mv.HashTableHandler(2, 10)
        for keys, error, message in (
            ([1.0], TypeError, r"keys\[0\]: expected an int, received 1.0"),
            ([True], TypeError, "expected an int"),
            (np.ones(2), TypeError, "keys: expected integers, received float64"),
            ([[1, 2]], TypeError, "keys"),
            (np.ones((2, 2), int), ValueError, "keys: expected one dimension"),
            (5, TypeError, "keys: expected a sequence"),
            ([0, 2**63], IndexError, r"keys\[1\]: expected an int64, received 9223372036854775808"),
            (np.array([2**63], np.uint64), IndexError, "expected an int64"),
            (["a"], TypeError, "keys"),
        ):
            for call in (table.get, table.contains, table.remove, lambda k: table.add([[1, 2]], k)):
                with self.subTest(keys=keys), self.assertRaisesRegex(error, message):
                    call(keys)
        self.assertEqual(len(table), 0)

    def test_rejects_what_is_no_delta_and_no_output(self):
        table = mv.HashTableHandler(2, 10)
        with self.assertRaisesRegex(ValueError, "data"):
            table.add(np.ones((2, 3)), [1, 2])
        with self.assertRaisesRegex(TypeError, "data"):
            table.add([["a", "b"]], [1])
        with self.assertRaisesRegex(ValueError, "out"):
            table.get([1, 2], out=np.empty((2, 3), np.float32))
        with self.assertRaisesRegex(ValueError, "chunk"):
            next(table.items(chunk=0))
        self.assertEqual(len(table), 0)


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

    def test_calls_that_it_does_not_have_say_what_to_use(self):
        table = mv.HashTableHandler(1, 100)
        with self.assertRaisesRegex(AttributeError, "'changes': .* changed and removed of mv.fol"):
            table.changes()
        with self.assertRaisesRegex(AttributeError, "no attribute 'chances'$"):
            table.chances()


class TestHashKeys(unittest.TestCase):
    def test_keys_are_the_documented_hashes(self):
        keys = mv.hash_keys(["", "user:1", b"user:1", "Zürich"])
        self.assertEqual(keys.dtype, np.int64)
        self.assertEqual(keys[1], keys[2])
        self.assertEqual(
            keys[0], int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "little", signed=True)
        )
        self.assertEqual(len(mv.hash_keys([])), 0)
