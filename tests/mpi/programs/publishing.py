"""Publishes tables that change, for readers outside the job."""

import signal
import sys

import numpy as np
import worker

import multiverso as mv
from multiverso.api import current_session


def publishes(name, mode, count):
    mv.init(sync=mode == "sync", name=name, timeout=60)
    array = mv.ArrayTableHandler(100_000, name="array")
    matrix = mv.MatrixTableHandler(3000, 16, name="matrix", dtype="int64")
    lazy = mv.MatrixTableHandler(1 << 20, 16, name="lazy", init_value=mv.initializers.Constant(3))
    has_keys = mode != "sync" or current_session().num_nodes == 1
    keyed = mv.HashTableHandler(4, 5000, name="keyed") if has_keys else None
    worker.announce("created")
    for step in range(1, int(count) + 1):
        array.add(np.ones(100_000))
        # In the last rounds of sync mode, each worker has made the same number of adds.
        matrix.add(np.ones((3000, 16), np.int64))
        lazy.add(np.ones((1, 16)), [step % 50])
        if has_keys:
            keyed.add(np.full((1, 4), 1.0), [step])
        if step % 5 == 0:
            assert mv.publish(step) == step // 5
    mv.barrier()
    worker.announce("published")
    worker.wait_for("seen")
    mv.shutdown()


def waits_to_be_killed(name):
    mv.init(name=name, timeout=60)
    table = mv.ArrayTableHandler(1000, name="array")
    table.add(np.ones(1000))
    mv.publish(1)
    worker.announce("published")
    signal.pause()


if __name__ == "__main__":
    worker.begin()
    {function.__name__: function for function in (publishes, waits_to_be_killed)}[sys.argv[1]](
        *sys.argv[2:]
    )
