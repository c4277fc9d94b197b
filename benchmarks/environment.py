"""The machine and the versions of a run, without which its figures cannot be compared."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

import multiverso as mv

_FRAMEWORK_PACKAGES = "jax keras Lasagne pytensor tensorflow tensorflow-cpu Theano torch".split()


def _versions() -> dict[str, str]:
    """Return the versions of the installed frameworks."""
    versions = {}
    for name in _FRAMEWORK_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _first_match(file: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(file).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1).strip() if found else None


def describe(mpi: Any) -> dict[str, Any]:
    """Return the machine and the versions for JSON.

    Parameters
    ----------
    mpi : module or None
        ``mpi4py.MPI``, or None if it is unavailable.
    """
    huge = "/sys/kernel/mm/transparent_hugepage"
    described: dict[str, Any] = {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": _first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$"),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "memory": _first_match("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "huge_pages": _first_match(f"{huge}/enabled", r"\[(\w+)\]"),
        "huge_pages_shared": _first_match(f"{huge}/shmem_enabled", r"\[(\w+)\]"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "multiverso": mv.__version__,
        "frameworks": _versions(),
        "mpi4py": None,
        "mpi": None,
    }
    if mpi is not None:
        import mpi4py

        described["mpi4py"] = mpi4py.__version__
        version = mpi.Get_library_version().strip("\0").splitlines()[0].partition(",")[0]
        described["mpi"] = " ".join(version.split())
    return described
