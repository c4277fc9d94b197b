"""The mean of metrics over the workers."""

import numbers
import zlib
from typing import Any

import numpy as np

from multiverso.api import current_session
from multiverso.errors import MismatchError

_VALIDATION = "val_"


def _code_of(names: list[str]) -> int:
    return zlib.crc32(" ".join(names).encode())


def average_over_workers(logs: dict[str, Any]) -> None:
    """Replace the numbers in `logs` by their mean over the workers. Collective over the workers.

    Validation metrics are replaced only if all workers have the same ones, since one worker may
    validate for all.

    Raises
    ------
    MismatchError
        If the workers' logs have different training metrics.
    OperationTimeout, PeerLostError, AbortedError, StateError
        As for `multiverso.aggregate`.

    """
    session = current_session()
    names = sorted(name for name, value in logs.items() if isinstance(value, numbers.Real))
    validated = [name for name in names if name.startswith(_VALIDATION)]
    trained = [name for name in names if not name.startswith(_VALIDATION)]
    codes = np.zeros((session.num_workers, 2), np.int64)
    codes[session.worker_id] = _code_of(trained), _code_of(validated)
    session.aggregate(codes)
    same = (codes == codes[0]).all(axis=0)
    if not same[0]:
        msg = f"logs: expected the same metrics on all workers, received {', '.join(trained)} here"
        raise MismatchError(msg)
    chosen = [*trained, *validated] if same[1] else trained
    if chosen:
        values = np.array([float(logs[name]) for name in chosen])
        session.aggregate(values)
        logs.update(zip(chosen, (values / session.num_workers).tolist(), strict=True))
