"""Trains a small model with one library, on the backends of torch.distributed that it is given.

The arguments are the name of a file in the folder torch_libraries, which defines `train`, and the
backends. ``train(backend)`` trains on all ranks, and returns the losses that this rank has seen and
the trained parameters. torchrun starts the ranks.

Each training has a process of its own, since libraries keep the first group for the whole process.
It is a fork of the rank, because the libraries take longer to import than to train.
"""

import hashlib
import importlib
import multiprocessing
import os
import sys

import worker

STEPS = 6
BATCH_SIZE = 8
RANKS = 2
FEATURES = 12

torch = None


def network():
    """Return the same model on all ranks. It has a buffer, and parameters of several sizes."""
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32),
        torch.nn.BatchNorm1d(32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 1),
    )


def samples():
    """Return a data set for `STEPS` batches of each rank, which a linear model would learn."""
    generator = torch.Generator().manual_seed(6)
    inputs = torch.randn(STEPS * BATCH_SIZE * RANKS, FEATURES, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def digest(tensors):
    """Return a text that is equal for two lists of tensors only if each of their bits is."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def trained(library, backend, attempt):
    """Train, and return the losses, the norms of the parameters, and their digest."""
    from torch import distributed

    # torchrun's store still has the keys of the training before. Each attempt has keys of its own.
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
    losses, parameters = importlib.import_module(library).train(backend)
    parameters = list(parameters)
    outcome = {
        "backend": distributed.get_backend(),
        "losses": losses,
        "norms": [float(parameter.detach().double().norm()) for parameter in parameters],
        "digest": digest(parameters),
    }
    distributed.destroy_process_group()
    return outcome


def main():
    """Train on each backend, and report the outcomes."""
    global torch
    import torch

    # An installed Multiverso needs no import. These tests also run in a checkout.
    import multiverso.torch_ext.distributed  # noqa: F401

    torch.set_num_threads(1)
    name, *backends = sys.argv[1:]
    library = f"torch_libraries.{name}"
    importlib.import_module(library)
    for attempt, backend in enumerate(backends):
        with multiprocessing.get_context("fork").Pool(1) as process:
            worker.report(**{backend: process.apply(trained, (library, backend, attempt))})


if __name__ == "__main__":
    sys.modules["torch_training"] = sys.modules["__main__"]  # The files of the libraries import it.
    worker.begin()
    main()
