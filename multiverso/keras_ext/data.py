"""Each worker's part of the data."""

import numbers
from typing import Any

from multiverso._native import capi
from multiverso.api import current_session
from multiverso.errors import StateError

__all__ = ["shard"]


def shard(*arrays: Any, equal: bool | None = None) -> Any:
    """Return this worker's part of the samples: every num_workers-th, from its own number on.

    So data that are sorted by class are not cut by class. NumPy arrays are not copied.

    Parameters
    ----------
    *arrays : array or None, or dict, list or tuple of them
        Inputs, targets, weights of the samples, and so on, with the samples along the first axis;
        anything that can be cut as ``array[begin:end:step]``, or by its ``iloc`` (pandas) or its
        ``shard`` (tf.data). A list is one of arrays, as for a model of several inputs, or one of
        samples that are numbers or texts.
    equal : bool, optional
        True: all workers get equally many, and up to num_workers - 1 samples at the end are left
        out. In sync mode, where all workers must train equally many batches, that is the default;
        elsewhere every sample goes to some worker.

    Returns
    -------
    array, or tuple of them
        As many as were given.

    Raises
    ------
    ValueError
        If nothing was given, the arrays differ in length, or there is no sample for each worker.
    StateError
        If no session is open, or this rank is no worker.

    Examples
    --------
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.keras_ext import shard
    >>> with mv.session():
    ...     x, y = shard(np.arange(6).reshape(3, 2), np.arange(3))
    ...     x.shape, y.tolist()
    ((3, 2), [0, 1, 2])

    """
    session = current_session()
    worker, workers = session.worker_id, session.num_workers
    if worker < 0:
        msg = "shard: this rank is a server and no worker"
        raise StateError(msg)
    lengths = sorted(set(_lengths(arrays)))
    if not arrays or len(lengths) > 1:
        msg = f"shard: expected arrays of one length, received the lengths {lengths}"
        raise ValueError(msg)
    if equal is None:
        equal = session.options.mode != capi.MV_MODE_ASYNC
    end = None
    if lengths:
        if lengths[0] < workers:
            msg = f"shard: expected a sample for each of {workers} workers, received {lengths[0]}"
            raise ValueError(msg)
        end = lengths[0] - lengths[0] % workers if equal else lengths[0]
    parts = tuple(_part(array, worker, workers, end) for array in arrays)
    return parts[0] if len(parts) == 1 else parts


def _lengths(value: Any) -> list[int]:
    """Return the number of samples of each array in `value`."""
    if value is None or hasattr(value, "as_numpy_iterator"):  # of a tf.data.Dataset
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if _holds_arrays(value):
        return [length for item in value for length in _lengths(item)]
    return [len(value)]


def _holds_arrays(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return not any(isinstance(item, numbers.Number | str | bytes) for item in value)


def _part(value: Any, worker: int, workers: int, end: int | None) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _part(item, worker, workers, end) for key, item in value.items()}
    if _holds_arrays(value):
        return type(value)(_part(item, worker, workers, end) for item in value)
    if hasattr(value, "as_numpy_iterator"):
        return value.shard(workers, worker)
    return getattr(value, "iloc", value)[worker:end:workers]
