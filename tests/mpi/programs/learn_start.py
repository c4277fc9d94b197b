"""Ranks of a training that cannot start: ``learn_start.py FAULT [FOLDER]``.

The last rank has the fault. The trainings end before a model is made, so they need no Keras.
"""

import sys
import threading

import worker

worker.begin()

import multiverso as mv  # noqa: E402
from multiverso.learn import (  # noqa: E402
    Algo,
    Data,
    InputError,
    ModelFromJson,
    MPIManager,
    command,
)

#: The timeout, in seconds, of trainings that must time out, and of those that must not.
SHORT_TIMEOUT, LONG_TIMEOUT = 1.0, 100.0
LAST = worker.SIZE - 1


class Missing(Data):
    """Data whose files are missing on the last rank."""

    def check(self, file_names):
        if worker.RANK == LAST:
            raise InputError(f"cannot read {file_names[0]}: no such file")


def train(timeout, **limits):
    """Train with data that are missing on the last rank."""
    files = [f"{number}.h5" for number in range(worker.SIZE)]
    algo, model = Algo("sgd", loss="mse"), ModelFromJson(filename="model.json")
    MPIManager(None, Missing(10), algo, model, 1, files, timeout=timeout, **limits).train()


def missing_file():
    """Train; report the error, and the frameworks that have been imported until then."""
    worker.report_call(train, LONG_TIMEOUT)
    frameworks = ("keras", "torch", "tensorflow", "jax", "h5py")
    worker.report(imported=[name for name in frameworks if name in sys.modules])


def absent():
    """Train, except on the last rank, which never ends."""
    if worker.RANK == LAST:
        threading.Event().wait()
    train(LONG_TIMEOUT, start_timeout=SHORT_TIMEOUT)


def barrier():
    """Train, except on the last rank, which calls a barrier."""
    mv.init(timeout=LONG_TIMEOUT)
    if worker.RANK == LAST:
        worker.report_call(mv.barrier)
    else:
        worker.report_call(train, LONG_TIMEOUT)


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
