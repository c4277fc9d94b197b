"""Kills the processes of a job, even if the test run itself was killed.

As a program, ``job_watchdog.py MARK FOLDER`` waits until its standard input ends. A test run that
has finished its job first writes a byte. If no byte has come, the test run was killed, and the
watchdog kills every process with the mark and removes the folder of the job. The kernel closes the
pipe however the test run ends. Every process that a launcher starts inherits the mark, even outside
its process group, which a parent death signal would not reach.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Seconds without marked processes after which the job counts as ended. A process that is forked
#: just before its parent is killed gets the mark only when its program starts.
QUIET = 1.0


def processes(mark: str) -> list[int]:
    """Return the processes with `mark`, a ``NAME=VALUE``, in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill(mark: str) -> bool:
    """Kill all processes with `mark`; return whether any existed."""
    found = processes(mark)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


class Watchdog:
    """A process that watches a job until it is released.

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
        """End the watchdog after a job that has left nothing behind."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(b".")


def _main(mark: str, folder: str) -> None:
    if sys.stdin.buffer.read(1):
        return
    quiet_since = time.monotonic()
    while time.monotonic() < quiet_since + QUIET:
        if kill(mark):
            quiet_since = time.monotonic()
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
