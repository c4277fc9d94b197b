"""Runs a command for a limited time."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multiverso._mpi.launcher import without_rank

#: Seconds for each step after the limit: the command ends its processes at SIGTERM, and the pipes
#: are read to their end after SIGKILL.
_GRACE: Final = 8.0


@dataclass(frozen=True)
class TrialResult:
    """The output of a command, and its exit code, which is None if it was ended at its limit."""

    returncode: int | None
    output: str
    errors: str


def run_trial(command: Sequence[str], limit: float) -> TrialResult:
    """Run a command for at most `limit` seconds, then end its process group."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=without_rank(os.environ),
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
        return TrialResult(process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also after Ctrl-C. The guard of `multiverso run` ends the ranks when this process ends.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE)
    try:
        output, errors = process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:  # Another process holds the other end of a pipe.
        output = errors = ""
    return TrialResult(None, output, errors)
