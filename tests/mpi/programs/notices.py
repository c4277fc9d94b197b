"""Ranks that receive SIGTERM, alone or with processes of their own: ``notices.py FUNCTION ...``."""

import concurrent.futures
import multiprocessing
import random
import subprocess
import sys
import time

import numpy as np
import worker

import multiverso as mv

#: More items than any job does.
ITEMS = 10**6


def load(item):
    time.sleep(0.002)
    return np.full(3, float(item % 2))


class Points:
    """A data set for PyTorch."""

    def __len__(self):
        return 10**6

    def __getitem__(self, item):
        return load(item)


def loader(**options):
    from torch.utils.data import DataLoader

    while True:
        yield from DataLoader(Points(), batch_size=2, num_workers=2, **options)


def calls_of(pool):
    while True:
        yield pool.map(load, range(4))


def pool(method, **options):
    with multiprocessing.get_context(method).Pool(2, **options) as made:
        yield from calls_of(made)


def executor(method, **options):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context, **options) as made:
        while True:
            yield list(made.map(load, range(4)))


def started():
    while True:
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(0.5)"], check=True)
        yield


def steps():
    while True:
        yield


def waits():
    yield from range(20)
    time.sleep(1000)


def fails():
    yield from range(20)
    worker.wait_for("told")
    raise ValueError("no more data")


#: What yields the batches of a rank.
KINDS = {
    "loader_fork": lambda: loader(multiprocessing_context="fork"),
    "loader_fork_init": lambda: loader(worker_init_fn=mv.ignore_notice),
    "loader_spawn": lambda: loader(multiprocessing_context="spawn"),
    "loader_persistent": lambda: loader(persistent_workers=True),
    "pool_fork": lambda: pool("fork"),
    "pool_spawn": lambda: pool("spawn"),
    "pool_spawn_init": lambda: pool("spawn", initializer=mv.ignore_notice),
    "executor_fork": lambda: executor("fork"),
    "executor_spawn": lambda: executor("spawn"),
    "executor_spawn_init": lambda: executor("spawn", initializer=mv.ignore_notice),
    "steps": steps,
    "subprocess": started,
    "waits": waits,
    "fails": fails,
}


def options_of(folder, mode):
    return {
        "on_term": "leave",
        "sync": mode == "sync",
        "elastic": mode == "elastic",
        "checkpoints": None if folder == "none" else folder,
        "timeout": 60,
    }


def train(kind, mode, folder):
    """Add until the job ends, and report the adds that have returned, and the steps."""
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    start = 0 if folder == "none" else mv.load(folder, missing_ok=True) or 0
    worker.report(adds=0, start=start, loaded=table.get().tolist())
    mv.barrier()
    # Only one rank has children in some kinds, so that the others are told by the first.
    only_first = kind.startswith("first_")
    batches = KINDS[kind.removeprefix("first_")]()
    if only_first and worker.RANK:
        batches = iter(lambda: time.sleep(0.01), 1)
    choices = random.Random(worker.RANK)
    # With a function to call, the code is 143 without a save, too.
    before = None if folder == "none" else lambda: worker.report(before=mv.is_leaving())
    for adds, _ in enumerate(batches, 1):
        table.add(np.ones(8, np.int64))
        worker.report(adds=adds, step=start + adds)
        if mode == "barrier":
            mv.barrier()
        elif mode == "aggregate" and adds % 20 == 0:
            mv.aggregate(np.ones(3))  # in which others may be when this rank asks
        if adds == 6:
            worker.announce("resumed" if start else "busy")
        if mode != "aggregate" or choices.random() < 0.5:  # Ranks need not ask after each step.
            mv.check_leaving(start + adds, before=before)


def trains(kind, end, mode, folder):
    """Train in a session that ends with a block, in a ``finally`` or with the script."""
    options = options_of(folder, mode)
    try:
        if end == "block":
            with mv.session(**options):
                train(kind, mode, folder)
        else:
            mv.init(**options)
            try:
                train(kind, mode, folder)
            finally:
                if end == "finally":
                    mv.shutdown()
    finally:
        worker.report(is_open=mv.is_initialized())


def leaves_alone(folder):
    """Add, as a worker of an elastic session, until this worker leaves; report its adds."""
    mv.init(**options_of(folder, "elastic"))
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
    mv.init(**options_of(folder, "elastic"))
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
    mv.init(**options_of(folder, "async"))
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

    mv.init(**options_of(folder, mode))
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
    mv.init(**options_of(folder, mode))
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
    mv.init(**options_of(folder, "async"))
    worker.announce("busy")
    worker.wait_for("nothing")


if __name__ == "__main__":
    worker.begin()
    globals()[sys.argv[1]](*sys.argv[2:])
