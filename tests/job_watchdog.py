"""Kills the processes of a job, whoever started them: also when the test run itself was killed.

As a program, ``job_watchdog.py MARK FOLDER`` waits until its standard input ends. A test run that
is over with its job writes a byte before; one that has been killed cannot, and then everything that
carries the mark is killed and the folder of the job removed. A pipe is closed by the kernel,
however its owner ends, and the mark is inherited by whatever a launcher starts, also by what left
its process group. No parent's death signal reaches that far.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Seconds for which nothing must be left before it is believed: a process may have been forked by
#: one that was killed just then, and carries the mark only once its program has begun.
QUIET = 1.0


def processes(mark: str) -> list[int]:
    """Return the living processes that have `mark`, a ``NAME=VALUE``, in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill(mark: str) -> bool:
    """Kill all processes that have `mark`; tell whether there were any."""
    found = processes(mark)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


class Watchdog:
    """Looks after a job from a process of its own, until it is released.

    Parameters
    ----------
    mark : str
        What all processes of the job have in their environment.
    folder : Path
        The folder of the job.

    """

    def __init__(self, mark: str, folder: Path) -> None:
        # Isolated and without site-packages, so that it begins in some milliseconds; in a session
        # of its own, so that what ends the test run's group does not end it too.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def release(self) -> None:
        """Let it end: nothing of the job is left."""
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
