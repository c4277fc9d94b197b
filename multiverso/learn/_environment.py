"""Choices to make before a framework is imported: the backend of Keras, threads, and GPUs."""

import importlib.util
import json
import logging
import os
from pathlib import Path

from multiverso._extras import BACKENDS
from multiverso._local.cores import Cores, thread_variables
from multiverso._mpi.mpirun import allowed_cores
from multiverso.learn._input import InputError

_log = logging.getLogger("multiverso")


def choose_backend(wanted: str | None = None) -> str:
    """Choose the backend of Keras: `wanted`, else KERAS_BACKEND or Keras' file, else any installed.

    Call it before Keras is imported, because it sets KERAS_BACKEND to the choice, and returns that.

    Raises
    ------
    InputError
        If `wanted` or the backend in KERAS_BACKEND is not installed, or no backend is.

    Examples
    --------
    >>> import keras
    >>> from multiverso.learn import choose_backend
    >>> choose_backend(keras.config.backend()) == keras.config.backend()
    True

    """
    installed = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
    chosen = wanted or os.environ.get("KERAS_BACKEND")
    if not chosen:
        configured = _configured_backend()
        # The sort keeps the others in the order of BACKENDS.
        chosen = next(iter(sorted(installed, key=lambda name: name != configured)), None)
    if chosen is None or chosen not in installed:
        raise InputError(
            f"the backend of Keras: expected {chosen or 'one of ' + ', '.join(BACKENDS)}, found "
            f"{', '.join(installed) or 'none'} in this environment"
        )
    os.environ["KERAS_BACKEND"] = chosen
    # This hides messages about the processor of TensorFlow, which Keras imports on any backend.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return chosen


def _configured_backend() -> object:
    """Return the backend that Keras' configuration file names, or None."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        return json.loads((home / "keras.json").read_text("utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        return None


def choose_threads(local_workers: int) -> None:
    """Give each worker of this host its share of the cores, unless the user has set the threads."""
    # A launcher that binds ranks to cores has divided the cores already.
    is_divided = allowed_cores() < (os.cpu_count() or 1)
    threads = Cores.find().threads(1 if is_divided else max(1, local_workers))
    os.environ.update(thread_variables(threads))


def choose_gpu(free: list[str] | None, max_gpus: int, index: int = 0) -> str | None:
    """Choose a free NVIDIA GPU for this rank; return its id, or None for the CPU.

    It sets CUDA_VISIBLE_DEVICES, so call it before a framework is imported. At most `max_gpus` of
    the `free` ones are used, or all with -1. `index` counts the workers of a host; -1 is no worker.
    """
    if free is None:
        return None
    if max_gpus >= 0:
        free = free[:max_gpus]
    chosen = free[index] if 0 <= index < len(free) else None
    os.environ["CUDA_VISIBLE_DEVICES"] = chosen or ""
    _log.info("this rank computes on %s", f"GPU {chosen}" if chosen else "the CPU")
    return chosen
