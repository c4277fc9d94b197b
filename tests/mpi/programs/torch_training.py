"""Trains a small model with one library, on the backend of torch.distributed that it is given.

The arguments are the backend, and the name of a file in the folder torch_libraries, which defines
`train`. ``train(backend)`` trains on all ranks, and returns the losses that this rank has seen and
the trained parameters. torchrun starts the ranks.
"""

import hashlib
import importlib
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


def main():
    """Train, and report the losses and a digest of the parameters."""
    global torch
    import torch
    from torch import distributed

    # An installed Multiverso needs no import. These tests also run in a checkout.
    import multiverso.torch_ext.distributed  # noqa: F401

    torch.set_num_threads(1)
    backend, library = sys.argv[1:]
    losses, parameters = importlib.import_module(f"torch_libraries.{library}").train(backend)
    parameters = list(parameters)
    worker.report(
        backend=distributed.get_backend(),
        losses=losses,
        norms=[float(parameter.detach().double().norm()) for parameter in parameters],
        digest=digest(parameters),
    )
    distributed.destroy_process_group()


if __name__ == "__main__":
    sys.modules["torch_training"] = sys.modules["__main__"]  # The files of the libraries import it.
    worker.begin()
    main()
