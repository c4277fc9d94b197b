"""Softmax logistic regression on handwritten digits with NumPy alone, by all workers of an MPI job.

    python examples/numpy/logistic_regression.py
    mpirun -np 4 python examples/numpy/logistic_regression.py
    mpirun -np 4 python examples/numpy/logistic_regression.py --sync

The shortest whole program: the weights are a table, and a step of training is one `add_get`. The
workers share each epoch's batches out among them, so that the number of samples seen does not
depend on how many workers there are. What makes it a parallel program is marked `MULTIVERSO`.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digit_images import DataError, DigitImages, Part, load_digit_images  # noqa: E402


def with_one(images: np.ndarray, mean_image: np.ndarray) -> np.ndarray:
    """Return the images without what they have in common, each with a 1 for the bias."""
    return np.hstack([images - mean_image, np.ones((len(images), 1), np.float32)])


def probabilities(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the probability of each class, an array of shape (images, classes)."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)  # no exponential overflows
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def gradient(x: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean negative log-likelihood, of the shape of the weights."""
    error = probabilities(x, weights)
    error[np.arange(len(labels)), labels] -= 1
    return x.T @ error / np.float32(len(labels))


def wrong(part: Part, mean_image: np.ndarray, weights: np.ndarray) -> float:
    """Return the fraction of images that are taken for another class."""
    likeliest = (with_one(part.images, mean_image) @ weights).argmax(axis=1)
    return float((likeliest != part.labels).mean())


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    mean_image = data.train.images.mean(axis=0)
    x, labels = with_one(data.train.images, mean_image), data.train.labels
    batches = math.ceil(len(labels) / args.batch_size)
    master = mv.is_master_worker()
    # MULTIVERSO: the weights are a table, which all workers add to. It starts with zeros.
    table = mv.MatrixTableHandler(x.shape[1], data.classes, name="weights")
    weights = table.get()
    # Without --sync a worker takes the steps that there are for it; with it, all take as many.
    turns = math.ceil(batches / mv.num_workers())

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # tqdm shows nothing where the standard error is no terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
        for turn in range(turns):
            # MULTIVERSO: each worker takes every num_workers-th batch.
            index = turn * mv.num_workers() + mv.worker_id()
            if index < batches:
                batch = order[index * args.batch_size : (index + 1) * args.batch_size]
                step = -args.learning_rate * gradient(x[batch], labels[batch], weights)
            elif args.sync:
                step = np.zeros_like(weights)  # MULTIVERSO: a round takes a step of every worker.
            else:
                break
            # MULTIVERSO: add this step to everybody's weights, and get what they are now.
            table.add_get(step.astype(np.float32, copy=False), out=weights)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            error = wrong(data.valid, mean_image, weights)
            progress.set_postfix_str(f"validation error {error:.2%}")
            progress.update()
    progress.close()
    mv.barrier()  # MULTIVERSO: now everybody's last step is in.
    table.get(out=weights)
    if not master:
        return None
    return {
        "test_error": wrong(data.test, mean_image, weights),
        "seconds": time.perf_counter() - start,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
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
    option = parser.add_argument
    option("--epochs", type=positive, default=40, help="(default %(default)s)")
    option("--batch-size", type=positive, default=20, help="(default %(default)s)")
    option("--learning-rate", type=float, default=0.13, help="(default %(default)s)")
    option("--seed", type=int, default=0, help="of the order of the images (default %(default)s)")
    option("--sync", action="store_true", help="in rounds: the same bits in every run")
    option("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
    option("--json", type=Path, metavar="FILE", help="write the result to FILE, too")
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
