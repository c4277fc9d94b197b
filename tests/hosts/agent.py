"""The launch agent, which an mpirun calls like ssh: ``agent [-x] HOST COMMAND ...``.

Both launchers pass the command as they would to ssh: as words to be joined and given to a shell.
"""

import os
import sys

import hosts


def main() -> None:
    """Replace this process by the command, on that host."""
    arguments = sys.argv[1:]
    while arguments[0].startswith("-"):
        del arguments[0]
    address, *words = arguments
    command = hosts.enter(address, "sh", "-c", " ".join(words))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
