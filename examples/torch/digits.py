"""A small network on handwritten digits, trained with PyTorch by all workers of an MPI job.

    python examples/torch/digits.py
    mpirun -np 4 python examples/torch/digits.py
    mpirun -np 4 python examples/torch/digits.py --sync

The workers share each epoch's batches out among them, so that the number of samples seen does not
depend on how many workers there are. What makes it a parallel program is marked `MULTIVERSO`.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

import multiverso as mv
from multiverso.torch_ext import DistributedOptimizer

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402


def network(pixels, classes):
    """Return a network of two layers, with statistics of the batches in between."""
    return torch.nn.Sequential(
        torch.nn.Linear(pixels, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, classes),
    )


def error(model, part):
    """Return the fraction of the images of `part` that the model takes for something else."""
    model.eval()
    with torch.no_grad():
        likeliest = model(torch.from_numpy(part.images)).argmax(dim=1)
    model.train()
    return float((likeliest != torch.from_numpy(part.labels)).float().mean())


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # the workers are as many as there are cores
    images = torch.from_numpy(data.train.images)
    labels = torch.from_numpy(data.train.labels)
    model = network(images.shape[1], data.classes)
    # MULTIVERSO: from here on all workers have the master's model, and a step is everybody's.
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.learning_rate), model, freq=args.freq
    )
    cost = torch.nn.CrossEntropyLoss()
    master = mv.is_master_worker()
    batches = math.ceil(len(labels) / args.batch_size)
    turns = math.ceil(batches / mv.num_workers())
    # The learning rate falls to nothing: what the network ends with does not depend on which images
    # came last.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * turns)
    history = []

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # tqdm shows nothing where the standard error is no terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for index in range(mv.worker_id(), turns * mv.num_workers(), mv.num_workers()):
            batch = order[index * args.batch_size : (index + 1) * args.batch_size]
            optimizer.zero_grad()
            if len(batch) > 1:  # one image has no statistics
                cost(model(images[batch]), labels[batch]).backward()
            # MULTIVERSO: with --sync all make equally many steps, also those for whom no batch was
            # left: without gradients it is the sync alone.
            optimizer.step()
            schedule.step()
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(error(model, data.valid))
            progress.set_postfix_str(f"validation error {history[-1]:.2%}")
            progress.update()
    progress.close()
    # MULTIVERSO: wait until everybody's last step is in, then fetch the whole.
    optimizer.sync()
    mv.barrier()
    optimizer.sync()
    if not master:
        return None
    return {
        "test_error": error(model, data.test),
        "seconds": time.perf_counter() - start,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "history": history,
    }


def positive(text):
    """Turn an option into an integer from 1 on."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=positive, default=20)
    parser.add_argument("--batch-size", type=positive, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--freq", type=positive, default=1, help="steps between two syncs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sync", action="store_true", help="in lock-step: equal to the bit in every run"
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    return parser.parse_args()


def main():
    """Load the data, train, report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes find each other here, and part at its end.
    with mv.session(sync=args.sync):
        result = train(args, data)
    if result is None:
        return 0
    print(
        "test error {test_error:.2%}, {seconds:.2f} seconds"
        " (workers {workers}, updates {updates}, epochs {epochs})".format(**result)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
