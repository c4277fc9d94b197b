#!/usr/bin/env python
"""Write images of handwritten digits to HDF5 files, and lists of the files for MPIDriver.py.

    python models/get_mnist.py                        # 1 797 small digits, in 24 and 4 files
    python models/get_mnist.py --data mnist.npz       # MNIST: the archive, or a folder of IDX files
    python models/get_mnist.py 8 2                    # numbers of files for training and test

Each file has `features`, n x 28 x 28 x 1 from 0 to 1, and one-hot `labels`, n x 10.
"""

import argparse
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "common"))
from digit_images import DataError, load_digit_images  # noqa: E402

PIXELS = 28  # the side of an image
MARGIN = 4  # around a digit, as in MNIST
SHIFTS = (0, -1, 1, -2, 2)  # pixels


def enlarged(images, side):
    """Return square images enlarged to `side` pixels by linear interpolation."""
    old_side = images.shape[1]
    positions = np.linspace(0, old_side - 1, side)
    low = np.minimum(positions.astype(int), old_side - 2)
    weight = (positions - low).astype(np.float32)
    rows = images[:, low] * (1 - weight[:, None]) + images[:, low + 1] * weight[:, None]
    return rows[:, :, low] * (1 - weight) + rows[:, :, low + 1] * weight


def like_mnist(part):
    """Return the images of a part of the data as 28 x 28 pixels, and their labels."""
    side = round(part.images.shape[1] ** 0.5)
    if side * side != part.images.shape[1]:
        raise DataError(f"expected square images, found {part.images.shape[1]} pixels")
    images = part.images.reshape(-1, side, side)
    if side != PIXELS:
        margins = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
        images = np.pad(enlarged(images, PIXELS - 2 * MARGIN), margins)
    return images, part.labels


def shifted(images, labels):
    """Return 25 copies of each image, shifted by up to two pixels, in random order."""
    copies = [np.roll(images, (down, right), (1, 2)) for down in SHIFTS for right in SHIFTS]
    # Shuffling gives each file, and so each worker, images of all kinds.
    order = np.random.default_rng(0).permutation(len(copies) * len(labels))
    return np.concatenate(copies)[order], np.tile(labels, len(copies))[order]


def write(name, images, labels, num_files):
    """Write mnist_NAME_*.h5 and NAME_mnist.list."""
    names = []
    for index, part in enumerate(np.array_split(np.arange(len(labels)), num_files)):
        names.append(f"mnist_{name}_{index}.h5")
        with h5py.File(names[-1], "w") as file:
            file["features"] = images[part][..., np.newaxis].astype(np.float32)
            file["labels"] = np.eye(10, dtype=np.float32)[labels[part]]
    Path(f"{name}_mnist.list").write_text("".join(f"{line}\n" for line in names), "utf-8")
    print(f"wrote {name}_mnist.list: {len(labels)} images in {num_files} files")


def parse_arguments():
    """Return the command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "train_files", nargs="?", type=int, default=24, help="number of training files (default 24)"
    )
    parser.add_argument(
        "test_files", nargs="?", type=int, default=4, help="number of test files (default 4)"
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="a copy of MNIST")
    return parser.parse_args()


def main():
    """Read the images and write the files; return the exit code."""
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
            f"--data PATH was not given: using the {len(train[1]) + len(test[1])} digits"
            f" of digits.npz, enlarged from 8 x 8 to {PIXELS} x {PIXELS} pixels, with copies of the"
            f" training images shifted by up to {max(SHIFTS)} pixels"
        )
        train = shifted(*train)
    write("train", *train, args.train_files)
    write("test", *test, args.test_files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
