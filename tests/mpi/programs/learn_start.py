"""Ranks of a training that cannot start: ``learn_start.py FAULT [FOLDER]``.

The last rank has the fault. The trainings end before a model is made, so they need no Keras. With
two masters, the ranks agree on their layout before anything else.
"""

import sys
import threading

import worker

worker.begin()

from mpi4py import MPI  # noqa: E402

import multiverso as mv  # noqa: E402
from multiverso.learn import Algo, Data, ModelFromJson, MPIManager, command  # noqa: E402

#: The timeout, in seconds, of trainings that must time out, and of those that must not.
SHORT_TIMEOUT, LONG_TIMEOUT = 1.0, 100.0
LAST = worker.SIZE - 1


def train(timeout):
    """Train with two masters."""
    algo, model = Algo("sgd", loss="mse"), ModelFromJson(filename="model.json")
    manager = MPIManager(
        MPI.COMM_WORLD, Data(10), algo, model, 1, ["1.h5"], num_masters=2, timeout=timeout
    )
    manager.train()


def absent():
    """Train, except on the last rank, which never ends."""
    if worker.RANK == LAST:
        threading.Event().wait()
    train(SHORT_TIMEOUT)


def barrier():
    """Train, except on the last rank, which calls a barrier."""
    mv.init()
    if worker.RANK == LAST:
        worker.report_call(mv.barrier)
    else:
        worker.report_call(train, SHORT_TIMEOUT)


def raises():
    """Train, except on the last rank, which fails before."""
    if worker.RANK == LAST:
        raise ValueError("bad batch 17")
    train(LONG_TIMEOUT)


def missing():
    """Train, except on the last rank, which has no PyTorch."""
    if worker.RANK == LAST:
        sys.modules["torch"] = None  # With this, Python's import raises ModuleNotFoundError.
        import multiverso.torch_ext  # noqa: F401
    train(LONG_TIMEOUT)


def unreadable(folder):
    """Run the command, on the last rank with the name of a list that does not exist."""
    lists = [f"{folder}/none.txt" if worker.RANK == LAST else f"{folder}/files.txt"] * 2
    sys.exit(command.main(["train", f"{folder}/model.json", *lists]))


def incomplete(folder):
    """Run the command, on the last rank without h5py."""
    if worker.RANK == LAST:
        sys.modules["h5py"] = None
    sys.exit(command.main(["train", f"{folder}/model.json", *[f"{folder}/files.txt"] * 2]))


globals()[sys.argv[1]](*sys.argv[2:])
