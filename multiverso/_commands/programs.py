"""``multiverso examples``, ``demo`` and ``bench``: the programs that come with the package."""

import argparse
import ast
import functools
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiverso._commands._argument_types import integer, place
from multiverso._local import guard

_PACKAGE = Path(__file__).resolve().parents[1]


def add_parser(commands: Any) -> None:
    """Declare the three commands."""
    examples: argparse.ArgumentParser = commands.add_parser(
        "examples",
        help="list the examples, or copy them to a folder",
        description="Lists the examples that come with the package, or copies them to a folder, "
        "where you can change them.",
    )
    examples.add_argument("--copy", type=place, metavar="DIR", help="a new or an empty folder")
    examples.set_defaults(run=_examples)

    demo: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="train a model on real data with several ranks",
        description="Trains a logistic regression on handwritten digits. The program is "
        "numpy/logistic_regression.py of `multiverso examples`.",
    )
    demo.add_argument("-np", "-n", type=integer(1), metavar="N", help="ranks (one per core)")
    demo.set_defaults(run=_demo)

    bench: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="compare the tables of this machine with C, NumPy and MPI",
        description="Measures table operations, and the same operations in C, NumPy and MPI.",
    )
    bench.add_argument(
        "--ranks", type=integer(1), nargs="+", metavar="N", help="numbers of ranks, with an MPI"
    )
    bench.add_argument("--full", action="store_true", help="more sizes and samples")
    bench.add_argument("--json", type=place, metavar="FILE", help="write the results to FILE")
    bench.set_defaults(run=_bench)


def folder_of(name: str) -> Path:
    """Return the folder `name` of the repository: in a wheel it is inside the package."""
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def _examples(options: argparse.Namespace) -> int:
    source = folder_of("examples")
    if options.copy is None:
        described = {
            str(path.relative_to(source)): _first_line(path)
            for path in sorted(source.rglob("*.py"))
            if path.relative_to(source).parts[0] != "common"  # These are modules of the examples.
        }
        width = max(map(len, described))
        sys.stdout.writelines(f"{name:{width}}  {text}\n" for name, text in described.items())
        sys.stdout.write("multiverso examples --copy DIR copies them to a folder.\n")
        return 0
    if options.copy.exists() and any(options.copy.iterdir()):
        sys.stderr.write(
            f"multiverso examples: expected a new or an empty folder, received {options.copy}, "
            "which has files\n"
        )
        return 2
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, options.copy, ignore=ignored, dirs_exist_ok=True)
    programs = len(list(options.copy.rglob("*.py")))
    first = options.copy / "numpy" / "logistic_regression.py"
    sys.stdout.write(
        f"copied {programs} Python files and those of the other languages to {options.copy}\n"
        f"run one with: multiverso run -np 2 {first}\n"
    )
    return 0


def _first_line(path: Path) -> str:
    """Return the first line of the docstring of a program."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.partition("\n")[0]


def _demo(options: argparse.Namespace) -> int:
    script = folder_of("examples") / "numpy" / "logistic_regression.py"
    ranks = [] if options.np is None else ["-np", str(options.np)]
    return _run([sys.executable, "-m", "multiverso", "run", *ranks, str(script)])


def _bench(options: argparse.Namespace) -> int:
    command = [sys.executable, str(folder_of("benchmarks") / "tables.py")]
    command += [] if options.full else ["--quick"]
    command += ["--json", str(options.json)] if options.json else []
    command += ["--ranks", *map(str, options.ranks)] if options.ranks else []
    return _run(command)


def _run(command: Sequence[str]) -> int:
    """Run a program, which is ended if this process is; return its exit code."""
    end = functools.partial(guard.end_with_parent, signal.SIGTERM)
    # The function is safe, because this process has one thread.
    return subprocess.run(command, check=False, preexec_fn=end).returncode
