"""Settings, data augmentation and options that the residual-network examples share.

Source of the settings: K. He, X. Zhang, S. Ren and J. Sun, Deep Residual Learning for Image
Recognition, 2015, section 4.2.
"""

import argparse
from pathlib import Path

import cifar10
import numpy as np
from command_line import natural, positive, write_json

FILTERS = 16  # in the first third of the network; each further third has twice as many
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
DROPS = (0.5, 0.75)  # fractions of the epochs after which the learning rate drops to a tenth
TEST_BATCH = 100
TIMEOUT = 3600  # seconds that workers wait for each other while one compiles or tests
# The default depth and epochs: those of the paper, and for the generated images.
PAPER_DEFAULTS, SMALL_DEFAULTS = (20, 82), (8, 5)


def learning_rate(args, epoch):
    """Return the learning rate of an epoch, counted from 0."""
    num_drops = sum(epoch >= fraction * args.epochs for fraction in DROPS)
    return args.learning_rate * 0.1**num_drops


def order_of(args, epoch, count):
    """Return the order of the `count` images in an epoch, the same on all workers."""
    return np.random.default_rng((args.seed, epoch)).permutation(count)


def augmented(images, args, epoch, index):
    """Return a batch shifted by up to four pixels, with about half of the images mirrored.

    Parameters
    ----------
    images : array of float32, shape (n, channels, rows, columns)
        The batch.
    args : argparse.Namespace
        Options, of which the seed is used.
    epoch, index : int
        The batch's position in training, which determines the random shifts.
    """
    rng = np.random.default_rng((args.seed, epoch, index))
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    result = np.empty_like(images)
    side = images.shape[2]
    for i, (row, column, mirror) in enumerate(rng.integers(0, (9, 9, 2), (len(images), 3))):
        crop = padded[i, :, row : row + side, column : column + side]
        result[i] = crop[:, :, ::-1] if mirror else crop
    return result


def depth(text):
    """Convert an option to a valid depth: 8, 14, 20 and so on."""
    value = int(text)
    if value < 8 or value % 6 != 2:
        raise ValueError(text)
    return value


def parse_arguments(description):
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--data", type=Path, metavar="FOLDER", help="folder with the binary version of CIFAR-10")
    option("--samples", type=positive(int), default=1000, help="to generate (default %(default)s)")
    option(
        "--depth",
        type=depth,
        help=f"6 n + 2 (default {PAPER_DEFAULTS[0]} with --data, else {SMALL_DEFAULTS[0]})",
    )
    option(
        "--epochs",
        type=positive(int),
        help=f"(default {PAPER_DEFAULTS[1]} with --data, else {SMALL_DEFAULTS[1]})",
    )
    option("--batch-size", type=positive(int), default=128, help="(default %(default)s)")
    option("--learning-rate", type=positive(float), default=0.1, help="(default %(default)s)")
    option("--freq", type=positive(int), default=1, help="batches between syncs")
    option("--seed", type=int, default=0, help="(default %(default)s)")
    option("--sync", action="store_true", help="lock-step: runs are bitwise identical")
    option("--staleness", type=natural, metavar="N", help="workers run at most N rounds ahead")
    option("--test-each", action="store_true", help="also test after each epoch")
    option("--plain", action="store_true", help="train in one process without Multiverso")
    option("--json", metavar="FILE", type=Path, help="also write the result to FILE")
    args = parser.parse_args()
    default = PAPER_DEFAULTS if args.data else SMALL_DEFAULTS
    args.depth, args.epochs = args.depth or default[0], args.epochs or default[1]
    return args


def load(args):
    """Return the images of CIFAR-10, or generated ones without --data."""
    if args.data:
        return cifar10.load_cifar10(args.data)
    return cifar10.generate(args.samples, max(1, args.samples // 5), args.seed)


def report(args, result):
    """Print the result and write it to --json; return the exit code."""
    print(
        "test error {test_error:.2%} on {data} images, {seconds:.2f} seconds"
        " (workers {workers}, updates {updates}, epochs {epochs}, depth {depth})".format(**result)
    )
    return write_json(result, args.json)
