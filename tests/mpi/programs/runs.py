"""Scripts for ``multiverso run`` and ``python -m multiverso``; ``runs.py NAME ...`` runs one."""

import os
import signal
import sys
import time

import numpy as np
import worker

import multiverso as mv


def _work():
    """Do work that involves no other rank, until the process is killed."""
    deadline = time.monotonic() + worker.PATIENCE
    while time.monotonic() < deadline:
        time.sleep(0.01)


def fails(how):
    """Fail on the last rank while the others are busy."""
    mv.init()
    worker.announce("busy")
    if worker.RANK != worker.SIZE - 1:
        _work()
    for rank in range(worker.SIZE):
        worker.wait_for("busy", rank)
    if how == "exit":
        sys.exit(3)
    raise ValueError("bad batch 17")


def works():
    """Stay busy."""
    worker.begin()
    mv.init()
    worker.announce("busy")
    _work()


def resumes(folder):
    """Resume from the last checkpoint; the process is killed before the second and the third."""
    with mv.session():
        table = mv.ArrayTableHandler(1000, name="w")
        first = mv.load(folder, missing_ok=True) or 0
        for step in range(first, 3):
            if mv.is_master_worker():
                table.add(np.ones(1000))
            mv.save(folder, step=step + 1)
            if first == step < 2 and worker.RANK == worker.SIZE - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            mv.barrier()
        worker.report(first=first, whole=bool((table.get() == 3).all()))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
