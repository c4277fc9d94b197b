"""A worker of an elastic job whose workers join, leave and are killed at random."""

import sys

import numpy as np
import worker
from survivors import Acknowledged

import multiverso as mv
from multiverso.api import current_session

#: Elements of the table that all workers change: within one stripe.
SIZE = 5000
#: Calls after which a worker takes its next item.
CALLS_BETWEEN_ITEMS = 10


def main(name, items, max_joins):
    """Add until the test stops the job, and do items meanwhile; leave on SIGTERM."""
    mv.init(elastic=True, name=name, on_term="leave")
    worker.RANK = mv.rank()
    worker.begin()
    worker.announce("joined")
    ones = np.ones(SIZE, np.int64)
    acknowledged = Acknowledged()
    own = mv.ArrayTableHandler(int(max_joins), dtype="int64")
    shared = mv.ArrayTableHandler(SIZE, dtype="int64")
    done = mv.ArrayTableHandler(int(items), dtype="int64")
    work = iter(mv.Work(range(int(items)), lease=3600))
    worker.announce("busy")
    step = 0
    while not worker.is_announced("stop"):
        own.fetch_add(mv.worker_id())
        acknowledged.count(0)
        shared.add(ones)
        acknowledged.count(1)
        step += 1
        if step % CALLS_BETWEEN_ITEMS == 0 and (item := next(work, None)) is not None:
            done.fetch_add(item)
        mv.check_leaving(before=work.close)
    for item in work:
        done.fetch_add(item)
    mv.barrier()
    values = shared.get()
    worker.report(
        own=own.get().tolist(),
        least=int(values.min()),
        most=int(values.max()),
        done=done.get().tolist(),
        left=current_session().membership().left,
    )
    mv.shutdown()


main(*sys.argv[1:])
