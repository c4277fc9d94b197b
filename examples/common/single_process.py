"""What an example uses in place of Multiverso when one process trains alone: the same names."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def session(**_options: Any) -> Iterator[None]:
    """Begin and end nothing."""
    yield


def worker_id() -> int:
    """Return the number of this worker: the only one."""
    return 0


def num_workers() -> int:
    """Return the number of workers."""
    return 1


def is_master_worker() -> bool:
    """Tell whether this worker is the one that reports."""
    return True


def barrier() -> None:
    """Wait for nobody."""


class ArrayTableHandler:
    """A table that only this process adds to."""

    def __init__(self, size: int, *, dtype: str = "float32") -> None:
        self._values = np.zeros(size, dtype)

    def add(self, data: Any) -> None:
        """Add `data` to the table."""
        self._values += data

    def get(self) -> np.ndarray:
        """Return a copy of the table."""
        return self._values.copy()


def mv_shared(value: Any, **kwargs: Any) -> Any:
    """Make a plain shared variable."""
    from theano_backend import theano

    return theano.shared(value, **kwargs)


def sync_all_mv_shared_vars() -> None:
    """Synchronise with nobody."""


class ParamManager:
    """Keeps a model in step with nobody's."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def sync_all_param(self) -> None:
        """Synchronise with nobody."""
