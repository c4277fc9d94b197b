"""A first example of a test: tables of numbers that all workers add to.

Run it with ``nosetests`` or ``python -m pytest tests/test_multiverso.py``, or on four workers with
``mpirun -np 4 python tests/test_multiverso.py``.
"""

import unittest

import numpy as np

import multiverso as mv


def setUpModule():
    mv.init()


def tearDownModule():
    mv.shutdown()


class TestTables(unittest.TestCase):
    def test_array(self):
        delta = np.arange(1000, dtype=np.float32)
        table = mv.ArrayTableHandler(1000, init_value=np.ones(1000))
        for adds in range(1, 6):
            table.add(delta)
            mv.barrier()  # Every worker has added.
            np.testing.assert_array_equal(table.get(), 1 + adds * mv.workers_num() * delta)
            mv.barrier()  # Every worker has read, so the next round may begin.

    def test_rows_of_a_matrix(self):
        rows = [0, 1, 5, 10]
        delta = np.arange(4 * 10, dtype=np.float32).reshape(4, 10)
        table = mv.MatrixTableHandler(11, 10)
        table.add(delta, rows)
        mv.barrier()
        expected = np.zeros((11, 10))
        expected[rows] = mv.workers_num() * delta
        np.testing.assert_array_equal(table.get(), expected)
        np.testing.assert_array_equal(table.get([5, 0]), expected[[5, 0]])

    def test_initial_value_is_that_of_the_master(self):
        init_value = np.full(10, 7.0 if mv.is_master_worker() else 9.0)
        table = mv.ArrayTableHandler(10, init_value=init_value)
        np.testing.assert_array_equal(table.get(), 7)


if __name__ == "__main__":
    unittest.main()
