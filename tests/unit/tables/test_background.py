"""Calls on a table in the background, on one rank."""

import gc
import math
import threading

import numpy as np
from sessions import SessionCleanupTestCase, SessionTestCase

import multiverso as mv
from multiverso._native.library import checked
from multiverso.api import current_session


class TestFutures(SessionTestCase):
    def test_results_are_written_to_out(self):
        table = mv.MatrixTableHandler(3, 2, [[1, 2], [3, 4], [5, 6]])
        out = np.zeros((2, 2), np.float32)
        self.assertIs(table.get_async([2, 0], out=out).result(), out)
        self.assertEqual(out.tolist(), [[5, 6], [1, 2]])
        backwards = np.zeros((3, 2), np.float32)[::-1]
        table.get_async(out=backwards).result()
        self.assertEqual(backwards.tolist(), [[1, 2], [3, 4], [5, 6]])
        self.assertIsNone(table.add_async(np.ones((3, 2))).result())

    def test_arrays_of_dropped_futures_stay_valid(self):
        table = mv.ArrayTableHandler(1_000_000, 1)
        for _ in range(20):
            table.add_async(np.ones(1_000_000, np.float32))
            table.get_async()
            gc.collect()
        self.assertEqual(table.get()[-1], 21)

    def test_every_thread_that_flushes_waits(self):
        table = mv.ArrayTableHandler(1_000_000, updater="adam")
        delta = np.ones(1_000_000, np.float32)
        futures = [table.add_async(delta) for _ in range(50)]
        handle, in_flight = current_session().handle, []

        def flush():
            checked.MV_SessionFlush(handle, -1.0)
            in_flight.append([future for future in futures if not future.wait(0)])

        other = threading.Thread(target=flush)
        other.start()
        flush()
        other.join()
        self.assertEqual(in_flight, [[], []])

    def test_limits_of_waits(self):
        table = mv.ArrayTableHandler(2)
        future = table.add_async([1, 2])
        self.assertTrue(future.wait(math.inf))
        self.assertTrue(future.wait(0))
        table.flush(timeout=5)


class TestErrors(SessionCleanupTestCase):
    """A worker that has finished cannot add, which the library finds only when it adds."""

    def failing_add(self):
        mv.init(sync=True)
        table = mv.ArrayTableHandler(2, name="w")
        mv.finish()
        return table, table.add_async([1, 2])

    def test_wait_and_result_raise_the_error_each_time(self):
        table, future = self.failing_add()
        for call in (future.wait, future.result, future.result):
            with self.assertRaisesRegex(mv.errors.StateError, "'w'.*finish"):
                call()
        table.flush()
        mv.barrier()

    def test_flush_barrier_and_the_end_raise_the_error_once(self):
        for call in (lambda table: table.flush(), lambda _: mv.barrier(), lambda _: mv.shutdown()):
            table, _ = self.failing_add()
            self.assertEqual(table.get_async().result().tolist(), [0, 0])  # Later calls still run.
            with self.assertRaisesRegex(mv.errors.StateError, "'w'.*finish"):
                call(table)
            if mv.is_initialized():
                call(table)
                mv.shutdown()

    def test_flush_counts_several_errors(self):
        table, _ = self.failing_add()
        table.add_async([3, 4])
        with self.assertRaisesRegex(mv.errors.StateError, "2 background calls failed, first.*'w'"):
            table.flush()
