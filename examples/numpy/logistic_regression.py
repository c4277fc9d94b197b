"""Softmax logistic regression on handwritten digits with NumPy, by all workers of an MPI job.

    python examples/numpy/logistic_regression.py
    mpirun -np 4 python examples/numpy/logistic_regression.py
    mpirun -np 4 python examples/numpy/logistic_regression.py --sync

This is the shortest complete program: the weights are a table, and a training step is one
`add_get`. The workers divide each epoch's batches among themselves, so the number of samples seen
does not depend on the number of workers. The lines that make it parallel are marked `MULTIVERSO`.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np

import multiverso as mv

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, progress_bar, report  # noqa: E402
from digit_images import DataError, DigitImages, Part, load_digit_images  # noqa: E402


def with_bias(images: np.ndarray, mean_image: np.ndarray) -> np.ndarray:
    """Return the centered images, each with a 1 appended for the bias."""
    return np.hstack([images - mean_image, np.ones((len(images), 1), np.float32)])


def probabilities(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the probability of each class; the shape is (images, classes)."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)  # prevents overflow
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def gradient(x: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean negative log-likelihood by the weights."""
    error = probabilities(x, weights)
    error[np.arange(len(labels)), labels] -= 1
    return x.T @ error / np.float32(len(labels))


def error_rate(part: Part, mean_image: np.ndarray, weights: np.ndarray) -> float:
    """Return the fraction of misclassified images."""
    predicted = (with_bias(part.images, mean_image) @ weights).argmax(axis=1)
    return float((predicted != part.labels).mean())


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    mean_image = data.train.images.mean(axis=0)
    x, labels = with_bias(data.train.images, mean_image), data.train.labels
    batches = math.ceil(len(labels) / args.batch_size)
    master = mv.is_master_worker()
    # MULTIVERSO: the weights are a table of zeros that all workers add to.
    table = mv.MatrixTable(x.shape[1], data.classes, name="weights")
    weights = table.get()
    steps_per_epoch = math.ceil(batches / mv.num_workers())

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    history = []
    start = time.perf_counter()
    progress = progress_bar(args.epochs, "epoch", shows=master)
    for epoch in range(args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
        for step_number in range(steps_per_epoch):
            # MULTIVERSO: each worker takes every num_workers-th batch.
            index = step_number * mv.num_workers() + mv.worker_id()
            if index < batches:
                batch = order[index * args.batch_size : (index + 1) * args.batch_size]
                step = -args.learning_rate * gradient(x[batch], labels[batch], weights)
            elif args.sync:
                step = np.zeros_like(weights)  # MULTIVERSO: a round needs every worker.
            else:
                break
            # MULTIVERSO: add this step to the shared weights and get their new values.
            table.add_get(step.astype(np.float32, copy=False), out=weights)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(error_rate(data.valid, mean_image, weights))
            progress.set_postfix_str(f"validation error {history[-1]:.2%}")
            progress.update()
    progress.close()
    mv.barrier()  # MULTIVERSO: afterwards the table contains every step.
    table.get(out=weights)
    if not master:
        return None
    return {
        "test_error": error_rate(data.test, mean_image, weights),
        "seconds": time.perf_counter() - start,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "history": history,
    }


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=40, batch_size=20, learning_rate=0.13)
    option = parser.add_argument
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    option("--data", type=Path, metavar="PATH", help="MNIST instead of the digits")
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
    with mv.session(sync=args.sync):
        result = train(args, data)
    return 0 if result is None else report(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
