"""Stands in for Multiverso in one process: its names as used here, without communication."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def session(**_options: Any) -> Iterator[None]:
    """Do nothing: one process needs no session."""
    yield


def worker_id() -> int:
    """Return the id of the only worker."""
    return 0


def num_workers() -> int:
    """Return the number of workers, which is 1."""
    return 1


def is_master_worker() -> bool:
    """Return True, because the only worker is the master."""
    return True


def barrier() -> None:
    """Return at once, since no other worker exists."""


class ArrayTable:
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
    """Return a plain shared variable."""
    from theano_backend import theano

    return theano.shared(value, **kwargs)


def sync_all_mv_shared_vars() -> None:
    """Do nothing."""


class ParamManager:
    """A parameter manager that has nothing to sync."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def sync(self) -> None:
        """Do nothing."""
