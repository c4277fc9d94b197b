"""A small network on handwritten digits, trained with PyTorch by all workers of an MPI job.

    python examples/torch/digits.py
    mpirun -np 4 python examples/torch/digits.py
    mpirun -np 4 python examples/torch/digits.py --sync
    mpirun -np 4 python examples/torch/digits.py --staleness 1

The workers divide each epoch's batches among themselves, so the number of samples seen does not
depend on the number of workers. The lines that make it parallel are marked `MULTIVERSO`.
"""

import math
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

import multiverso as mv
from multiverso.torch_ext import DistributedOptimizer

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, natural, positive, report  # noqa: E402
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402


def build_network(pixels, classes):
    """Return a network of two dense layers with batch normalization in between."""
    return torch.nn.Sequential(
        torch.nn.Linear(pixels, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, classes),
    )


def evaluate(model, part):
    """Return the loss on `part`, and the fraction of its images that the model misclassifies."""
    labels = torch.from_numpy(part.labels)
    model.eval()
    with torch.no_grad():
        outputs = model(torch.from_numpy(part.images))
    model.train()
    errors = (outputs.argmax(dim=1) != labels).double().mean()
    return float(torch.nn.functional.cross_entropy(outputs, labels)), float(errors)


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a job usually has one worker per core
    images = torch.from_numpy(data.train.images)
    labels = torch.from_numpy(data.train.labels)
    model = build_network(images.shape[1], data.classes)
    # MULTIVERSO: all workers start from the master's model, and each step is shared.
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.learning_rate),
        model,
        freq=args.freq,
        average=False,  # MULTIVERSO: the sum of all steps, at the rate of one worker.
        wire=args.wire,
    )
    cost = torch.nn.CrossEntropyLoss()
    master = mv.is_master_worker()
    batches = math.ceil(len(labels) / args.batch_size)
    steps_per_epoch = math.ceil(batches / mv.num_workers())
    # The learning rate decays to zero, so the result does not depend on which images came last.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * steps_per_epoch)
    history, epoch_seconds = [], []
    # The order of the images is the same on all workers.
    generator = torch.Generator().manual_seed(args.seed)

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for _ in range(args.epochs):
        begin = time.perf_counter()
        order = torch.randperm(len(labels), generator=generator)
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for index in range(mv.worker_id(), steps_per_epoch * mv.num_workers(), mv.num_workers()):
            batch = order[index * args.batch_size : (index + 1) * args.batch_size]
            optimizer.zero_grad()
            if len(batch) > 1:  # one image has no variance
                cost(model(images[batch]), labels[batch]).backward()
            # MULTIVERSO: with --sync, a worker without a batch also makes the step, which then only
            # syncs.
            optimizer.step()
            schedule.step()
        epoch_seconds.append(time.perf_counter() - begin)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(evaluate(model, data.valid))
            progress.set_postfix_str(f"validation error {history[-1][1]:.2%}")
            progress.update()
    progress.close()
    # MULTIVERSO: wait until every worker has added its last step, then fetch the result.
    optimizer.sync()
    mv.barrier()
    optimizer.sync()
    if not master:
        return None
    test_loss, test_error = evaluate(model, data.test)
    return {
        "test_error": test_error,
        "test_loss": test_loss,
        "seconds": time.perf_counter() - start,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "history": history,
        "epoch_seconds": epoch_seconds,
    }


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=20, batch_size=20, learning_rate=0.1, seed=1)
    parser.add_argument("--freq", type=positive(int), default=1, help="steps between syncs")
    parser.add_argument(
        "--wire", choices=("float32", "bfloat16", "int8"), help="how syncs travel between nodes"
    )
    parser.add_argument("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    parser.add_argument(
        "--staleness", type=natural, metavar="N", help="workers run at most N rounds ahead"
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
    return parser.parse_args()


def main():
    """Load the data, train and report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session(sync=args.sync, staleness=args.staleness):
        result = train(args, data)
    return 0 if result is None else report(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
