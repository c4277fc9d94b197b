"""A convolutional network on handwritten digits, trained by all workers of an MPI job.

    python examples/theano/cnn.py
    mpirun -np 4 python examples/theano/cnn.py
    mpirun -np 4 python examples/theano/cnn.py --sync

The convolutions are written as products of matrices, which PyTensor, Aesara and Theano have in
common. The workers share each epoch's batches out among them, so that the number of samples seen
does not depend on how many there are. What makes it a parallel program is marked `MULTIVERSO`.
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
from multiverso.theano_ext import sharedvar

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402
from theano_backend import T, theano  # noqa: E402

SMALLEST_SIDE = 8  # of the images: both layers of convolution have something to see


class ConvolutionalNetwork:
    """Convolution 3 x 3, the largest of each 2 x 2, convolution 2 x 2, and a softmax of the rest.

    Parameters
    ----------
    mean_image : array of float32, shape (side * side,)
        What is taken off each image.
    classes : int
        How many labels there are.
    channels : tuple of int
        How many features each of the two convolutions finds.
    seed : int
        Of the weights to start from.
    """

    def __init__(self, mean_image, classes, channels, seed):
        self.mean_image = mean_image
        self.side = math.isqrt(len(mean_image))
        pooled = (self.side - 2) // 2
        rng = np.random.default_rng(seed)

        def weights(inputs, outputs, name):
            start = rng.normal(0, math.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
            # MULTIVERSO: mv_shared, not shared: all workers train it, from the master's value on.
            return sharedvar.mv_shared(start, name=name, borrow=True)

        def bias(outputs, name):
            # MULTIVERSO: the same.
            return sharedvar.mv_shared(np.zeros(outputs, np.float32), name=name, borrow=True)

        first, second = channels
        self.W1, self.b1 = weights(9, first, "W1"), bias(first, "b1")
        self.W2, self.b2 = weights(4 * first, second, "W2"), bias(second, "b2")
        flat = (pooled - 1) ** 2 * second
        self.W3, self.b3 = weights(flat, classes, "W3"), bias(classes, "b3")
        self.parameters = [self.W1, self.b1, self.W2, self.b2, self.W3, self.b3]

    def scores(self, x):
        """Return the logarithms of the probabilities, up to a constant per image."""
        images = T.reshape(x - self.mean_image, (x.shape[0], self.side, self.side, 1))
        seen, side = convolution(images, self.side, 3, self.W1, self.b1)
        seen, side = largest_of_four(seen, side)
        seen, side = convolution(seen, side, 2, self.W2, self.b2)
        return T.dot(T.reshape(seen, (x.shape[0], -1)), self.W3) + self.b3

    def cost(self, x, y):
        """Return the mean negative log-likelihood of the labels `y`."""
        scores = self.scores(x)
        # The largest score is taken off so that no exponential overflows. It changes nothing, nor
        # does it have a gradient.
        top = theano.gradient.disconnected_grad(T.max(scores, axis=1, keepdims=True))
        scores = scores - top
        log_p = scores - T.log(T.sum(T.exp(scores), axis=1, keepdims=True))
        return -T.mean(log_p[T.arange(y.shape[0]), y])

    def trainer(self, images, labels, batch_size, learning_rate):
        """Return a function that makes one update with the batch of a given index."""
        x, y, index = T.matrix("x"), T.lvector("y"), T.lscalar("index")
        images, labels = theano.shared(images, borrow=True), theano.shared(labels, borrow=True)
        batch = slice(index * batch_size, (index + 1) * batch_size)
        gradients = theano.grad(self.cost(x, y), self.parameters)
        rate = np.float32(learning_rate)
        pairs = zip(self.parameters, gradients, strict=True)
        return theano.function(
            [index],
            updates=[(parameter, parameter - rate * gradient) for parameter, gradient in pairs],
            givens={x: images[batch], y: labels[batch]},
        )

    def evaluator(self, part):
        """Return a function that computes cost and error on a part of the data."""
        x, y = T.matrix("x"), T.lvector("y")
        error = T.mean(T.neq(T.argmax(self.scores(x), axis=1), y))
        evaluate = theano.function([x, y], [self.cost(x, y), error])
        return lambda: tuple(map(float, evaluate(part.images, part.labels)))


def convolution(images, side, width, weights, bias):
    """Return the rectified convolution with windows of `width`, and the side of its images.

    Each window's pixels are laid side by side, so that all windows make one product of matrices.
    """
    left = side - width + 1
    shifts = [(i, j) for i in range(width) for j in range(width)]
    windows = T.concatenate([images[:, i : i + left, j : j + left] for i, j in shifts], axis=3)
    rows = T.reshape(windows, (-1, windows.shape[3]))
    seen = T.maximum(T.dot(rows, weights) + bias, np.float32(0))
    return T.reshape(seen, (images.shape[0], left, left, weights.shape[1])), left


def largest_of_four(images, side):
    """Return the largest of each square of four, and the side of what results."""
    left = side // 2
    even = images[:, : 2 * left, : 2 * left]
    rows = T.maximum(even[:, 0::2], even[:, 1::2])
    return T.maximum(rows[:, :, 0::2], rows[:, :, 1::2]), left


def train(args, data: DigitImages):
    """Train on `data`; return the result on the test images on the master, None elsewhere."""
    order = np.random.default_rng(args.seed).permutation(len(data.train))
    images, labels = data.train.images[order], data.train.labels[order]
    batches = math.ceil(len(labels) / args.batch_size)

    master = mv.is_master_worker()
    network = ConvolutionalNetwork(images.mean(axis=0), data.classes, args.channels, args.seed)
    update = network.trainer(images, labels, args.batch_size, args.learning_rate)
    if master:
        validate, test = network.evaluator(data.valid), network.evaluator(data.test)
    history, epoch_seconds = [], []

    mv.barrier()  # MULTIVERSO: the clock starts when all workers are ready.
    start = time.perf_counter()
    # tqdm shows nothing where the standard error is no terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for _ in range(args.epochs):
        begin = time.perf_counter()
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for first in range(0, batches, mv.num_workers()):
            mine = first + mv.worker_id()
            if mine < batches:
                update(mine)
            # MULTIVERSO: send what this batch has changed, fetch what the others' have. With --sync
            # all do so equally often, also those for whom no batch was left.
            sharedvar.sync_all_mv_shared_vars()
        # MULTIVERSO: wait until the epoch's last batch is in, then fetch the whole.
        mv.barrier()
        sharedvar.sync_all_mv_shared_vars()
        epoch_seconds.append(time.perf_counter() - begin)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(validate())
            progress.set_postfix_str(f"validation error {history[-1][1]:.2%}", refresh=False)
            progress.update()
        # MULTIVERSO: nobody goes on while the master validates, lest it sees the next epoch.
        mv.barrier()
    progress.close()
    seconds = time.perf_counter() - start
    if not master:
        return None
    return {
        "test_error": test()[1],
        "seconds": seconds,
        "workers": mv.num_workers(),
        "updates": args.epochs * batches,
        "epochs": args.epochs,
        "history": history,
        "epoch_seconds": epoch_seconds,
    }


def positive(kind):
    """Return a function that turns an option into a positive, finite number."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--data", metavar="FILE", help="mnist.npz, or a folder with the four IDX files of MNIST")
    option("--epochs", type=positive(int), default=50, help="(default %(default)s)")
    option("--batch-size", type=positive(int), default=20, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.1, help="(default %(default)s)")
    option(
        "--channels",
        type=positive(int),
        nargs=2,
        default=(8, 16),
        metavar="N",
        help="features of the two convolutions (default 8 16)",
    )
    option("--seed", type=int, default=0, help="of images and weights (default %(default)s)")
    option("--sync", action="store_true", help="in lock-step: equal to the bit in every run")
    option("--json", metavar="FILE", type=Path, help="write the result to this file, too")
    return parser.parse_args()


def main():
    """Load the data, train, report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
        pixels = data.train.images.shape[1]
        if math.isqrt(pixels) ** 2 != pixels or pixels < SMALLEST_SIDE**2:
            raise DataError(
                f"expected square images of {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels or more,"
                f" received {pixels} pixels"
            )
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
