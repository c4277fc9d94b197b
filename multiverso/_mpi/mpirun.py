"""The path, the command line and the environment of the mpirun that starts a job.

Only this module of the package knows the options of an mpirun, and the variables that it reads.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from multiverso._mpi.communicator import INSTALL_MPI
from multiverso.errors import LauncherError

#: Seconds within which an mpirun must print its version.
_VERSION_TIMEOUT: Final = 30.0

#: Runs a command and always ends with 0. MPICH reports a lost rank by SIGUSR1, which is ignored.
_SHELL_SCRIPT: Final = """trap '' USR1; "$0" "$@"; exit 0"""

#: Variables that disable two components of Open MPI on one machine. The component for UCX reports a
#: false error on machines without UCX, and that for libfabric delays the start by a second.
ONE_MACHINE: Final = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi"}


def find_mpirun() -> str:
    """Return the path of the mpirun of this environment, else of the first one on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")
    if found is None:
        raise LauncherError(
            f"expected an mpirun beside {sys.executable} or on the path, found none: {INSTALL_MPI}"
        )
    return found


def mpirun_vendor(mpirun: str) -> tuple[str | None, str | None]:
    """Return the vendor and the version that ``mpirun --version`` prints; None if unknown."""
    completed = subprocess.run(
        [mpirun, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_VERSION_TIMEOUT,
        env=mpirun_environment(1),
        check=False,
    )
    text = completed.stdout + completed.stderr
    vendor = None
    if any(name in text for name in ("Open MPI", "OpenRTE", "PRRTE")):
        vendor = "Open MPI"
    elif "Intel(R) MPI" in text:
        vendor = "Intel MPI"
    elif "HYDRA" in text or "MPICH" in text:
        vendor = "MPICH"
    version = next((word for word in text.split() if word[:1].isdigit() and "." in word), None)
    return vendor, version


def mpirun_command(
    command: Sequence[str],
    ranks: int,
    *,
    mpirun: str | None = None,
    survive: bool = False,
) -> list[str]:
    """Return the command line that starts `ranks` processes of a command.

    With `survive`, the other ranks continue when a rank dies. The job's exit code then says nothing
    about the ranks: Open MPI returns 0, and a shell makes MPICH return 0.
    """
    mpirun = mpirun or find_mpirun()
    if not survive:
        return [mpirun, "-np", str(ranks), *command]
    if mpirun_vendor(mpirun)[0] == "Open MPI":
        return [mpirun, "--enable-recovery", "-np", str(ranks), *command]
    # Even with -disable-auto-cleanup, mpirun kills all ranks when a signal kills a process that
    # mpirun has started. So mpirun starts a shell for each rank, and the shell ends normally.
    shell = ["sh", "-c", _SHELL_SCRIPT, *command]
    return [mpirun, "-disable-auto-cleanup", "-np", str(ranks), *shell]


def mpirun_environment(ranks: int | None = None) -> dict[str, str]:
    """Return this environment, with what Open MPI demands for root or more ranks than cores."""
    variables = {}
    if os.geteuid() == 0:
        variables["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    if ranks is None or ranks > allowed_cores():
        variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"  # Releases before 5 read this.
    return {**variables, **os.environ}


def allowed_cores() -> int:
    """Return the number of cores that this process may use, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
