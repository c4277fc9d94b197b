"""Ranks that leave when one of them receives SIGTERM: ``leaving.py FUNCTION FOLDER ...``."""

import random
import sys

import numpy as np
import worker

import multiverso as mv

ITEMS = 10**6


def _init(folder, **options):
    worker.begin()
    folder = None if folder == "None" else folder
    mv.init(on_term="leave", checkpoints=folder, timeout=60, **options)


def trains(folder, mode):
    """Add until the job ends, and report the adds that have returned, and the steps."""
    _init(folder, sync=mode == "sync")
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    choices = random.Random(worker.RANK)
    start = mv.load(folder, missing_ok=True) or 0
    adds, step = 0, start
    worker.report(start=start, loaded=table.get().tolist())
    mv.barrier()
    worker.announce("resumed" if start else "busy")
    try:
        while True:
            table.add(np.ones(8, np.int64))
            adds, step = adds + 1, step + 1
            if mode == "barriers" and step % 50 == 0:
                mv.barrier()  # in which others may be when this rank asks
            if mode == "aggregates" and step % 50 == 0:
                mv.aggregate(np.ones(3))
            if mode in ("barriers", "aggregates") and choices.random() < 0.5:
                continue  # Ranks need not ask after each step.
            mv.check_leaving(step, before=lambda: worker.report(before=mv.is_leaving()))
    finally:
        worker.report(adds=adds, step=step, is_open=mv.is_initialized())


def leaves_alone(folder):
    """Add, as a worker of an elastic session, until this worker leaves; report its adds."""
    _init(folder, elastic=True)
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    worker.announce("busy")
    adds = 0
    try:
        while True:
            table.add(np.ones(8, np.int64))
            adds += 1
            if adds % 20 == 0:
                mv.barrier()
            mv.check_leaving()
    finally:
        worker.report(adds=adds)


def is_left_alone(folder):
    """Leave an elastic session, as rank 0; its process ends when that of the other was killed."""
    _init(folder, elastic=True)
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    worker.announce("busy")
    if worker.RANK:
        worker.wait_for_kill()
    try:
        while True:
            table.add(np.ones(8, np.int64))
            mv.check_leaving()
    finally:
        worker.announce("left")
        worker.wait_for("killed")


def works(folder):
    """Do items of `Work` until the job ends, and report them."""
    _init(folder)
    work = mv.Work(range(ITEMS), lease=3600, name="work")
    table = mv.ArrayTable(ITEMS, dtype="int64", name="done")
    worker.announce("busy")
    done = 0
    try:
        for item in work:
            table.fetch_add(item)
            done += 1
    finally:
        worker.report(done=done)


def syncs(folder, mode):
    """Synchronize an array every third step until the job ends; report the steps of this rank."""
    from multiverso.sync import ParamSync

    _init(folder, sync=mode == "sync")
    values = np.zeros(5, np.float64)
    sync = ParamSync([values], sync_every=3, name="values")
    worker.announce("busy")
    steps = 0
    try:
        while True:
            values += 1
            steps += 1
            sync.sync()
    finally:
        worker.report(steps=steps)


def finishes(folder, mode):
    """Shut down early on all ranks but the last, which trains on until the job ends."""
    _init(folder, sync=mode == "sync")
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    adds, is_last = 0, worker.RANK == worker.SIZE - 1
    try:
        while is_last or adds < 3:
            table.add(np.ones(8, np.int64))
            adds += 1
            if adds == 5:
                worker.announce("busy")
            mv.check_leaving(adds)
        mv.finish()
        worker.announce("busy")
        mv.shutdown()
    finally:
        worker.report(adds=adds, is_open=mv.is_initialized())


def ignores(folder):
    """Never ask, and end at the second SIGTERM."""
    _init(folder)
    worker.announce("busy")
    worker.wait_for("nothing")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
