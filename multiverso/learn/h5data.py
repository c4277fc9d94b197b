"""`H5Data`, batches from HDF5 files, which are checked, read ahead and cached."""

import contextlib
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from multiverso._extras import LEARN, needs
from multiverso._native import files, places
from multiverso._native.arguments import integer
from multiverso.learn._input import InputError, as_input_error, first_line
from multiverso.learn.data import Data, Nested, mapped

__all__ = ["H5Data"]


class H5Data(Data):
    """Batches from HDF5 files with a dataset of features and one of labels.

    A group instead of a dataset gives a tuple of arrays, in alphabetical order of their names; a
    group in that group gives a nested tuple.

    Parameters
    ----------
    batch_size : int
        Samples per batch.
    cache : path, optional
        A local folder to which each file is copied at the first read, for files on a network file
        system. The folder is created if needed. A file that has changed is copied again.
    preloading : int, optional
        The number of files that a thread reads ahead; 0, the default, uses no thread.
    features_name, labels_name : str, optional
        Names of the datasets or groups.

    Raises
    ------
    InputError
        If `batch_size` or `preloading` is invalid. Files are checked when they are read.

    Examples
    --------
    >>> import h5py  # H5Data needs it
    >>> from multiverso.learn import H5Data
    >>> data = H5Data(batch_size=100, preloading=1)
    >>> data.set_file_names(["train_0.h5", "train_1.h5"])

    """

    def __init__(
        self,
        batch_size: int,
        cache: str | os.PathLike[str] | None = None,
        preloading: int = 0,
        features_name: str = "features",
        labels_name: str = "labels",
    ) -> None:
        _h5py()
        super().__init__(batch_size)
        with as_input_error():
            self.cache = Path(places.path(cache, "cache")) if cache else None
            self.preloading = integer(preloading, "preloading", 0)
        self.features_name = features_name
        self.labels_name = labels_name

    def load_data(self, file_name: str) -> tuple[Nested, Nested]:
        """Return features and labels of a file; raise InputError if it cannot be read or used."""
        path = file_name if self.cache is None else _cached(file_name, self.cache)
        with _opened(path, file_name) as file:
            names = (self.features_name, self.labels_name)
            features, labels = (_datasets(file, name, file_name) for name in names)
            return mapped(np.asarray, features), mapped(np.asarray, labels)

    def count_data(self) -> int | None:
        """Return the number of samples according to the headers of the files."""
        return sum(self._samples_and_shapes(name)[0] for name in self.file_names)

    def check(self, file_names: Sequence[str]) -> None:
        """Raise InputError if a file is missing, corrupt or empty, or the shapes of samples differ.

        Only the headers of the files are read.
        """
        first: tuple[str, Any] | None = None
        for name in file_names:
            _, shapes = self._samples_and_shapes(name)
            first = first or (name, shapes)
            if shapes != first[1]:
                raise InputError(
                    f"cannot use {name}: expected samples of the shapes {first[1]}, as in "
                    f"{first[0]}, received {shapes}"
                )

    def _load_files(self) -> Iterator[tuple[Nested, Nested]]:
        if not self.preloading:
            yield from super()._load_files()
            return
        names = iter(self.file_names)
        reader = ThreadPoolExecutor(1, "multiverso-preloading")
        try:
            futures = deque(
                reader.submit(self.load_data, name) for name in islice(names, self.preloading)
            )
            while futures:
                loaded = futures.popleft().result()
                futures.extend(reader.submit(self.load_data, name) for name in islice(names, 1))
                yield loaded
        finally:
            reader.shutdown(cancel_futures=True)

    def _samples_and_shapes(self, name: str) -> tuple[int, list[tuple[int, ...]]]:
        """Return the number of samples in a file, and the shapes of a sample."""
        sizes, shapes = {}, []
        with _opened(name, name) as file:
            for key in (self.features_name, self.labels_name):
                datasets: list[Any] = []
                mapped(datasets.append, _datasets(file, key, name))
                if not datasets:
                    raise InputError(
                        f"cannot use {name}: expected arrays in its group '{key}', found none"
                    )
                for dataset in datasets:
                    own_key = dataset.name.strip("/")
                    if not dataset.shape or dataset.dtype.kind not in "biuf":
                        raise InputError(
                            f"cannot use {name}: expected numbers with one row for each sample in "
                            f"'{own_key}', found {dataset.dtype} of shape {dataset.shape}"
                        )
                    sizes[own_key] = dataset.shape[0]
                    shapes.append(dataset.shape[1:])
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{size} in '{key}'" for key, size in sizes.items())
            raise InputError(
                f"cannot use {name}: expected as many labels as features, found {found}"
            )
        size = next(iter(sizes.values()))
        if size == 0:
            raise InputError(
                f"cannot use {name}: expected samples, found 0 in '{self.features_name}'"
            )
        return size, shapes


def _h5py() -> Any:
    with needs("H5Data", **LEARN):
        import h5py  # here, so that importing multiverso.learn does not need it
    return h5py


@contextlib.contextmanager
def _opened(path: str | Path, name: str) -> Iterator[Any]:
    """Open the file at `path`, the file `name` or a copy of it, which errors name."""
    with as_input_error(f"cannot read {name}", ValueError):
        local = places.path(path, "file")
    try:
        with _h5py().File(local, "r") as file:
            yield file
    except OSError as error:
        exists = Path(local).exists()
        reason = f" as HDF5: {first_line(error)}" if exists else ": no such file"
        raise InputError(f"cannot read {name}{reason}") from error


def _datasets(group: Any, key: str, name: str) -> Nested:
    """Return the dataset `key`, or for a group a nested list; `name` is the file in messages."""
    if key not in group:
        found = ", ".join(sorted(group)[:8]) or "nothing"
        raise InputError(f"cannot use {name}: expected a dataset or group '{key}', found {found}")
    member = group[key]
    is_group = isinstance(member, _h5py().Group)
    return [_datasets(member, each, name) for each in sorted(member)] if is_group else member


def _cached(name: str, folder: Path) -> Path:
    """Return the path of a copy of the file in `folder`, made if there is none of this version."""
    with as_input_error(f"cannot copy {name} to the cache {folder}", OSError, ValueError):
        source = Path(places.path(name, "file"))
        stat = source.stat()
        key = f"{source} {stat.st_size} {stat.st_mtime_ns}"
        copy = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}-{source.name}"
        if not copy.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # Several ranks may copy the file at once, so the copy must appear complete.
            with source.open("rb") as original, files.replacing(copy) as target:
                shutil.copyfileobj(original, target)
    return copy
