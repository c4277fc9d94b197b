"""Ranks that save and load checkpoints: ``checkpoints.py FUNCTION FOLDER ...`` runs a function."""

import hashlib
import os
import resource
import sys

import numpy as np
import worker

import multiverso as mv

SIZE = 100_003


def _session_options(mode):
    return {"sync": {"sync": True}, "stale": {"staleness": 2}}.get(mode, {})


def _tables():
    """Create a table that all workers add to, two that count steps, and two of lazy rows."""
    return (
        mv.ArrayTableHandler(SIZE, name="sum"),
        mv.ArrayTableHandler(SIZE, updater="adam", name="adam"),
        mv.MatrixTableHandler(301, 77, updater="adam", name="rows", dtype="float64"),
        mv.MatrixTableHandler(
            50_021, 33, mv.initializers.RandomNormal(seed=5), updater="adam", name="lazy"
        ),
        mv.MatrixTableHandler(
            40_003, 33, mv.initializers.Zeros(), updater="rowwise_adam", name="state per row"
        ),
    )


def _train_and_report_digest(tables):
    """Continue training on the master alone, and report a digest of the tables afterwards."""
    if mv.is_master_worker():
        tables[1].add(np.linspace(-1, 1, SIZE))
        tables[2].add(np.ones((3, 77)), [1, 150, 300])
        tables[3].add(np.ones((5, 33)), [0, 700, 701, 25_011, 50_020])
        tables[4].add(np.ones((5, 33)), [0, 700, 701, 25_011, 40_002])
        values = b"".join(table.get().tobytes() for table in tables)
        worker.report(digest=hashlib.sha256(values).hexdigest())


def save(folder, mode, background):
    """Train, save, and continue training."""
    with mv.session(**_session_options(mode)):
        tables = _tables()
        has_rounds = mode in ("sync", "stale")
        for step in range(3):
            tables[0].add(np.full(SIZE, (mv.worker_id() + 1) * 10**step))
            # In rounds every worker must add; all but the master add zeros.
            if mv.is_master_worker() or has_rounds:
                scale = 1.0 if mv.is_master_worker() else 0.0
                tables[1].add(scale * np.linspace(1, 2, SIZE))
                tables[2].add(np.full((2, 77), scale), [step, 300])
                tables[3].add(np.full((3, 33), scale), [700 + step, 25_010, 50_020])
                tables[4].add(np.full((3, 33), scale), [700 + step, 25_010, 40_002])
        mv.save(folder, step=17, background=background == "background")
        if not has_rounds:
            _train_and_report_digest(tables)
        mv.wait_for_save()
        worker.report(workers=mv.num_workers())


def load(folder, mode):
    """Load, and report the state at once and after more training."""
    with mv.session(**_session_options(mode)):
        tables = _tables()
        worker.report(step=mv.load(folder))
        sums = tables[0].get()
        worker.report(sum=float(sums[0]), uniform=bool((sums == sums[0]).all()))
        if mode == "async":
            mv.barrier()
            _train_and_report_digest(tables)
        mv.barrier()


def saves_until_killed(folder):
    """Resume from the last checkpoint, if any, and save repeatedly until the job is killed."""
    worker.begin()
    with mv.session():
        up = mv.ArrayTableHandler(50_021, name="up")
        down = mv.MatrixTableHandler(101, 33, updater="sgd", learning_rate=1.0, name="down")
        step = mv.load(folder, missing_ok=True) or 0
        complete = (up.get() == step).all() and (down.get() == -step).all()
        mv.barrier()
        worker.report(step=step, complete=bool(complete))
        worker.announce("busy")
        while True:
            step += 1
            if mv.is_master_worker():
                up.add(np.ones(50_021))
                down.add(np.ones((101, 33)))
            mv.save(folder, step=step, keep=3, background=step % 2 == 0)


def one_rank_cannot_write(folder):
    """Save while the file of one rank cannot be written completely."""
    with mv.session():
        table = mv.ArrayTableHandler(1_000_000, np.ones(1_000_000))
        if worker.RANK == worker.SIZE - 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        worker.report_call(mv.save, folder)
        worker.report(complete=bool((table.get() == 1).all()))
        mv.barrier()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        mv.save(folder, step=2)


def saves_to_different_folders(folder):
    """Save to a different folder on each rank."""
    with mv.session():
        table = mv.ArrayTableHandler(10)
        worker.report_call(mv.save, os.path.join(folder, str(worker.RANK)))
        mv.save(folder, step=1)
        del table


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
