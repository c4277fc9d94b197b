"""Simulates hosts on this machine: network namespaces that virtual cables (veth pairs) connect.

A host is a network namespace with one interface and one address. A command that `enter` runs on a
host also has its own process ids, host name and System V memory. MPI therefore uses TCP between
hosts, and Multiverso finds that their ranks share no memory. No address is valid outside.

``python hosts.py [--rate 100mbit] COMMAND ...`` creates two hosts, runs the command with
``MULTIVERSO_TEST_HOSTS`` set for `mpirun`, and removes the hosts, however the command ends.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

#: The variable with the hosts for `mpirun` and `agent`: a JSON object of address to namespace.
HOSTS_VARIABLE = "MULTIVERSO_TEST_HOSTS"

#: The variable with the Python that runs `mpirun` and `agent`, and whose environment has the MPI.
PYTHON_VARIABLE = "MULTIVERSO_TEST_PYTHON"

#: Seconds that a command of iproute2 may take; it needs milliseconds.
TIMEOUT = 20

_instance_numbers = itertools.count()


def why_unavailable() -> str:
    """Return why hosts cannot be created on this machine, or an empty string."""
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"needs {program}: apt install iproute2 util-linux"
    if os.geteuid() != 0:
        return "needs root, to create network namespaces"
    try:
        with Hosts(2):
            return ""
    except subprocess.CalledProcessError as error:
        return f"needs the right to create network namespaces: {error.stderr.strip()}"


class Hosts:
    """Hosts that exist inside a ``with`` block.

    Parameters
    ----------
    count : int
        The number of hosts. A switch, in its own namespace, connects them.
    rate : str, optional
        The most that each host sends per second, as `tc` writes it: "100mbit".

    """

    def __init__(self, count: int, rate: str | None = None) -> None:
        self._rate = rate
        self._prefix = f"mvtest{os.getpid()}-{next(_instance_numbers)}"
        self._switch = f"{self._prefix}switch"
        self.namespaces = {f"10.77.0.{i + 1}": f"{self._prefix}host{i}" for i in range(count)}

    @property
    def addresses(self) -> list[str]:
        """The address of each host."""
        return list(self.namespaces)

    @property
    def environ(self) -> dict[str, str]:
        """The variables for `mpirun` and `agent`."""
        return {HOSTS_VARIABLE: json.dumps(self.namespaces), PYTHON_VARIABLE: sys.executable}

    def pull_cable(self, address: str) -> None:
        """Drop all packets from and to a host, without an error in any process."""
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

    def __exit__(self, *exception: object) -> None:
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
            if self._rate is not None:
                command = ("tc", "-n", namespace, "qdisc", "add", "dev", "eth0", "root", "tbf")
                limits = ("rate", self._rate, "burst", "256kb", "latency", "100ms")
                subprocess.run([*command, *limits], check=True, timeout=TIMEOUT)

    def _take_down(self) -> None:
        # Deleting a namespace deletes its interfaces.
        for namespace in (*self.namespaces.values(), self._switch):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)


def enter(address: str, *command: str) -> list[str]:
    """Return the command line that runs `command` on the host with this address."""
    namespaces = json.loads(os.environ[HOSTS_VARIABLE])
    name = "host-" + address.rpartition(".")[2]
    return [
        *("ip", "netns", "exec", namespaces[address]),
        *("unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", "-c", 'hostname "$0" && exec "$@"', name, *command),
    ]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=TIMEOUT)


def main() -> int:
    """Run the command in the arguments with two hosts; return its exit code."""
    rate, command = None, sys.argv[1:]
    if command[0] == "--rate":
        rate, command = command[1], command[2:]
    with Hosts(2, rate) as hosts:
        completed = subprocess.run(command, env={**os.environ, **hosts.environ}, check=False)
    return completed.returncode


if __name__ == "__main__":
    sys.exit(main())
