"""Choices to make before a framework is imported: the backend of Keras, threads, and GPUs."""

import importlib.util
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from multiverso.learn._input import InputError
from multiverso.learn._mpi import once_per_host, rank_and_size

_log = logging.getLogger("multiverso")

_BACKENDS: Final = ("torch", "jax", "tensorflow")

#: The longest run of nvidia-smi, in seconds.
_TIMEOUT: Final = 30.0

#: The variables for the number of threads of PyTorch and NumPy, of TensorFlow, and of JAX.
_THREADS: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "NPROC")


def choose_backend(wanted: str | None = None) -> str:
    """Choose the backend of Keras: `wanted`, else the configured one, else an installed one.

    Call this before Keras is imported, because it sets KERAS_BACKEND. The choice is returned.

    Raises
    ------
    InputError
        If the wanted backend is not installed, or no backend is installed.

    """
    chosen = wanted or os.environ.get("KERAS_BACKEND") or _configured()
    found = [name for name in _BACKENDS if importlib.util.find_spec(name) is not None]
    if chosen is None or (chosen not in found and not wanted and "KERAS_BACKEND" not in os.environ):
        chosen = found[0] if found else None
    if chosen is None or chosen not in found:
        raise InputError(
            f"the backend of Keras: expected {chosen or 'one of ' + ', '.join(_BACKENDS)}, found "
            f"{', '.join(found) or 'none'} in this environment"
        )
    os.environ["KERAS_BACKEND"] = chosen
    # This hides messages about the processor of TensorFlow, which Keras imports on any backend.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return chosen


def _configured() -> str | None:
    """Return the backend that Keras' configuration file names, or None."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        backend = json.loads((home / "keras.json").read_text("utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        return None
    return backend if isinstance(backend, str) else None


def choose_threads(local_workers: int) -> None:
    """Give each worker of this host its share of the cores, unless the user has set the threads."""
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    # A launcher that binds ranks to cores has divided the cores already.
    threads = allowed if allowed < cores else max(1, allowed // max(1, local_workers))
    for name in _THREADS:
        os.environ.setdefault(name, str(threads))


def choose_gpu(comm: Any, most: int, place: int | None = 0) -> str | None:
    """Choose a free NVIDIA GPU for this rank; return its id, or None for the CPU. Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The ranks of the job.
    most : int
        The greatest number of GPUs of a host to use; -1 sets no limit.
    place : int or None, optional
        The number of this worker among the workers of its host, which take one GPU each in this
        order; None for a rank that does not train.

    """
    # One rank of a host queries, before any rank occupies a GPU.
    free = once_per_host(comm, free_gpus)
    if free is None:
        return None
    if most >= 0:
        free = free[:most]
    chosen = free[place] if place is not None and place < len(free) else None
    os.environ["CUDA_VISIBLE_DEVICES"] = chosen or ""
    rank, _ = rank_and_size(comm)
    _log.info("rank %d computes on %s", rank, f"GPU {chosen}" if chosen else "the CPU")
    return chosen


def free_gpus() -> list[str] | None:
    """Return the ids of the NVIDIA GPUs without a compute process; None on a host without GPUs.

    If CUDA_VISIBLE_DEVICES is set, only the GPUs that it names are returned.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    found = _query(program, "--query-gpu=index,uuid")
    busy = {line[0] for line in _query(program, "--query-compute-apps=gpu_uuid")}
    if not found:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else [name.strip() for name in visible.split(",")]
    return [
        uuid
        for index, uuid in (line[:2] for line in found if len(line) >= 2)
        if uuid not in busy and (allowed is None or index in allowed or uuid in allowed)
    ]


def _query(program: str, query: str) -> list[list[str]]:
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("nvidia-smi failed, so no GPU is used: %s", error)
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line]
