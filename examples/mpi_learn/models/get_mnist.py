#!/usr/bin/env python
"""Write images of handwritten digits to HDF5 files, and lists of these files for MPIDriver.py.

    python models/get_mnist.py                        # scikit-learn's digits, in 24 and 4 files
    python models/get_mnist.py --data mnist.npz       # MNIST: the archive, or a folder of IDX files
    python models/get_mnist.py 8 2                    # number of files for training and test

Each file has `features` (n x 28 x 28 x 1, from 0 to 1) and one-hot `labels` (n x 10).
"""

import argparse
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "common"))
from digit_images import DataError, load_digit_images  # noqa: E402

PIXELS = 28
MARGIN = 4  # around a digit, as in MNIST
SHIFTS = (0, -1, 1, -2, 2)


def stretched(images, side):
    """Return square images enlarged to `side` x `side` pixels by linear interpolation."""
    old = images.shape[1]
    places = np.linspace(0, old - 1, side)
    low = np.minimum(places.astype(int), old - 2)
    weight = (places - low).astype(np.float32)
    rows = images[:, low] * (1 - weight[:, None]) + images[:, low + 1] * weight[:, None]
    return rows[:, :, low] * (1 - weight) + rows[:, :, low + 1] * weight


def like_mnist(part):
    """Return a part of the data as images of 28 x 28 pixels, and its labels."""
    side = round(part.images.shape[1] ** 0.5)
    if side * side != part.images.shape[1]:
        raise DataError(f"expected square images, found {part.images.shape[1]} pixels")
    images = part.images.reshape(-1, side, side)
    if side != PIXELS:
        around = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
        images = np.pad(stretched(images, PIXELS - 2 * MARGIN), around)
    return images, part.labels


def shifted(images, labels):
    """Return the images and their shifts in all directions, shuffled."""
    every = [np.roll(images, (down, right), (1, 2)) for down in SHIFTS for right in SHIFTS]
    # Each worker gets its own files, and each file should contain all kinds of images.
    order = np.random.default_rng(0).permutation(len(every) * len(labels))
    return np.concatenate(every)[order], np.tile(labels, len(every))[order]


def write(name, images, labels, pieces):
    """Write mnist_NAME_*.h5 and NAME_mnist.list."""
    names = []
    for index, part in enumerate(np.array_split(np.arange(len(labels)), pieces)):
        names.append(f"mnist_{name}_{index}.h5")
        with h5py.File(names[-1], "w") as file:
            file["features"] = images[part][..., np.newaxis].astype(np.float32)
            file["labels"] = np.eye(10, dtype=np.float32)[labels[part]]
    Path(f"{name}_mnist.list").write_text("".join(f"{each}\n" for each in names), "utf-8")
    print(f"wrote {name}_mnist.list: {len(labels)} images in {pieces} files")


def parse_arguments():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train_files", nargs="?", type=int, default=24, help="(24)")
    parser.add_argument("test_files", nargs="?", type=int, default=4, help="(4)")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a copy of MNIST")
    return parser.parse_args()


def main():
    """Read the images, write the files; return the exit code."""
    args = parse_arguments()
    try:
        data = load_digit_images(args.data)
        if data.classes > 10:
            raise DataError(f"expected ten classes, found {data.classes}")
        train = [
            np.concatenate(pair)
            for pair in zip(like_mnist(data.train), like_mnist(data.valid), strict=True)
        ]
        test = like_mnist(data.test)
        for count, (_, labels) in ((args.train_files, train), (args.test_files, test)):
            if not 1 <= count <= len(labels):
                raise DataError(f"expected 1 to {len(labels)} files, received {count}")
    except DataError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if args.data is None:
        print(
            f"without --data PATH: {len(train[1]) + len(test[1])} digits of scikit-learn, enlarged "
            f"from 8 x 8 to {PIXELS} x {PIXELS} pixels, those for training also shifted by up to "
            f"{max(SHIFTS)} pixels"
        )
        train = shifted(*train)
    write("train", *train, args.train_files)
    write("test", *test, args.test_files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
