"""Helpers of ranks that continue after others are killed: counts of adds, and collective calls."""

import mmap
import os
from pathlib import Path

import numpy as np
import worker

import multiverso as mv


class Acknowledged:
    """Counts of acknowledged adds to two tables: int64 in a file, ``adds-RANK``, for the test."""

    def __init__(self):
        path = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"adds-{worker.RANK}"
        with path.open("w+b") as file:
            file.truncate(16)
            self.counts = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)

    def count(self, table):
        self.counts[table] += 1


def acknowledged_of(rank):
    """Return how many adds of a rank to each table have returned, also of a rank that is gone."""
    path = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"adds-{rank}"
    return np.frombuffer(path.read_bytes(), np.int64).tolist() if path.exists() else [0, 0]


def counts_of(value, bits):
    """Return the number of adds of each rank; rank r's is in the r-th group of `bits` bits."""
    return [int(value >> (bits * rank)) % (1 << bits) for rank in range(worker.SIZE)]


def make_collective_call(number, *, min_workers, sync=False):
    """Make a barrier, create a table, or aggregate a short or a long array, in turn.

    Parameters
    ----------
    number : int
        The number of the call.
    min_workers : int
        The smallest number of workers that must take part in an aggregation.
    sync : bool, optional
        Whether the get of a new table is collective.

    """
    if number % 4 == 0:
        mv.barrier()
    elif number % 4 == 1:
        table = None
        while table is None:
            try:
                table = mv.ArrayTableHandler(1000, 3.0)
            except mv.PeerLostError:  # on all ranks: the creation lost a rank
                continue
        assert (table.get(sync=sync) == 3).all()
    elif number % 4 == 2:
        _aggregate(np.ones(8), min_workers)
    else:
        _aggregate(np.ones(300_000), min_workers)


def _aggregate(array, min_workers):
    try:
        mv.aggregate(array)
    except mv.PeerLostError:  # on all ranks: the sum lost a rank
        return
    assert (array == array[0]).all()
    assert min_workers <= array[0] <= worker.SIZE, array[0]
