"""ParamSync with overlap=True delays updates, loses no delta, and reports errors later."""

from unittest import mock

import numpy as np
from folders import FolderTestCase
from sessions import SessionTestCase

import multiverso as mv
from multiverso.sync import ParamSync
from multiverso.sync._overlap import OverlappedTableSync
from multiverso.tables._background import BackgroundCalls, Future


def launches():
    """Return a patch that counts the calls in the background."""
    launch = BackgroundCalls.launch
    return mock.patch.object(BackgroundCalls, "launch", autospec=True, side_effect=launch)


class TestOverlap(FolderTestCase, SessionTestCase):
    def test_updates_of_others_arrive_one_sync_later(self):
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
        np.testing.assert_array_equal([weights, sync.tables[0].get()], 13)

    def test_keeps_changes_made_during_the_exchange(self):
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
        np.testing.assert_array_equal([weights, sync.tables[0].get()], 103)

    def test_wait_without_an_exchange_is_a_no_op_also_with_an_optimizer(self):
        weights = np.full(3, 2.0)
        sync = ParamSync([weights], overlap=True, updater="sgd", learning_rate=0.5)
        sync.wait()
        weights -= 2
        sync.sync()
        sync.wait()
        sync.wait()
        np.testing.assert_array_equal(weights, 1)
        ParamSync([weights]).wait()

    def test_collective_calls_wait_for_the_exchange(self):
        weights = np.zeros(1_000_000)
        sync = ParamSync([weights], overlap=True)
        matrix = mv.MatrixTableHandler(2, 2)
        for call in (
            mv.barrier,
            lambda: mv.ArrayTableHandler(1),
            lambda: sync.tables[0].get(sync=True),
            lambda: mv.save(self.folder),
            lambda: mv.load(self.folder),
            mv.wait_for_save,
            lambda: matrix.save(self.folder / "matrix"),
            lambda: matrix.load(self.folder / "matrix"),
            lambda: mv.aggregate(np.ones(1)),
            mv.shutdown,
        ):
            weights += 1
            with launches() as launch:
                sync.sync()
            (future,) = (arguments[0][1] for arguments in launch.call_args_list)
            call()
            self.assertTrue(future.done())


class TestErrors(SessionTestCase):
    def failing(self, error):
        """Return a patch with which the next wait for an exchange fails."""
        errors, wait = [error], Future.wait

        def fail_once(future):
            wait(future)
            if errors:
                raise errors.pop()

        return mock.patch.object(Future, "wait", fail_once)

    def test_error_surfaces_in_the_next_call_and_no_delta_is_lost(self):
        for next_call in ("sync", "wait"):
            with self.subTest(next_call):
                weights = np.zeros(3)
                sync = ParamSync([weights], overlap=True)
                weights += 1
                with self.failing(mv.OperationTimeout("too late")), launches() as launch:
                    sync.sync()
                    with self.assertRaisesRegex(mv.OperationTimeout, "too late"):
                        getattr(sync, next_call)()
                    weights += 1
                    sync.sync()
                    sync.wait()
                self.assertEqual(launch.call_count, 2)  # One more would be a round of its own.
                np.testing.assert_array_equal([weights, sync.tables[0].get()], 2)

    def test_exchange_of_one_table_that_cannot_start_loses_no_delta(self):
        arrays = [np.zeros(3), np.zeros(4, np.float32), np.zeros(5, np.int64)]
        sync = ParamSync(arrays, overlap=True)
        start = OverlappedTableSync.start
        for failing in range(3):
            for array in arrays:
                array += 1
            starts = [start] * 3
            starts[failing] = mock.Mock(side_effect=mv.OperationTimeout("too late"))
            with (
                mock.patch.object(OverlappedTableSync, "start", lambda t, s=starts: s.pop(0)(t)),
                self.assertRaisesRegex(mv.OperationTimeout, "too late"),
            ):
                sync.sync()
            for array in arrays:
                array += 1
            sync.sync()
            sync.wait()
            for values in (*arrays, *(table.get() for table in sync.tables)):
                np.testing.assert_array_equal(values, 2 * failing + 2)
