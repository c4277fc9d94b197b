"""Ranks give rows to keys, change and remove them until one is killed; the others check the table.

The argument of the program is the rank that the test kills.
"""

import os
import sys
from pathlib import Path

import numpy as np
import worker
from survivors import Acknowledged

import multiverso as mv

ADDS = 400
SHARED = np.arange(-50, 150)
VICTIM = int(sys.argv[1])


def acknowledged_of(rank):
    """Return how many adds of a rank have returned."""
    path = Path(os.environ["MULTIVERSO_TEST_JOB"]) / f"adds-{rank}"
    return int(np.frombuffer(path.read_bytes(), np.int64)[0]) if path.exists() else 0


def own_keys(rank, turn):
    """Return the keys of a rank that get their rows in a turn."""
    return (rank + 1) * 10**12 + np.arange(turn * 7, turn * 7 + 7)


def train(table, acknowledged):
    """Make adds to shared and to new keys, and let other new keys come and go."""
    delta = np.zeros((len(SHARED) + 7, worker.SIZE), np.int64)
    delta[:, worker.RANK] = 1
    for turn in range(ADDS):
        table.add(delta, np.concatenate([SHARED, own_keys(worker.RANK, turn)]))
        acknowledged.count(0)
        passing = -own_keys(worker.RANK, turn)
        table.get(passing)
        table.remove(passing)
        if turn == 20:
            worker.announce("busy")
    worker.wait_for("killed")


def check(table):
    """Check what survivors must read."""
    mv.barrier()
    shared = table.get(SHARED, insert=False)
    done = acknowledged_of(VICTIM)
    for rank in range(worker.SIZE):
        least, most = (done, done + 1) if rank == VICTIM else (ADDS, ADDS)
        assert (shared[:, rank] >= least).all(), (rank, least, shared[:, rank].min())
        assert (shared[:, rank] <= most).all(), (rank, most, shared[:, rank].max())
        turns = range(least)
        keys = np.concatenate([own_keys(rank, turn) for turn in turns] or [np.empty(0, np.int64)])
        rows = table.get(keys, insert=False)
        assert (rows[:, rank] == 1).all()
        assert (np.delete(rows, rank, axis=1) == 0).all()
    # Entries, keys and rows agree: each key that is there is found, and found once.
    found = np.concatenate([keys for keys, _ in table.items(chunk=1000)])
    assert len(np.unique(found)) == len(found)
    assert table.contains(found).all()
    passing = found[found < SHARED[0]]
    assert len(passing) <= 7  # of the victim
    least = len(SHARED) + 7 * (ADDS * (worker.SIZE - 1) + done)
    assert least <= len(found) <= least + 14, (least, len(found))
    mv.barrier()
    table.add(np.ones((len(found), worker.SIZE), np.int64), found)
    mv.barrier()
    assert (table.get(found, insert=False) >= worker.SIZE - 1).all()
    mv.barrier()


def main():
    """Train, and check the table if this rank survives."""
    worker.begin()
    with mv.session(on_peer_lost="continue", timeout=60):
        table = mv.HashTableHandler(worker.SIZE, 20_000, dtype="int64")
        train(table, Acknowledged())
        check(table)
        worker.report(ended=True)


if __name__ == "__main__":
    main()
