"""Hosts for tests: network namespaces joined by veth pairs, each with processes of its own.

A host is a network namespace with one interface and one address, and what runs on it has its own
process ids, host name and shared memory objects. So MPI has to talk TCP between two of them, and
Multiverso finds that their ranks share no memory. Only addresses inside these namespaces are used.

``python hosts.py COMMAND ...`` sets two hosts up, runs the command with ``MULTIVERSO_TEST_HOSTS``
set as `mpirun` needs it, and takes the hosts down, however the command ends.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

#: Names the hosts for `mpirun` and `agent`: a JSON object, address to namespace.
VARIABLE = "MULTIVERSO_TEST_HOSTS"

#: The Python that `mpirun` and `agent` run with, and whose mpirun is used.
PYTHON = "MULTIVERSO_TEST_PYTHON"

#: Seconds for a command of iproute2, which takes milliseconds.
LIMIT = 20

_numbers = itertools.count()


def missing() -> str:
    """Return what this machine lacks for hosts, or nothing."""
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"hosts for tests need the program {program}"
    if os.geteuid() != 0:
        return "hosts for tests need root"
    try:
        with Hosts(2):
            return ""
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"


class Hosts:
    """Some hosts, from ``with Hosts(2) as hosts`` to the end of the block.

    Parameters
    ----------
    count : int
        How many; all are joined by a switch in a namespace of its own.

    """

    def __init__(self, count: int) -> None:
        self._prefix = f"mvtest{os.getpid()}-{next(_numbers)}"
        self._switch = f"{self._prefix}switch"
        self.namespaces = {f"10.77.0.{i + 1}": f"{self._prefix}host{i}" for i in range(count)}

    @property
    def addresses(self) -> list[str]:
        """The address of each host."""
        return list(self.namespaces)

    @property
    def environ(self) -> dict[str, str]:
        """What `mpirun` and `agent` need to know."""
        return {VARIABLE: json.dumps(self.namespaces), PYTHON: sys.executable}

    def pull_cable(self, address: str) -> None:
        """Let nothing reach that host or leave it, without anybody being told."""
        self._set_cable(address, "down")

    def plug_in_cable(self, address: str) -> None:
        """Undo `pull_cable`."""
        self._set_cable(address, "up")

    def _set_cable(self, address: str, state: str) -> None:
        _ip("-n", self._switch, "link", "set", f"port{self.addresses.index(address)}", state)

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._take_down()

    def _set_up(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for i, (address, namespace) in enumerate(self.namespaces.items()):
            _ip("netns", "add", namespace)
            port = f"port{i}"
            _ip("-n", self._switch, "link", "add", port, "type", "veth",
                "peer", "name", "eth0", "netns", namespace)  # fmt: skip
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def _take_down(self) -> None:
        # Their interfaces go with the namespaces.
        for namespace in (*self.namespaces.values(), self._switch):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)


def enter(address: str, *command: str) -> list[str]:
    """Return the command line that runs `command` on the host with that address."""
    namespaces = json.loads(os.environ[VARIABLE])
    name = "host-" + address.rpartition(".")[2]
    return [
        *("ip", "netns", "exec", namespaces[address]),
        *("unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", "-c", 'hostname "$0" && exec "$@"', name, *command),
    ]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=LIMIT)


def main() -> int:
    """Run the command of the command line with two hosts."""
    with Hosts(2) as hosts:
        done = subprocess.run(sys.argv[1:], env={**os.environ, **hosts.environ}, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
