"""What ranks do that go on without some that are killed: count their adds, and meet."""

import mmap
import os
from pathlib import Path

import numpy as np
import worker

import multiverso as mv


class Acknowledged:
    """A count that outlives this process: how many of its adds have returned."""

    def __init__(self):
        path = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"adds-{worker.RANK}"
        with path.open("w+b") as file:
            file.truncate(16)
            self.counts = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)

    def note(self, table):
        self.counts[table] += 1


def counts_of(value, bits):
    """Return the adds of each rank that a number stands for, of which each has so many bits."""
    return [int(value >> (bits * rank)) % (1 << bits) for rank in range(worker.SIZE)]


def meet(number, *, least, sync=False):
    """Make a call that all make together, another for each number.

    Parameters
    ----------
    number : int
        Which call.
    least : int
        How many workers are there at least.
    sync : bool, optional
        Whether all get a new table together.

    """
    if number % 4 == 0:
        mv.barrier()
    elif number % 4 == 1:
        table = None
        while table is None:
            try:
                table = mv.ArrayTableHandler(1000, 3.0)
            except mv.PeerLostError:  # on all: it was one that made the table
                continue
        assert (table.get(sync=sync) == 3).all()
    elif number % 4 == 2:
        _sum(np.ones(8), least)
    else:
        _sum(np.ones(300_000), least)


def _sum(array, least):
    try:
        mv.aggregate(array)
    except mv.PeerLostError:  # on all: in the middle of a sum of many parts
        return
    assert (array == array[0]).all()
    assert least <= array[0] <= worker.SIZE, array[0]
