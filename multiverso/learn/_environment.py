"""What must be settled before a framework is imported: the backend, threads, and GPUs."""

import importlib.util
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from multiverso.learn._errors import InputError

__all__ = ["choose_backend", "choose_gpu", "choose_threads", "free_gpus"]

_log = logging.getLogger("multiverso")

_BACKENDS: Final = ("torch", "jax", "tensorflow")

#: Seconds that nvidia-smi may take.
_PATIENCE: Final = 30.0

#: What torch and NumPy, TensorFlow and JAX take the number of their threads from.
_THREADS: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "NPROC")


def choose_backend(wanted: str | None = None) -> str:
    """Let Keras run on `wanted`, or on what the user has configured, or on what is installed.

    To be called before Keras is imported: it sets KERAS_BACKEND. Returns the choice.

    Raises
    ------
    InputError
        If the one that is wanted is not installed, or none is.

    """
    chosen = wanted or os.environ.get("KERAS_BACKEND") or _configured()
    found = [name for name in _BACKENDS if importlib.util.find_spec(name) is not None]
    if chosen is None or (chosen not in found and not wanted and "KERAS_BACKEND" not in os.environ):
        chosen = found[0] if found else None
    if chosen is None or chosen not in found:
        msg = (
            f"expected {chosen or 'one of ' + ', '.join(_BACKENDS)} for Keras to run on, found "
            f"{', '.join(found) or 'none'} in this environment"
        )
        raise InputError(msg)
    os.environ["KERAS_BACKEND"] = chosen
    # What TensorFlow says of the processor. Keras imports it on other backends, too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return chosen


def _configured() -> str | None:
    """Return the backend in Keras' own configuration file, if there is one."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        backend = json.loads((home / "keras.json").read_text("utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        return None
    return backend if isinstance(backend, str) else None


def choose_threads(local_workers: int) -> None:
    """Give each worker of this host its share of the processors, unless the user has chosen."""
    if hasattr(os, "sched_getaffinity"):
        mine = len(os.sched_getaffinity(0))
    else:
        mine = os.cpu_count() or 1
    # A launcher that binds ranks has shared the processors out already.
    bound = mine < (os.cpu_count() or 1)
    threads = mine if bound else max(1, mine // max(1, local_workers))
    for name in _THREADS:
        os.environ.setdefault(name, str(threads))


def choose_gpu(comm: Any, most: int, trains: bool | None = None) -> str | None:
    """Take a free NVIDIA GPU of this host for this rank; return which, or None for the processor.

    Collective. The workers of a host take one each, in rank order, as long as there are some; the
    master takes one only if it is alone.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks of the job.
    most : int
        How many of a host to take at most; -1 sets no limit.
    trains : bool, optional
        Whether this rank is a worker. By default all are but rank 0.

    """
    rank, size = (0, 1) if comm is None else (comm.Get_rank(), comm.Get_size())
    trains = (size == 1 or rank > 0) if trains is None else trains
    if comm is None or size == 1:
        free, place = free_gpus(), 0
    else:
        from mpi4py import MPI

        host = comm.Split_type(MPI.COMM_TYPE_SHARED)
        # One rank looks, lest the others see the GPUs that the first have taken.
        free = host.bcast(free_gpus() if host.Get_rank() == 0 else None)
        place = host.exscan(int(trains)) or 0
        host.Free()
    if free is None:
        return None
    if most >= 0:
        free = free[:most]
    chosen = free[place] if trains and place < len(free) else None
    os.environ["CUDA_VISIBLE_DEVICES"] = chosen or ""
    _log.info("rank %d computes on %s", rank, f"GPU {chosen}" if chosen else "the processor")
    return chosen


def free_gpus() -> list[str] | None:
    """Return the ids of the NVIDIA GPUs that no process computes on; None if there are none.

    Of those in CUDA_VISIBLE_DEVICES, if it is set.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    found = _ask(program, "--query-gpu=index,uuid")
    busy = {line[0] for line in _ask(program, "--query-compute-apps=gpu_uuid")}
    if not found:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else [name.strip() for name in visible.split(",")]
    return [
        uuid
        for index, uuid in (line[:2] for line in found if len(line) >= 2)
        if uuid not in busy and (allowed is None or index in allowed or uuid in allowed)
    ]


def _ask(program: str, query: str) -> list[list[str]]:
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("nvidia-smi failed, so no GPU is used: %s", error)
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line]
