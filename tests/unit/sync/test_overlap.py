"""Exchanges in the background: what arrives when, that nothing is lost, how errors surface."""

import threading
import unittest
from unittest import mock

import numpy as np

import multiverso as mv
from multiverso._native import library
from multiverso.sync import ParamSync


def threads():
    return [one for one in threading.enumerate() if one.name.startswith("multiverso: ")]


class InSession(unittest.TestCase):
    def setUp(self):
        mv.init()
        self.addCleanup(lambda: mv.is_initialized() and mv.shutdown())


class TestExchanges(InSession):
    def test_what_others_add_arrives_one_sync_later(self):
        weights = np.zeros(70_000)
        sync = ParamSync([weights], overlap=True)
        sync.tables[0].add(np.full(weights.size, 10.0))
        seen = []
        for _ in range(3):
            weights += 1
            sync.sync()
            seen.append(weights[-1])
        self.assertEqual(seen, [1, 12, 13])
        sync.wait()
        np.testing.assert_array_equal(weights, 13)
        np.testing.assert_array_equal(sync.tables[0].get(), weights)

    def test_what_is_learned_meanwhile_is_kept(self):
        weights = np.zeros(5)
        sync = ParamSync([weights], overlap=True)
        weights += 1
        sync.sync()
        weights += 2
        sync.tables[0].add(np.full(5, 100.0))
        sync.wait()
        self.assertIn(weights[0], (3, 103))
        sync.sync()
        sync.wait()
        np.testing.assert_array_equal(weights, 103)
        np.testing.assert_array_equal(sync.tables[0].get(), 103)

    def test_arrays_of_every_kind(self):
        whole = np.zeros((6, 50), np.float32)
        arrays = [
            np.zeros((300, 70), np.float32),
            np.zeros(3),
            np.zeros(5, np.float16),
            whole[:, ::2],
            np.zeros((), np.int64),
            np.zeros(0),
        ]
        sync = ParamSync(arrays, overlap=True)
        for _ in range(4):
            for array in arrays:
                array += 1
            for table in sync.tables:
                table.add(np.full(table.size, 2, table.dtype))
            sync.sync()
        sync.wait()
        sync.sync()
        sync.wait()
        for array in arrays:
            np.testing.assert_array_equal(array, 12)
        self.assertEqual(whole[:, 1::2].any(), False)

    def test_waiting_twice_and_before_the_first_changes_nothing(self):
        weights = np.ones(3)
        sync = ParamSync([weights], overlap=True)
        sync.wait()
        sync.sync()
        sync.wait()
        sync.wait()
        np.testing.assert_array_equal(weights, 1)
        ParamSync([weights]).wait()

    def test_meetings_and_the_end_wait_for_the_thread(self):
        weights = np.zeros(1_000_000)
        sync = ParamSync([weights], overlap=True)
        for meet in (
            mv.barrier,
            lambda: mv.ArrayTableHandler(1),
            lambda: sync.tables[0].get(sync=True),
            lambda: mv.aggregate(np.ones(1)),
            mv.shutdown,
        ):
            weights += 1
            sync.sync()
            meet()
            self.assertEqual(threads(), [])

    def test_it_belongs_to_its_session(self):
        sync = ParamSync([np.zeros(3)], overlap=True)
        sync.sync()
        mv.shutdown()
        with self.assertRaisesRegex(mv.StateError, "has been shut down"):
            sync.sync()

    def test_an_optimiser_on_the_server(self):
        weights = np.zeros(4)
        sync = ParamSync([weights], overlap=True, updater="sgd", learning_rate=0.5)
        weights += 2
        sync.sync()
        sync.wait()
        np.testing.assert_array_equal(weights, 1)

    def test_a_flag_that_is_none(self):
        with self.assertRaisesRegex(TypeError, "overlap: expected True or False, received 1"):
            ParamSync([np.zeros(3)], overlap=1)


class TestErrors(InSession):
    def failing(self, error):
        """Return what replaces the native pass: it fails once."""
        calls = []
        real = library.call_until

        def run(*arguments):
            calls.append(arguments)
            if len(calls) == 1:
                raise error
            real(*arguments)

        return mock.patch("multiverso.sync._table_sync.call_until", run)

    def test_they_come_with_the_next_sync_or_wait_and_nothing_is_lost(self):
        for again in ("sync", "wait"):
            with self.subTest(again):
                weights = np.zeros(3)
                sync = ParamSync([weights], overlap=True)
                weights += 1
                with self.failing(mv.OperationTimeout("nobody came")):
                    sync.sync()
                    with self.assertRaisesRegex(mv.OperationTimeout, "nobody came"):
                        getattr(sync, again)()
                    weights += 1
                    sync.sync()
                    sync.wait()
                np.testing.assert_array_equal(weights, 2)
                np.testing.assert_array_equal(sync.tables[0].get(), 2)

    def test_an_interrupt_while_it_waits_leaves_all_usable(self):
        weights = np.zeros(3)
        sync = ParamSync([weights], overlap=True)
        weights += 1
        sync.sync()
        with (
            mock.patch("threading.Thread.is_alive", side_effect=KeyboardInterrupt),
            self.assertRaises(KeyboardInterrupt),
        ):
            sync.wait()
        sync.sync()
        sync.wait()
        np.testing.assert_array_equal(sync.tables[0].get(), 1)


class TestModes(unittest.TestCase):
    def test_in_sync_mode_and_with_bounded_staleness(self):
        for options in ({"sync": True}, {"staleness": 1}):
            with self.subTest(**options), mv.session(**options):
                weights = np.zeros(3)
                sync = ParamSync([weights], overlap=True)
                for _ in range(5):
                    weights += 1
                    sync.sync()
                sync.wait()
                mv.finish()
                np.testing.assert_array_equal(weights, 5)


if __name__ == "__main__":
    unittest.main()
