"""Runs a command and writes its seconds and processor seconds to a file, for `summary.py`.

The Makefile runs ``measured.py FOLDER TARGET COMMAND ...``; the command may begin with variables of
its environment. The file has a line per command: the seconds, the processor seconds of the command
and of all its descendants, the target and the command.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path


def main(folder: str, target: str, *command: str) -> int:
    """Return the exit code of the command, 128 and the number of a signal that ended it."""
    start = time.monotonic()
    status = subprocess.run(["env", *command], check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = f"{time.monotonic() - start:.1f} {usage.ru_utime + usage.ru_stime:.1f} {target}: "
    line += " ".join(command)[:200].replace("\n", " ") + "\n"
    os.makedirs(folder, exist_ok=True)
    # A short line is written at once, so steps that run beside each other do not mix theirs.
    with Path(folder, "steps.txt").open("a", encoding="utf-8") as file:
        file.write(line)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
