"""Kills the processes of a job, even if the test run itself was killed.

As a program, ``job_watchdog.py MARK FOLDER`` waits until its standard input, a pipe from the test
run, has a byte or ends. The test run writes a byte when it has ended the job itself. If the pipe
ends without a byte, the test run was killed, and the watchdog kills every process with the mark, an
environment variable, and removes the folder of the job. All descendants of a launcher inherit the
mark, also those in other process groups, whereas a parent death signal reaches only children.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Seconds without marked processes after which the job counts as ended. A launcher that was forked
#: just before the test run was killed has the mark only when it executes its program.
QUIET_TIME = 1.0


def processes(mark: str) -> list[int]:
    """Return the ids of the processes with `mark`, a ``NAME=VALUE``, in their environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def kill(mark: str) -> bool:
    """Kill all processes with `mark`; return whether any existed."""
    pids = processes(mark)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


class Watchdog:
    """A process that kills a job if the test run ends without releasing it.

    Parameters
    ----------
    mark : str
        A variable that all processes of the job have in their environment.
    folder : Path
        The folder of the job.

    """

    def __init__(self, mark: str, folder: Path) -> None:
        # Without site-packages the watchdog starts in milliseconds. In a session of its own it gets
        # no signals to the process group of the test run.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def release(self) -> None:
        """End the watchdog: the test run has ended the job and removed its folder."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(b".")


def _main(mark: str, folder: str) -> None:
    if sys.stdin.buffer.read(1):
        return
    quiet_since = time.monotonic()
    while time.monotonic() < quiet_since + QUIET_TIME:
        if kill(mark):
            quiet_since = time.monotonic()
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
