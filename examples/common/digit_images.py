"""Images of handwritten digits for training: 1 797 small ones, or a copy of MNIST.

`load_digit_images()` needs no download: digits.npz has 1 797 digits of 8 x 8 pixels. They are the
test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, UCI
Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0), as in scikit-learn.
`load_digit_images(path)` reads the 70 000 digits of MNIST, or other data in one of its formats: the
archive mnist.npz, or a folder with the four IDX files, gzipped or not.
"""

import dataclasses
import gzip
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

IDX_UBYTE = 8  # the type code of bytes in an IDX file
IDX_NAMES = {
    "x_train": ("train-images-idx3-ubyte", 3),
    "y_train": ("train-labels-idx1-ubyte", 1),
    "x_test": ("t10k-images-idx3-ubyte", 3),
    "y_test": ("t10k-labels-idx1-ubyte", 1),
}
MAX_LABEL = 255
CHUNK_BYTES = 1 << 24
BUNDLED = Path(__file__).with_name("digits.npz")
READ_ERRORS = (OSError, EOFError, ValueError, MemoryError, zipfile.BadZipFile, zlib.error)


class DataError(Exception):
    """No usable data is available; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Images with their labels.

    Attributes
    ----------
    images : array of float32, shape (n, pixels)
        Brightness from 0 to 1, one image per row.
    labels : array of int64, shape (n,)
        The class of each image.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class DigitImages:
    """Images of `classes` classes, always divided into the same three parts."""

    train: Part
    valid: Part
    test: Part
    classes: int


def load_digit_images(path: str | Path | None = None, smallest_side: int = 0) -> DigitImages:
    """Load the digits beside this file, or MNIST from `path`.

    Parameters
    ----------
    path : path, optional
        An archive mnist.npz with the arrays x_train, y_train, x_test and y_test, or a folder with
        the four IDX files under their usual names, with or without the suffix .gz. Images are
        bytes, or floats from 0 to 1; the last sixth of the training images is for validation.
    smallest_side : int, optional
        If given, images must be squares with sides of at least this many pixels.

    Raises
    ------
    DataError
        If the data is missing, corrupt, truncated or unsuitable.
    """
    if path is None:
        return _bundled_digits()
    path = Path(path)
    try:
        arrays = _read_idx_folder(path) if path.is_dir() else _read_npz(path)
        return _mnist(arrays, smallest_side)
    except DataError as error:
        raise DataError(f"cannot use {path}: {error}") from error
    except FileNotFoundError as error:
        raise DataError(f"cannot use {path}: no such file or folder") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _bundled_digits() -> DigitImages:
    """Split the 1 797 digits: of every nine, three are for testing and one for validation.

    The digits of a writer are consecutive, in runs of ten with one of each class. Nine and ten are
    coprime, so every part contains all classes and all writers.
    """
    with np.load(BUNDLED, allow_pickle=False) as digits:
        images = (digits["images"] / 16).astype(np.float32)
        labels = digits["labels"].astype(np.int64)
    position = np.arange(len(labels)) % 9
    test, valid = position % 3 == 0, position == 1
    train = ~(test | valid)
    return DigitImages(
        *(Part(images[part], labels[part]) for part in (train, valid, test)), classes=10
    )


def _mnist(arrays: dict[str, np.ndarray], smallest_side: int) -> DigitImages:
    """Check, scale and split the four arrays of MNIST."""
    train = _checked_part(arrays, "train")
    test = _checked_part(arrays, "test")
    if len(train) < 2:
        raise DataError(f"expected two or more training images, found {len(train)}")
    pixels = train.images.shape[1]
    if pixels != test.images.shape[1]:
        raise DataError(
            f"expected training and test images of one size, found {pixels} and"
            f" {test.images.shape[1]} pixels"
        )
    if smallest_side and (math.isqrt(pixels) ** 2 != pixels or pixels < smallest_side**2):
        raise DataError(
            f"expected square images of {smallest_side} x {smallest_side} pixels or more,"
            f" received {pixels} pixels"
        )
    cut = len(train) - max(1, len(train) // 6)
    return DigitImages(
        Part(train.images[:cut], train.labels[:cut]),
        Part(train.images[cut:], train.labels[cut:]),
        test,
        classes=1 + int(max(train.labels.max(), test.labels.max())),
    )


def _checked_part(arrays: dict[str, np.ndarray], part: str) -> Part:
    images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if images.ndim < 2 or labels.ndim != 1 or len(images) != len(labels) or images.size == 0:
        raise DataError(
            f"expected as many images in x_{part} as labels in y_{part}, found shapes"
            f" {images.shape} and {labels.shape}"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > MAX_LABEL:
        raise DataError(f"expected labels from 0 to {MAX_LABEL} in y_{part}, found other values")
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / np.float32(255)
    elif images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        images = images.astype(np.float32)
    else:
        raise DataError(
            f"expected bytes or floats from 0 to 1 in x_{part}, found other {images.dtype} values"
        )
    return Part(images.reshape(len(images), -1), labels.astype(np.int64))


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        # Unpickling an untrusted file could run arbitrary code.
        archive = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise
    except READ_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError("it is not an .npz archive, or it is truncated") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError("expected an .npz archive, found a single array")
    with archive:
        return {name: _read_member(archive, name) for name in IDX_NAMES}


def _read_member(archive: Any, name: str) -> np.ndarray:
    if name not in archive.files:
        found = ", ".join(archive.files[:8]) or "none"
        raise DataError(f"the archive has no array {name} (found: {found})")
    try:
        array = archive[name]
    except READ_ERRORS as error:
        raise DataError(f"its array {name} cannot be read, the archive is corrupt") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"its member {name} is not an array")
    return array


def _read_idx_folder(folder: Path) -> dict[str, np.ndarray]:
    return {name: _read_idx(_find(folder, file), ndim) for name, (file, ndim) in IDX_NAMES.items()}


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise DataError(f"the folder has neither {name} nor {name}.gz")


def _read_idx(path: Path, ndim: int) -> np.ndarray:
    """Read one IDX file.

    The file has two zeros, a type code and the number of dimensions, one byte each; each dimension
    as a big-endian 32-bit number; and the elements in C order.
    """
    with path.open("rb") as probe:
        gzipped = probe.read(2) == b"\x1f\x8b"  # some programs unpack a file but keep .gz
    try:
        with gzip.open(path) if gzipped else path.open("rb") as file:
            magic = file.read(4)
            if magic != bytes([0, 0, IDX_UBYTE, ndim]):
                raise DataError(f"{path.name} is not an IDX file of bytes in {ndim} dimensions")
            header = file.read(4 * ndim)
            if len(header) < 4 * ndim:
                raise DataError(f"{path.name} is truncated")
            shape = tuple(int(n) for n in np.frombuffer(header, ">u4"))
            expected = math.prod(shape)
            data = bytearray()  # read in chunks: the header may claim more than fits into memory
            while len(data) <= expected and (chunk := file.read(CHUNK_BYTES)):
                data += chunk
    except READ_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{path.name} is corrupt or truncated") from error
    if len(data) < expected:
        raise DataError(
            f"{path.name} is truncated: expected {expected} bytes of data, found {len(data)}"
        )
    if len(data) > expected:
        raise DataError(f"{path.name} has more data than its header says")
    return np.frombuffer(data, np.uint8).reshape(shape)
