"""What the residual networks of the examples have in common, whatever they are made with.

Source of the settings: K. He, X. Zhang, S. Ren and J. Sun, Deep Residual Learning for Image
Recognition, 2015, section 4.2.
"""

import argparse
import json
import math
from pathlib import Path

import cifar10
import numpy as np

FILTERS = 16  # of the first third; each further third has twice as many
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
STEPS = (0.5, 0.75)  # parts of the epochs after which the learning rate is a tenth of what it was
TEST_BATCH = 100
PATIENCE = 3600  # seconds that workers wait for each other, while one compiles or tests
# Depth and epochs: of the paper, and for the generated images.
WHOLE, SMALL = (20, 82), (8, 5)


def learning_rate(args, epoch):
    """Return the learning rate of an epoch, of those from 0 on."""
    drops = sum(epoch >= part * args.epochs for part in STEPS)
    return args.learning_rate * 0.1**drops


def order_of(args, epoch, count):
    """Return in which order the `count` images of an epoch come, the same for all workers."""
    return np.random.default_rng((args.seed, epoch)).permutation(count)


def augmented(images, args, epoch, index):
    """Return a batch shifted by up to four pixels, and each second image mirrored.

    Parameters
    ----------
    images : array of float32, shape (n, channels, rows, columns)
        The batch.
    args : argparse.Namespace
        With the seed.
    epoch, index : int
        Which batch of which epoch it is: the same one always comes out the same.
    """
    rng = np.random.default_rng((args.seed, epoch, index))
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    result = np.empty_like(images)
    side = images.shape[2]
    for place, (row, column, mirror) in enumerate(rng.integers(0, (9, 9, 2), (len(images), 3))):
        crop = padded[place, :, row : row + side, column : column + side]
        result[place] = crop[:, :, ::-1] if mirror else crop
    return result


def depth(text):
    """Turn an option into a depth of the paper's: 8, 14, 20 and so on."""
    value = int(text)
    if value < 8 or value % 6 != 2:
        raise ValueError(text)
    return value


def positive(kind):
    """Return a function that turns an option into a positive, finite number."""

    def parse(text):
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def parse_arguments(description):
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--data", type=Path, metavar="FOLDER", help="the binary version of CIFAR-10")
    option("--samples", type=positive(int), default=1000, help="to generate (default %(default)s)")
    option(
        "--depth",
        type=depth,
        help=f"6 n + 2 (default {WHOLE[0]} with --data, else {SMALL[0]})",
    )
    option(
        "--epochs",
        type=positive(int),
        help=f"(default {WHOLE[1]} with --data, else {SMALL[1]})",
    )
    option("--batch-size", type=positive(int), default=128, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.1, help="(default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between two syncs")
    option("--seed", type=int, default=0, help="(default %(default)s)")
    option("--sync", action="store_true", help="in lock-step: equal to the bit in every run")
    option("--test-each", action="store_true", help="test after each epoch, not only at the end")
    option("--plain", action="store_true", help="train in one process, without Multiverso")
    option("--json", metavar="FILE", type=Path, help="write the result to this file, too")
    args = parser.parse_args()
    usual = WHOLE if args.data else SMALL
    args.depth, args.epochs = args.depth or usual[0], args.epochs or usual[1]
    return args


def load(args):
    """Return the images: those of CIFAR-10, or generated ones; DataError if there are none."""
    if args.data:
        return cifar10.load_cifar10(args.data)
    return cifar10.generate(args.samples, max(1, args.samples // 5), args.seed)


def report(args, result):
    """Print the result, and write it to the file that was asked for."""
    print(
        "test error {test_error:.2%} on {data} images, {seconds:.2f} seconds"
        " (workers {workers}, updates {updates}, epochs {epochs}, depth {depth})".format(**result)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(result) + "\n")
