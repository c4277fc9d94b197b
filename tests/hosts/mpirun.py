"""An mpirun that starts ranks on all hosts of a test: ``mpirun -np N PROGRAM ...``.

It runs the mpirun of this environment on the first host, with a list of all hosts and with the
launch agent. With H hosts, the first N / H ranks, rounded up, run on the first host, and so on.
"""

import json
import os
import sys
from pathlib import Path

import hosts
from multiverso._mpi.mpirun import find_mpirun, mpirun_vendor


def main() -> None:
    """Replace this process by the real mpirun."""
    num_ranks, command = int(sys.argv[2]), sys.argv[3:]
    addresses = list(json.loads(os.environ[hosts.HOSTS_VARIABLE]))
    per_host = -(-num_ranks // len(addresses))
    slots = ",".join(f"{address}:{per_host}" for address in addresses)
    mpirun = find_mpirun()
    agent = str(Path(__file__).with_name("agent"))
    if mpirun_vendor(mpirun)[0] == "Open MPI":
        options = ["--host", slots, "--map-by", f"ppr:{per_host}:node:oversubscribe"]
        options += ["--bind-to", "none", "--prtemca", "plm_ssh_agent", agent]
        options += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
        options += ["--prtemca", "prte_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
    else:
        options = ["-launcher", "ssh", "-launcher-exec", agent]
        options += ["-hosts", slots, "-iface", "eth0"]
    command_line = hosts.enter(addresses[0], mpirun, *options, "-np", str(num_ranks), *command)
    os.execvp(command_line[0], command_line)


if __name__ == "__main__":
    main()
