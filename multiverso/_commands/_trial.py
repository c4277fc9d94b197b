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

from multiverso._mpi.mpirun import mpirun_environment, without_rank

#: Seconds that mpirun has to tear a job down before all processes of the job are killed.
_GRACE: Final = 5.0

#: Marks the processes of a trial, because ranks are not in the process group of their mpirun.
_MARK: Final = "MULTIVERSO_TRIAL"


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes
    ----------
    returncode : int or None
        Exit code of the command; None if it was killed at its limit.
    output, errors : str
        The texts that its processes printed.

    """

    returncode: int | None
    output: str
    errors: str


def run_trial(command: Sequence[str], ranks: int, limit: float) -> TrialResult:
    """Run a command that starts `ranks` ranks, for at most `limit` seconds."""
    number = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**without_rank(mpirun_environment(ranks)), _MARK: number},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
        return TrialResult(process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        _kill(process, f"{_MARK}={number}")
    try:
        output, errors = process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:  # Another process holds the other end of a pipe.
        output = errors = ""
    return TrialResult(None, output, errors)


def _kill(process: subprocess.Popen[str], mark: str) -> None:
    """Kill all processes that bear the mark, whatever their process group."""
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
