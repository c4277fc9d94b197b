"""The launch agent, which an mpirun calls in place of ssh: ``agent [-x] HOST COMMAND ...``.

The mpirun of either MPI expects that the agent, like ssh, gives the joined arguments to a shell.
"""

import os
import sys

import hosts


def main() -> None:
    """Replace this process by the command on the host."""
    arguments = sys.argv[1:]
    while arguments[0].startswith("-"):
        del arguments[0]  # an option of ssh
    address, *command = arguments
    command_line = hosts.enter(address, "sh", "-c", " ".join(command))
    os.execvp(command_line[0], command_line)


if __name__ == "__main__":
    main()
