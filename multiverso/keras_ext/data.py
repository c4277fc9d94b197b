"""Selects each worker's part of the data."""

import numbers
from typing import Any, TypeVar, overload

from multiverso._native import capi, supported
from multiverso._native.arguments import flag
from multiverso._native.arrays import native_order
from multiverso.api import current_session
from multiverso.errors import StateError

__all__ = ["shard"]

_T = TypeVar("_T")


@overload
def shard(array: _T, /, *, equal: bool | None = None) -> _T: ...
@overload
def shard(*arrays: _T, equal: bool | None = None) -> tuple[_T, ...]: ...
def shard(*arrays: Any, equal: bool | None = None) -> Any:
    """Return this worker's part of the samples: every num_workers-th, starting at its worker id.

    With this step, each part of data sorted by class has all classes. NumPy arrays are not copied,
    unless their bytes are in the other order than the machine's, which frameworks do not take.

    Parameters
    ----------
    *arrays : array or None, or dict, list or tuple of them
        Inputs, targets, sample weights and so on, with the samples along the first axis: anything
        that supports ``array[begin:end:step]``, ``iloc`` (pandas) or ``shard`` (tf.data). A list
        contains arrays, as for a model with several inputs, or samples that are numbers or strings.
    equal : bool, optional
        True gives all workers equally many samples and leaves out up to num_workers - 1 at the
        end, because in sync mode all workers must train equally many batches. False, the default in
        async mode only, gives every sample to a worker. A tf.data.Dataset is always divided so.

    Returns
    -------
    array, or tuple of them
        The part of each argument, or of the only one.

    Raises
    ------
    ValueError
        If there are no arguments, the arrays differ in length, or a worker would have no sample.
    StateError
        If no session is open, or this rank is not a worker; in an elastic session, whose workers
        change: let these share samples with `multiverso.Work`.

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
    worker, num_workers = session.worker_id, session.num_workers
    if worker < 0:
        raise StateError("shard: this rank is a server and not a worker")
    supported.check("shard", *session.features())
    lengths = sorted(set(_lengths(arrays)))
    if not arrays or len(lengths) > 1:
        raise ValueError(f"shard: expected arrays of one length, received the lengths {lengths}")
    if equal is None:
        equal = session.options.mode != capi.MV_MODE_ASYNC
    is_equal = flag(equal, "equal")
    end = None
    if lengths:
        if lengths[0] < num_workers:
            wanted = f"a sample for each of {num_workers} workers"
            raise ValueError(f"shard: expected {wanted}, received {lengths[0]}")
        end = lengths[0] - lengths[0] % num_workers if is_equal else lengths[0]
    parts = tuple(_part(array, worker, num_workers, end) for array in arrays)
    return parts[0] if len(parts) == 1 else parts


def _lengths(value: Any) -> list[int]:
    """Return the number of samples of each array in `value`."""
    if value is None or hasattr(value, "as_numpy_iterator"):  # A tf.data.Dataset.
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


def _part(value: Any, worker: int, num_workers: int, end: int | None) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _part(item, worker, num_workers, end) for key, item in value.items()}
    if _holds_arrays(value):
        return type(value)(_part(item, worker, num_workers, end) for item in value)
    if hasattr(value, "as_numpy_iterator"):
        return value.shard(num_workers, worker)
    return native_order(getattr(value, "iloc", value)[worker:end:num_workers])
