"""The mean of metrics over the workers."""

import numbers
import zlib
from typing import Any

import numpy as np

from multiverso.api import current_session
from multiverso.errors import MismatchError

_VALIDATION_PREFIX = "val_"


def _checksum_of(names: list[str]) -> int:
    return zlib.crc32(" ".join(names).encode())


def average_over_workers(logs: dict[str, Any]) -> None:
    """Replace the numbers in `logs` by their mean over the workers. Collective over the workers.

    The workers of an elastic session do not train the same epochs, so each keeps its own numbers.
    Validation metrics are replaced only if all workers have the same ones, since one may validate.
    """
    session = current_session()
    if session.options.elastic:
        return
    names = sorted(name for name, value in logs.items() if isinstance(value, numbers.Real))
    validated_names = [name for name in names if name.startswith(_VALIDATION_PREFIX)]
    trained_names = [name for name in names if not name.startswith(_VALIDATION_PREFIX)]
    checksums = np.zeros((session.num_workers, 2), np.int64)
    checksums[session.worker_id] = _checksum_of(trained_names), _checksum_of(validated_names)
    session.aggregate(checksums)
    are_equal = (checksums == checksums[0]).all(axis=0)
    if not are_equal[0]:
        received = ", ".join(trained_names)
        msg = f"logs: expected the same metrics on all workers, received {received} here"
        raise MismatchError(msg)
    averaged_names = [*trained_names, *validated_names] if are_equal[1] else trained_names
    if averaged_names:
        values = np.array([float(logs[name]) for name in averaged_names])
        session.aggregate(values)
        logs.update(zip(averaged_names, (values / session.num_workers).tolist(), strict=True))
