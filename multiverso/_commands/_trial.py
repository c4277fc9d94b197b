"""Runs a command for a limited time, and kills all of its processes afterwards."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multiverso._mpi.launcher import without_rank
from multiverso._mpi.mpirun import mpirun_environment

#: Seconds for each step after a timeout: mpirun ends the job, its remaining processes are killed,
#: and the pipes are read to their end.
_GRACE: Final = 5.0

#: The variable that marks all processes of a trial. Ranks are not in mpirun's process group.
_MARK: Final = "MULTIVERSO_TRIAL"


@dataclass(frozen=True)
class TrialResult:
    """The result of a command that has ended or was killed."""

    #: Exit code of the command; None if it was killed after its timeout.
    returncode: int | None
    output: str
    errors: str


def run_trial(command: Sequence[str], num_ranks: int, timeout: float) -> TrialResult:
    """Run a command that starts `num_ranks` ranks, for at most `timeout` seconds."""
    trial_id = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**without_rank(mpirun_environment(num_ranks)), _MARK: trial_id},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
        return TrialResult(process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        _kill(process, f"{_MARK}={trial_id}")
    try:
        output, errors = process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:  # Another process holds the other end of a pipe.
        output = errors = ""
    return TrialResult(None, output, errors)


def _kill(process: subprocess.Popen[str], mark: str) -> None:
    """Kill all processes that have the variable `mark` ("NAME=VALUE"), until none is left."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GRACE
    while (alive := _marked(mark)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)


def _marked(mark: str) -> list[int]:
    """Return the ids of the processes that have the variable `mark`; none without /proc."""
    found = []
    for entry in Path("/proc").glob("*"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
