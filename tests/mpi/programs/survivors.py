"""Helpers of ranks that continue after others are killed: they count adds and synchronize."""

import mmap
import os
from pathlib import Path

import numpy as np
import worker

import multiverso as mv


class Acknowledged:
    """A count of the adds that have returned, which survives the process."""

    def __init__(self):
        path = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"adds-{worker.RANK}"
        with path.open("w+b") as file:
            file.truncate(16)
            self.counts = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)

    def note(self, table):
        self.counts[table] += 1


def counts_of(value, bits):
    """Return the adds of each rank, which a number encodes in so many bits each."""
    return [int(value >> (bits * rank)) % (1 << bits) for rank in range(worker.SIZE)]


def meet(number, *, least, sync=False):
    """Make collective call `number`; its kind depends on the number.

    Parameters
    ----------
    number : int
        The number of the call.
    least : int
        The smallest number of workers that must take part.
    sync : bool, optional
        Whether all workers create a new table together.

    """
    if number % 4 == 0:
        mv.barrier()
    elif number % 4 == 1:
        table = None
        while table is None:
            try:
                table = mv.ArrayTableHandler(1000, 3.0)
            except mv.PeerLostError:  # raised on all ranks: the rank that made the table was lost
                continue
        assert (table.get(sync=sync) == 3).all()
    elif number % 4 == 2:
        _sum(np.ones(8), least)
    else:
        _sum(np.ones(300_000), least)


def _sum(array, least):
    try:
        mv.aggregate(array)
    except mv.PeerLostError:  # raised on all ranks: lost in the middle of a sum
        return
    assert (array == array[0]).all()
    assert least <= array[0] <= worker.SIZE, array[0]
