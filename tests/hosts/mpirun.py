"""An mpirun that starts ranks on all hosts of the test: ``mpirun -np N PROGRAM ...``.

It runs the mpirun of this environment on the first host, tells it about all of them, and gives it
the launch agent. Ranks are placed evenly: the first N / hosts ranks on the first host, and so on.
"""

import json
import os
import sys
from pathlib import Path

import hosts


def main() -> None:
    """Become the mpirun."""
    ranks, command = int(sys.argv[2]), sys.argv[3:]
    addresses = list(json.loads(os.environ[hosts.VARIABLE]))
    per_host = -(-ranks // len(addresses))
    places = ",".join(f"{address}:{per_host}" for address in addresses)
    folder = Path(sys.executable).parent
    agent = str(Path(__file__).with_name("agent"))
    if (folder / "ompi_info").exists():
        options = ["--host", places, "--map-by", f"ppr:{per_host}:node:oversubscribe"]
        options += ["--bind-to", "none", "--prtemca", "plm_ssh_agent", agent]
        options += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
        options += ["--prtemca", "prte_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
    else:
        options = ["-launcher", "ssh", "-launcher-exec", agent]
        options += ["-hosts", places, "-iface", "eth0"]
    mpirun = [str(folder / "mpirun"), *options, "-np", str(ranks), *command]
    words = hosts.enter(addresses[0], *mpirun)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
