"""Batches from HDF5 files: checked before training, read ahead in a thread, cached near by."""

import hashlib
import os
import queue
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from multiverso.learn._errors import InputError, first_line
from multiverso.learn.data import Data, Nested

__all__ = ["H5Data"]

#: Seconds between two looks at whether the reader of a queue is still there.
_PATIENCE: Final = 0.2


class H5Data(Data):
    """Batches from HDF5 files with a dataset of features and one of labels.

    Where there is a group instead of a dataset, its members are a list of arrays, in alphabetical
    order of their names, and groups in it are lists again.

    Parameters
    ----------
    batch_size : int
        Samples in a batch.
    cache : path, optional
        A local directory to which each file is copied when it is first read, such as a fast disk
        of a machine whose files lie on a network. It is made if it is not there. A file that has
        changed since is copied anew.
    preloading : int, optional
        How many files a thread reads ahead; 0, the default, reads without a thread.
    features_name, labels_name : str, optional
        Names of the datasets or groups.

    Raises
    ------
    InputError
        If `batch_size` or `preloading` is no such number. Files are looked at when they are read.

    Examples
    --------
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
        super().__init__(batch_size)
        if isinstance(preloading, bool) or not hasattr(preloading, "__index__") or preloading < 0:
            msg = f"preloading: expected a number of files, 0 or more, received {preloading!r}"
            raise InputError(msg)
        self.cache = Path(cache) if cache else None
        self.preloading = int(preloading)
        self.features_name = features_name
        self.labels_name = labels_name

    def load_data(self, file_name: str) -> tuple[Nested, Nested]:
        """Return features and labels of one file.

        Raises
        ------
        InputError
            If it cannot be read, or has no such datasets.

        """
        path = file_name if self.cache is None else _cached(file_name, self.cache)
        try:
            with h5py.File(path, "r") as file:
                features = _read(_member(file, self.features_name, file_name))
                return features, _read(_member(file, self.labels_name, file_name))
        except OSError as error:
            raise _unreadable(file_name, error) from error

    def count_data(self) -> int | None:
        """Return the number of samples in the files, without reading them."""
        return sum(self._length(name)[0] for name in self.file_names)

    def check(self, file_names: Sequence[str]) -> None:
        """Raise InputError if a file is missing, broken, empty, or of other shapes than the rest.

        Reads no more than the files' headers.
        """
        first: tuple[str, Any] | None = None
        for name in file_names:
            _, shapes = self._length(name)
            if first is None:
                first = name, shapes
            elif shapes != first[1]:
                msg = (
                    f"cannot use {name}: expected samples of the shapes {first[1]}, as in "
                    f"{first[0]}, received {shapes}"
                )
                raise InputError(msg)

    def _loaded(self) -> Iterator[tuple[Nested, Nested]]:
        return (
            _read_ahead(super()._loaded(), self.preloading)
            if self.preloading
            else super()._loaded()
        )

    def _length(self, name: str) -> tuple[int, list[tuple[int, ...]]]:
        """Return the number of samples in a file, and the shapes of one."""
        try:
            with h5py.File(name, "r") as file:
                groups = {
                    key: list(_datasets(_member(file, key, name)))
                    for key in (self.features_name, self.labels_name)
                }
                sizes = {}
                shapes = []
                for key, datasets in groups.items():
                    if not datasets:
                        msg = f"cannot use {name}: expected arrays in its group '{key}', found none"
                        raise InputError(msg)
                    for dataset in datasets:
                        sizes[dataset.name.strip("/")] = _samples(dataset, name)
                        shapes.append(dataset.shape[1:])
        except OSError as error:
            raise _unreadable(name, error) from error
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{size} in '{key}'" for key, size in sizes.items())
            msg = f"cannot use {name}: expected as many labels as features, found {found}"
            raise InputError(msg)
        size = next(iter(sizes.values()))
        if size == 0:
            msg = f"cannot use {name}: expected samples, found 0 in '{self.features_name}'"
            raise InputError(msg)
        return size, shapes


def _member(file: h5py.File, key: str, name: str) -> Any:
    if key not in file:
        found = ", ".join(sorted(file)[:8]) or "nothing"
        msg = f"cannot use {name}: expected a dataset or group '{key}', found {found}"
        raise InputError(msg)
    return file[key]


def _samples(dataset: Any, name: str) -> int:
    if dataset.shape is None or not dataset.shape or dataset.dtype.kind not in "biuf":
        msg = (
            f"cannot use {name}: expected numbers with one row for each sample in "
            f"'{dataset.name.strip('/')}', found {dataset.dtype} of shape {dataset.shape}"
        )
        raise InputError(msg)
    return int(dataset.shape[0])


def _datasets(member: Any) -> Iterator[Any]:
    if isinstance(member, h5py.Group):
        for key in sorted(member):
            yield from _datasets(member[key])
    else:
        yield member


def _read(member: Any) -> Nested:
    if isinstance(member, h5py.Group):
        return [_read(member[key]) for key in sorted(member)]
    return np.asarray(member[...])


def _unreadable(name: str, error: OSError) -> InputError:
    if not Path(name).exists():
        return InputError(f"cannot read {name}: there is no such file")
    return InputError(f"cannot read {name} as HDF5: {first_line(error)}")


def _cached(name: str, folder: Path) -> Path:
    """Return the path of a copy of the file that is as new as it, made here if there is none."""
    source = Path(name).absolute()
    try:
        state = source.stat()
        key = f"{source} {state.st_size} {state.st_mtime_ns}"
        copy = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}-{source.name}"
        if not copy.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # Several ranks of a machine may copy it at once: whole at any moment.
            unfinished = copy.with_name(f".{copy.name}.{os.getpid()}")
            try:
                shutil.copyfile(source, unfinished)
                unfinished.replace(copy)
            finally:
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or first_line(error)
        msg = f"cannot copy {name} to the cache {folder}: {reason}"
        raise InputError(msg) from error
    return copy


def _read_ahead(
    items: Iterator[tuple[Nested, Nested]], count: int
) -> Iterator[tuple[Nested, Nested]]:
    """Yield what `items` yields, taken from it by a thread that is `count` items ahead."""
    ready: queue.Queue[Any] = queue.Queue(count)
    gone = threading.Event()
    end = object()

    def put(item: object) -> bool:
        while not gone.is_set():
            try:
                ready.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            if all(put((item, None)) for item in items):
                put((end, None))
        except Exception as error:
            put((end, error))

    thread = threading.Thread(target=read, name="multiverso-preloading", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
    finally:
        gone.set()
        thread.join()
