"""Softmax logistic regression on handwritten digits, trained by all workers of an MPI job.

    python examples/theano/logistic_regression.py
    mpirun -np 4 python examples/theano/logistic_regression.py

It uses minibatch stochastic gradient descent with early stopping. The workers divide each epoch's
batches among themselves, so the number of updates does not depend on the number of workers. The
lines that make it parallel are marked `MULTIVERSO`; `--plain` trains without them for comparison.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, report  # noqa: E402
from digit_images import DataError, DigitImages, Part, load_digit_images  # noqa: E402
from theano_backend import T, theano  # noqa: E402

# Early stopping, in epochs: train for at least PATIENCE, and PATIENCE_INCREASE times as long as it
# took to reach the last validation cost that improved by more than the threshold.
PATIENCE = 20
PATIENCE_INCREASE = 2
IMPROVEMENT_THRESHOLD = 0.995
REPORT_EVERY = 10  # epochs


class LogisticRegression:
    """Class probabilities as the softmax of a linear function of the centered pixels.

    Without centering, the mean image would dominate every gradient and make training unstable.
    """

    def __init__(self, sharedvar, mean_image, classes):
        self.mean_image = mean_image
        start = np.zeros((len(mean_image), classes), np.float32)
        # MULTIVERSO: mv_shared instead of shared: all workers train the master's values.
        self.W = sharedvar.mv_shared(start, name="W", borrow=True)
        self.b = sharedvar.mv_shared(np.zeros(classes, np.float32), name="b", borrow=True)

    def scores(self, x):
        """Return the log probabilities up to a constant per image."""
        return T.dot(x - self.mean_image, self.W) + self.b

    def cost(self, x, y):
        """Return the mean negative log-likelihood of the labels `y`."""
        scores = self.scores(x)
        # Subtracting the largest score prevents overflow and changes neither value nor gradient.
        top = theano.gradient.disconnected_grad(T.max(scores, axis=1, keepdims=True))
        scores = scores - top
        log_p = scores - T.log(T.sum(T.exp(scores), axis=1, keepdims=True))
        return -T.mean(log_p[T.arange(y.shape[0]), y])

    def errors(self, x, y):
        """Return the fraction of misclassified images."""
        return T.mean(T.neq(T.argmax(self.scores(x), axis=1), y))

    def trainer(self, images, labels, batch_size, learning_rate):
        """Return a function that trains on the batch with a given index."""
        x, y, index = T.matrix("x"), T.lvector("y"), T.lscalar("index")
        images, labels = theano.shared(images, borrow=True), theano.shared(labels, borrow=True)
        batch = slice(index * batch_size, (index + 1) * batch_size)
        gradients = theano.grad(self.cost(x, y), [self.W, self.b])
        rate = np.float32(learning_rate)
        return theano.function(
            [index],
            updates=[
                (parameter, parameter - rate * gradient)
                for parameter, gradient in zip([self.W, self.b], gradients, strict=True)
            ],
            givens={x: images[batch], y: labels[batch]},
        )

    def evaluator(self, part: Part):
        """Return a function that returns the cost and the error rate on a part of the data."""
        x, y = T.matrix("x"), T.lvector("y")
        images = theano.shared(part.images, borrow=True)
        labels = theano.shared(part.labels, borrow=True)
        outputs = [self.cost(x, y), self.errors(x, y)]
        evaluate = theano.function([], outputs, givens={x: images, y: labels})
        return lambda: tuple(map(float, evaluate()))


class EarlyStopping:
    """Detects that the validation cost has stopped improving."""

    def __init__(self):
        self.best = math.inf
        self.patience = PATIENCE

    def is_over(self, epoch, cost):
        """Record the validation cost after an epoch and return whether to stop."""
        if cost < self.best * IMPROVEMENT_THRESHOLD:
            self.patience = max(self.patience, epoch * PATIENCE_INCREASE)
        self.best = min(self.best, cost)
        return epoch >= self.patience


class Flag:
    """A flag that any worker may raise once and that all workers see after a barrier."""

    def __init__(self, mv):
        self.mv = mv
        # MULTIVERSO: a table of zeros with one element for each worker's flag.
        self.table = mv.ArrayTable(mv.num_workers(), dtype="int32")

    def raise_if(self, condition):
        """Raise the flag if the condition holds; return the workers that have raised theirs.

        Collective: blocks until all workers have called it.
        """
        if condition:
            self.table.add(np.arange(self.mv.num_workers()) == self.mv.worker_id())
        self.mv.barrier()
        return np.flatnonzero(self.table.get()).tolist()


def train(args, mv, sharedvar, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    order = np.random.default_rng(args.seed).permutation(len(data.train))
    images, labels = data.train.images[order], data.train.labels[order]
    batches = math.ceil(len(labels) / args.batch_size)

    master = mv.is_master_worker()
    model = LogisticRegression(sharedvar, images.mean(axis=0), data.classes)
    update = model.trainer(images, labels, args.batch_size, args.learning_rate)
    if master:
        validate, test = model.evaluator(data.valid), model.evaluator(data.test)
    stopping, stop = EarlyStopping(), Flag(mv)

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for epoch in range(1, args.epochs + 1):
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for index in range(mv.worker_id(), batches, mv.num_workers()):
            update(index)
            # MULTIVERSO: send this batch's changes and fetch the other workers' changes.
            sharedvar.sync_all_mv_shared_vars()
        # MULTIVERSO: wait until all workers have added the epoch's batches, then fetch the result.
        mv.barrier()
        sharedvar.sync_all_mv_shared_vars()

        over = False
        if master:  # MULTIVERSO: one worker validates and prints for all.
            cost, errors = validate()
            over = stopping.is_over(epoch, cost)
            progress.set_postfix_str(f"validation error {errors:.2%}", refresh=False)
            progress.update()
            if epoch % REPORT_EVERY == 0:
                progress.write(f"epoch {epoch}: validation error {errors:.2%}")
        if stop.raise_if(over):  # MULTIVERSO: all stop after the same epoch.
            break
    progress.close()
    seconds = time.perf_counter() - start
    if not master:
        return None
    return {
        "test_error": test()[1],
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": epoch * batches,
        "epochs": epoch,
    }


def run(args, mv, sharedvar):
    """Load the data, train and report; return the exit code."""
    data, problem, result = None, None, None
    with mv.session():  # MULTIVERSO: the processes of the job join one session for this block.
        try:
            data = load_digit_images(args.data)
        except DataError as error:
            problem = error
        # MULTIVERSO: if a worker has no data, all stop, and the first such worker reports why.
        without_data = Flag(mv).raise_if(problem is not None)
        if not without_data:
            result = train(args, mv, sharedvar, data)
        elif mv.worker_id() == without_data[0]:
            print(f"error: {problem}", file=sys.stderr, flush=True)
    if without_data:
        return 2
    return 0 if result is None else report(result, args.json)


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=100, batch_size=20, learning_rate=0.13)
    option = parser.add_argument
    option("--data", metavar="FILE", help="mnist.npz or the folder of MNIST's four IDX files")
    option("--plain", action="store_true", help="train in one process without Multiverso")
    return parser.parse_args()


def main():
    """Train with or without Multiverso; return the exit code."""
    args = parse_arguments()
    if args.plain:
        import single_process as mv

        return run(args, mv, sharedvar=mv)
    import multiverso as mv
    from multiverso.theano_ext import sharedvar

    return run(args, mv, sharedvar)


if __name__ == "__main__":
    sys.exit(main())
