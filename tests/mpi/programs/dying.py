"""Programs that die at a failpoint; ``dying.py NAME ...`` runs one."""

import os
import sys

import numpy as np
import worker

import multiverso as mv

#: Several stripes of 64 KiB.
SIZE = 100_000


def dies_in_an_add(point):
    """Kill the last rank while it holds a lock; the others continue, and report what they read."""
    worker.shield()
    last = worker.SIZE - 1
    if last == worker.RANK:
        os.environ["MULTIVERSO_FAILPOINTS"] = point
    worker.begin()
    mv.init()
    table = mv.ArrayTableHandler(SIZE, dtype="int64", name="w")
    table.add(np.ones(SIZE, np.int64))
    mv.barrier()
    if last == worker.RANK:
        # Only this worker adds thousands; the stripes before the failpoint receive them.
        table.add(np.full(SIZE, 1000))
        os._exit(9)
    worker.wait_for("gone", last)
    table.add(np.ones(SIZE, np.int64))
    worker.announce("added")
    for rank in range(last):
        worker.wait_for("added", rank)
    values = table.get()
    worker.report(
        small=sorted(set((values % 1000).tolist())),
        partly=sorted(set((values // 1000).tolist())),
        thousands=int((values // 1000).sum()),
    )
    os._exit(0)  # a shutdown would wait for the dead rank


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
