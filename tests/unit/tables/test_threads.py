"""Many threads use one session and its tables at the same time, as they do without the GIL."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sessions import SessionTestCase

import multiverso as mv

THREADS = 8
CALLS = 200


class TestThreads(SessionTestCase):
    def setUp(self):
        super().setUp()
        # With the GIL, threads take turns after almost every bytecode.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)

    def run_threads(self, work):
        """Call work(index) in all threads at once; return the results."""
        start = threading.Barrier(THREADS)

        def begin(index):
            start.wait(60)
            return work(index)

        with ThreadPoolExecutor(THREADS) as pool:
            tasks = [pool.submit(begin, index) for index in range(THREADS)]
            return [task.result(300) for task in tasks]

    def test_every_kind_of_add_counts_once(self):
        array = mv.ArrayTableHandler(5, dtype="int64")
        matrix = mv.MatrixTableHandler(4, 3, dtype="int64")
        hashed = mv.HashTableHandler(2, 1000)

        def work(index):
            delta = np.ones(5, np.int64)
            out = np.empty(5, np.int64)
            prepared = array.prepare_add(delta)
            previous = 0
            for call in range(CALLS):
                array.add(delta)
                prepared()
                future = array.add_async(delta)
                if call % 2:  # The other threads look at this future at the same time.
                    future.wait()
                array.add_get(delta, out)
                self.assertGreater(out[0], previous)
                previous = int(out[0])
                matrix.add(np.ones((2, 3), np.int64), [index % 4, 3])
                hashed.add(np.ones((2, 2), np.float32), [call, 10_000 + index])
            array.flush()

        self.run_threads(work)
        self.assertEqual(array.get().tolist(), [4 * THREADS * CALLS] * 5)
        rows = [THREADS * CALLS // 4] * 3 + [THREADS * CALLS * 5 // 4]
        self.assertEqual(matrix.get()[:, 1].tolist(), rows)
        keys = [*range(CALLS), *range(10_000, 10_000 + THREADS)]
        counts = [THREADS] * CALLS + [CALLS] * THREADS
        self.assertEqual(hashed.get(keys)[:, 0].tolist(), counts)

    def test_threads_draw_different_numbers_from_a_counter(self):
        counter = mv.ArrayTableHandler(1, dtype="int64")
        drawn = self.run_threads(lambda _: [int(counter.fetch_add(0, 1)) for _ in range(CALLS)])
        self.assertEqual(sorted(sum(drawn, [])), list(range(THREADS * CALLS)))

    def test_each_thread_gets_its_own_error(self):
        matrix = mv.MatrixTableHandler(3, 2)

        def work(index):
            for _ in range(CALLS):
                with self.assertRaisesRegex(IndexError, rf"\b{100 + index}\b"):
                    matrix.get([100 + index])

        self.run_threads(work)

    def test_threads_use_tables_while_others_are_created(self):
        one_at_a_time = threading.Lock()  # All ranks create a table together.

        def work(index):
            for call in range(20):
                with one_at_a_time:
                    table = mv.ArrayTableHandler(3, [index, call, 0])
                table.add([1, 1, 1])
                self.assertEqual(table.get().tolist(), [index + 1, call + 1, 1])

        self.run_threads(work)
