"""Run a program several times in the processes of one job, which import its modules only once.

    mpirun -np 2 python benchmarks/repeated.py PROGRAM.py '[["--sync"], ["--seed", "2"]]' --json F

The list has the arguments of each run. The program has the option --json, and the file F receives a
list of what the program writes there on the master.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(program: str, arguments: list[str], target: Path) -> Any:
    """Run the program once; return what it writes to the target, None if it writes nothing.

    Raises
    ------
    SystemExit
        If the program fails.
    """
    sys.argv = [program, *arguments, "--json", str(target)]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    return json.loads(target.read_text("utf-8")) if target.exists() else None


def main() -> None:
    """Run the program with each of the arguments, and write the results."""
    _, program, runs, _, target = sys.argv
    with tempfile.TemporaryDirectory(prefix="multiverso-benchmark-") as folder:
        results = [
            run(program, arguments, Path(folder, f"{index}.json"))
            for index, arguments in enumerate(json.loads(runs))
        ]
    if None not in results:  # only the master has them
        Path(target).write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main()
