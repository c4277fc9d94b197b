"""`Data`, the base class of objects that make batches of the samples in files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from multiverso._native.arguments import integer
from multiverso.learn._input import as_input_error, names_of

__all__ = ["Data", "Nested", "length_of", "mapped"]

#: An array, or nested lists, tuples and dicts of arrays, structured like the inputs of a model.
Nested = Any


class Data:
    """Makes batches of the samples in files. Override `generate_data`, or only `load_data`.

    Each worker has a copy of the object, with its own share of the files.

    Parameters
    ----------
    batch_size : int
        Samples per batch.

    Attributes
    ----------
    file_names : list of str
        The files of this rank, which `set_file_names` sets before training.

    Raises
    ------
    InputError
        If `batch_size` is not a positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> from multiverso.learn import Data
    >>> class Ones(Data):
    ...     def load_data(self, file_name):
    ...         return np.ones((5, 2)), np.ones(5)
    >>> data = Ones(batch_size=4)
    >>> data.set_file_names(["a", "b"])
    >>> [len(features) for features, labels in data.generate_data()]
    [4, 4, 2]

    """

    def __init__(self, batch_size: int) -> None:
        with as_input_error():
            self.batch_size = integer(batch_size, "batch_size", 1)
        self.file_names: list[str] = []

    def set_file_names(self, file_names: Iterable[str]) -> None:
        """Set the files that this object reads."""
        with as_input_error():
            self.file_names = names_of(file_names, "file_names")

    def generate_data(self) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of one pass over the files, at least one, then end.

        A worker calls it once for each epoch, and the master once for each validation.

        Yields
        ------
        tuple
            ``(features, labels)`` or ``(features, labels, sample_weights)``, each an array with one
            row for each sample, or a list, tuple or dict of arrays. All batches have `batch_size`
            samples except the last one: a batch may contain the end of one file and the beginning
            of the next.

        """
        batch: Nested = None
        for samples in self._load_files():
            start, end = 0, length_of(samples)
            while start < end:
                missing = self.batch_size - (0 if batch is None else length_of(batch))
                part = mapped(itemgetter(slice(start, start + missing)), samples)
                batch = (
                    part
                    if batch is None
                    else mapped(lambda *parts: np.concatenate(parts), batch, part)
                )
                start += missing
                if length_of(batch) == self.batch_size:
                    yield batch
                    batch = None
        if batch is not None:
            yield batch

    def _load_files(self) -> Iterator[tuple[Nested, ...]]:
        return map(self.load_data, self.file_names)

    def load_data(self, file_name: str) -> tuple[Nested, ...]:
        """Return features and labels of one file.

        Returns
        -------
        tuple
            ``(features, labels)`` or ``(features, labels, sample_weights)``, each an array with one
            row for each sample, or a list, tuple or dict of arrays: one array for each input or
            output of the model, in order or by name.

        Raises
        ------
        NotImplementedError
            If a subclass overrides neither this nor `generate_data`.

        """
        msg = f"{type(self).__name__}: expected generate_data() or load_data() to be overridden"
        raise NotImplementedError(msg)

    def count_data(self) -> int | None:
        """Return the number of samples in the files for the progress bar, or None by default."""
        return None

    def check(self, file_names: Sequence[str]) -> None:
        """Raise InputError if a file cannot be used; here a no-op.

        Before a framework is imported, the master calls it with all files, and each worker with its
        own.
        """


def length_of(data: Nested) -> int:
    """Return the number of samples in an array, or in each array of a list or dict.

    Examples
    --------
    >>> import numpy as np
    >>> from multiverso.learn.data import length_of
    >>> length_of({"pixels": np.zeros((8, 28, 28)), "age": np.zeros(8)})
    8

    """
    while isinstance(data, list | tuple | dict):
        data = next(iter(data.values())) if isinstance(data, dict) else data[0]
    return int(np.shape(data)[0])


def mapped(function: Callable[..., Any], *structures: Nested) -> Nested:
    """Call `function` with the arrays at each place of the structures; return a like structure.

    Lists become tuples, because Keras on TensorFlow takes a list for an array.

    Examples
    --------
    >>> import numpy as np
    >>> from multiverso.learn.data import mapped
    >>> mapped(np.sum, [np.ones(3), {"a": np.ones(2)}])[1]["a"].item()
    2.0

    """
    first = structures[0]
    if isinstance(first, dict):
        return {name: mapped(function, *(part[name] for part in structures)) for name in first}
    if isinstance(first, list | tuple):
        return tuple(mapped(function, *parts) for parts in zip(*structures, strict=True))
    return function(*structures)
