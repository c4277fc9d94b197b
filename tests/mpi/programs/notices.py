"""Ranks that work with processes of their own: ``notices.py KIND END MODE FOLDER``.

The test sends SIGTERM to all processes of the job, also to those.
"""

import concurrent.futures
import multiprocessing
import subprocess
import sys
import time

import numpy as np
import worker

import multiverso as mv


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
    "subprocess": started,
    "waits": waits,
    "fails": fails,
}


def train(kind, mode):
    table = mv.ArrayTable(8, dtype="int64", name="adds")
    adds = 0
    worker.report(adds=0)
    # Only one rank has children in some kinds, so that the others are told by the first.
    only_first = kind.startswith("first_")
    batches = KINDS[kind.removeprefix("first_")]()
    if only_first and worker.RANK:
        batches = iter(lambda: time.sleep(0.01), 1)
    for step, _ in enumerate(batches):
        table.add(np.ones(8, np.int64))
        adds += 1
        worker.report(adds=adds)
        if mode == "barrier":
            mv.barrier()
        if step == 5:
            worker.announce("busy")
        mv.check_leaving(step + 1)


def main(kind, end, mode, folder):
    worker.begin()
    options = {
        "on_term": "leave",
        "sync": mode == "sync",
        "elastic": mode == "elastic",
        "checkpoints": None if folder == "none" else folder,
        "timeout": 60,
    }
    if end == "block":
        with mv.session(**options):
            train(kind, mode)
    elif end == "finally":
        mv.init(**options)
        try:
            train(kind, mode)
        finally:
            mv.shutdown()
    else:
        mv.init(**options)
        train(kind, mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
