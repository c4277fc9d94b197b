"""The images of CIFAR-10, read from its binary version, or generated images of the same shape.

`load_cifar10(folder)` reads the contents of cifar-10-binary.tar.gz: data_batch_1.bin to
data_batch_5.bin and test_batch.bin. Each is a sequence of records; a record has one byte for the
label, 0 to 9, and 3 072 for the pixels: red, green, blue, each 32 rows of 32. (The other version of
CIFAR-10 consists of pickles, which can run arbitrary code.)

`generate(...)` needs no files. Its classes are distinguishable but have no meaning.
"""

import dataclasses
from pathlib import Path

import numpy as np

SHAPE = (3, 32, 32)
CLASSES = 10
RECORD_BYTES = 1 + int(np.prod(SHAPE))
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
FOLDER = "cifar-10-batches-bin"  # in the archive


class DataError(Exception):
    """No usable data is available; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Images:
    """Images with their labels.

    Attributes
    ----------
    name : str
        "CIFAR-10" or "generated".
    train, test : array of float32, shape (n, 3, 32, 32)
        Brightness from 0 to 1, minus the mean training image.
    train_labels, test_labels : array of int32, shape (n,)
        The class of each image, 0 to 9.
    """

    name: str
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def load_cifar10(folder: Path) -> Images:
    """Read the six files from `folder`, or from the archive's folder within it.

    Raises
    ------
    DataError
        If a file is missing, truncated or invalid.
    """
    if (folder / FOLDER).is_dir():
        folder = folder / FOLDER
    parts = [_read(folder / name) for name in TRAIN_FILES]
    train = np.concatenate([pixels for pixels, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return _centered("CIFAR-10", train, labels, *_read(folder / TEST_FILE))


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels of shape (n, 3, 32, 32) and labels of one file, both as bytes."""
    try:
        content = np.fromfile(path, np.uint8)
    except FileNotFoundError as error:
        raise DataError(f"cannot use {path}: no such file") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if content.size == 0 or content.size % RECORD_BYTES:
        raise DataError(
            f"cannot use {path}: expected records of {RECORD_BYTES} bytes each, found "
            f"{content.size} bytes"
        )
    records = content.reshape(-1, RECORD_BYTES)
    if records[:, 0].max() >= CLASSES:
        raise DataError(
            f"cannot use {path}: expected labels from 0 to {CLASSES - 1}, found"
            f" {records[:, 0].max()}"
        )
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def generate(train: int = 1000, test: int = 200, seed: int = 0) -> Images:
    """Generate images of ten classes, each of which is a distinct pattern with noise.

    A pattern is an 8 x 8 mosaic of colors, shifted in each image by up to two pixels, so that no
    single pixel reveals the class.
    """
    rng = np.random.default_rng(seed)
    mosaics = rng.normal(size=(CLASSES, SHAPE[0], 8, 8)).repeat(4, axis=2).repeat(4, axis=3)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, CLASSES, count).astype(np.uint8)
        shifts = rng.integers(-2, 3, (count, 2))
        patterns = [
            np.roll(mosaics[label], shift, axis=(1, 2))
            for label, shift in zip(labels, shifts, strict=True)
        ]
        noisy = 128 + 40 * np.stack(patterns) + 30 * rng.normal(size=(count, *SHAPE))
        return noisy.clip(0, 255).astype(np.uint8), labels

    return _centered("generated", *draw(train), *draw(test))


def _centered(
    name: str,
    train: np.ndarray,
    train_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
) -> Images:
    train_pixels = train.astype(np.float32) / np.float32(255)
    mean = train_pixels.mean(axis=0, dtype=np.float64).astype(np.float32)
    train_pixels -= mean
    return Images(
        name,
        train_pixels,
        train_labels.astype(np.int32),
        test.astype(np.float32) / np.float32(255) - mean,
        test_labels.astype(np.int32),
    )
