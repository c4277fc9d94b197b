"""A rank that dies at a failpoint in an add: ``dying.py FAILPOINT``."""

import os
import sys

import numpy as np
import worker

import multiverso as mv

#: Several stripes of 64 KiB.
SIZE = 100_000


def main(failpoint):
    """Kill the last rank while it holds a lock; the others continue, and report what they read."""
    worker.shield()
    last = worker.SIZE - 1
    if last == worker.RANK:
        os.environ["MULTIVERSO_FAILPOINTS"] = failpoint
    worker.begin()
    mv.init()
    table = mv.ArrayTableHandler(SIZE, dtype="int64", name="w")
    table.add(np.ones(SIZE, np.int64))
    mv.barrier()
    if last == worker.RANK:
        # Only this worker adds thousands; the stripes before the failpoint receive them.
        table.add(np.full(SIZE, 1000))
        os._exit(9)  # not reached: the failpoint kills this process
    worker.wait_for("gone", last)
    table.add(np.ones(SIZE, np.int64))
    worker.announce("added")
    for rank in range(last):
        worker.wait_for("added", rank)
    values = table.get()
    worker.report(
        ones=sorted(set((values % 1000).tolist())),
        thousands=sorted(set((values // 1000).tolist())),
        elements_with_a_thousand=int((values // 1000).sum()),
    )
    os._exit(0)  # a shutdown would wait for the dead rank


if __name__ == "__main__":
    main(sys.argv[1])
