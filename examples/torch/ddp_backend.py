"""DistributedDataParallel of PyTorch on handwritten digits, with Multiverso's backend.

    torchrun --nproc-per-node 4 examples/torch/ddp_backend.py
    torchrun --nproc-per-node 4 examples/torch/ddp_backend.py --backend gloo

The program is the same with both backends, except for the word. The line that makes it use
Multiverso is marked `MULTIVERSO`.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digit_images import BUNDLED  # noqa: E402

NUM_TRAINED = 1500  # of the 1797 images
BATCH_SIZE = 64  # of all ranks together


def load():
    """Return the images for training and those for testing."""
    digits = np.load(BUNDLED)
    images = torch.from_numpy(digits["images"] / 16).float()
    labels = torch.from_numpy(digits["labels"]).long()
    parts = torch.utils.data.random_split(
        TensorDataset(images, labels),
        [NUM_TRAINED, len(labels) - NUM_TRAINED],
        torch.Generator().manual_seed(1),
    )
    return parts[0], parts[1][:]


def main():
    """Train on all ranks; rank 0 prints the error on the images for testing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="multiverso", help="(default %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="(default %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    # MULTIVERSO: "multiverso" in place of "gloo".
    distributed.init_process_group(args.backend)
    data, (images, labels) = load()
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH_SIZE // distributed.get_world_size(), sampler=sampler)
    start = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch, expected in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), expected).backward()
            optimizer.step()
    seconds = time.perf_counter() - start
    if distributed.get_rank() == 0:
        error = (model.module(images).argmax(dim=1) != labels).double().mean().item()
        print(f"{args.backend}: test error {error:.2%}, {seconds:.2f} seconds")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
