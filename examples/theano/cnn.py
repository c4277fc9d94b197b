"""A convolutional network on handwritten digits, trained by all workers of an MPI job.

    python examples/theano/cnn.py
    mpirun -np 4 python examples/theano/cnn.py
    mpirun -np 4 python examples/theano/cnn.py --sync

The convolutions are written as matrix products, which PyTensor, Aesara and Theano all support. The
workers divide each epoch's batches among themselves, so the number of samples seen does not depend
on the number of workers. The lines that make it parallel are marked `MULTIVERSO`.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import multiverso as mv
from multiverso.theano_ext import sharedvar

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from command_line import make_parser, positive, report  # noqa: E402
from digit_images import DataError, DigitImages, load_digit_images  # noqa: E402
from theano_backend import T, theano  # noqa: E402

SMALLEST_SIDE = 8  # pixels that the two convolutions need


class ConvolutionalNetwork:
    """A 3 x 3 convolution, 2 x 2 max pooling, a 2 x 2 convolution and a softmax layer.

    Parameters
    ----------
    mean_image : array of float32, shape (side * side,)
        Subtracted from each image.
    classes : int
        Number of labels.
    channels : tuple of int
        Output channels of the two convolutions.
    seed : int
        Seed of the initial weights.
    """

    def __init__(self, mean_image, classes, channels, seed):
        self.mean_image = mean_image
        self.side = math.isqrt(len(mean_image))
        pooled_side = (self.side - 2) // 2
        rng = np.random.default_rng(seed)

        def weights(inputs, outputs, name):
            start = rng.normal(0, math.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
            # MULTIVERSO: mv_shared instead of shared: all workers train the master's values.
            return sharedvar.mv_shared(start, name=name, borrow=True)

        def bias(outputs, name):
            # MULTIVERSO: mv_shared instead of shared.
            return sharedvar.mv_shared(np.zeros(outputs, np.float32), name=name, borrow=True)

        first, second = channels
        self.W1, self.b1 = weights(9, first, "W1"), bias(first, "b1")
        self.W2, self.b2 = weights(4 * first, second, "W2"), bias(second, "b2")
        num_features = (pooled_side - 1) ** 2 * second
        self.W3, self.b3 = weights(num_features, classes, "W3"), bias(classes, "b3")
        self.parameters = [self.W1, self.b1, self.W2, self.b2, self.W3, self.b3]

    def scores(self, x):
        """Return the log probabilities up to a constant per image."""
        images = T.reshape(x - self.mean_image, (x.shape[0], self.side, self.side, 1))
        features, side = convolution(images, self.side, 3, self.W1, self.b1)
        features, side = max_pool(features, side)
        features, side = convolution(features, side, 2, self.W2, self.b2)
        return T.dot(T.reshape(features, (x.shape[0], -1)), self.W3) + self.b3

    def cost(self, x, y):
        """Return the mean negative log-likelihood of the labels `y`."""
        scores = self.scores(x)
        # Subtracting the largest score prevents overflow and changes neither value nor gradient.
        top = theano.gradient.disconnected_grad(T.max(scores, axis=1, keepdims=True))
        scores = scores - top
        log_p = scores - T.log(T.sum(T.exp(scores), axis=1, keepdims=True))
        return -T.mean(log_p[T.arange(y.shape[0]), y])

    def trainer(self, images, labels, batch_size, learning_rate):
        """Return a function that trains on the batch with a given index."""
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
        """Return a function that returns the cost and the error rate on a part of the data."""
        x, y = T.matrix("x"), T.lvector("y")
        error = T.mean(T.neq(T.argmax(self.scores(x), axis=1), y))
        evaluate = theano.function([x, y], [self.cost(x, y), error])
        return lambda: tuple(map(float, evaluate(part.images, part.labels)))


def convolution(images, side, width, weights, bias):
    """Return the rectified convolution with windows of `width`, and the side of its images.

    The pixels of each window form a row, so that all windows are one matrix product.
    """
    new_side = side - width + 1
    shifts = [(i, j) for i in range(width) for j in range(width)]
    views = [images[:, i : i + new_side, j : j + new_side] for i, j in shifts]
    windows = T.concatenate(views, axis=3)
    rows = T.reshape(windows, (-1, windows.shape[3]))
    features = T.maximum(T.dot(rows, weights) + bias, np.float32(0))
    return T.reshape(features, (images.shape[0], new_side, new_side, weights.shape[1])), new_side


def max_pool(images, side):
    """Return the maximum of each 2 x 2 square, and the side of the resulting images."""
    new_side = side // 2
    cropped = images[:, : 2 * new_side, : 2 * new_side]
    rows = T.maximum(cropped[:, 0::2], cropped[:, 1::2])
    return T.maximum(rows[:, :, 0::2], rows[:, :, 1::2]), new_side


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
    # disable=None shows the bar only on a terminal.
    progress = tqdm(total=args.epochs, unit="epoch", disable=None if master else True)
    for _ in range(args.epochs):
        begin = time.perf_counter()
        # MULTIVERSO: each worker takes every num_workers-th batch.
        for first in range(0, batches, mv.num_workers()):
            index = first + mv.worker_id()
            if index < batches:
                update(index)
            # MULTIVERSO: send this batch's changes and fetch the other workers' changes. With
            # --sync, a worker without a batch also does so, because a round needs all workers.
            sharedvar.sync_all_mv_shared_vars()
        # MULTIVERSO: wait until all workers have added the epoch's batches, then fetch the result.
        mv.barrier()
        sharedvar.sync_all_mv_shared_vars()
        epoch_seconds.append(time.perf_counter() - begin)
        if master:  # MULTIVERSO: one worker validates and prints for all.
            history.append(validate())
            progress.set_postfix_str(f"validation error {history[-1][1]:.2%}", refresh=False)
            progress.update()
        # MULTIVERSO: hold the next epoch until the master has validated this one.
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


def parse_arguments():
    """Return the command-line options."""
    parser = make_parser(__doc__, epochs=50, batch_size=20, learning_rate=0.1)
    option = parser.add_argument
    option("--data", metavar="FILE", help="mnist.npz or the folder of MNIST's four IDX files")
    option(
        "--channels",
        type=positive(int),
        nargs=2,
        default=(8, 16),
        metavar="N",
        help="channels of the two convolutions (default 8 16)",
    )
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    return parser.parse_args()


def main():
    """Load the data, train and report; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data, SMALLEST_SIDE)
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    # MULTIVERSO: the processes of the job join one session for this block.
    with mv.session(sync=args.sync):
        result = train(args, data)
    return 0 if result is None else report(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
