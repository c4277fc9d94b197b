"""Install a wheel in empty environments, as a user does, and run first programs.

    python packaging/check_release.py dist/*_x86_64.whl

There is an environment for each Python from 3.10 on, as this machine has them, without MPI, with
MPICH and with Open MPI. The programs find no compiler. The table at the end says what ran; the exit
code is 1 if something failed.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = range(10, 15)
#: The extra of each MPI, and its mpirun.
MPIS = {
    "no MPI": ("examples", []),
    "MPICH": ("examples,mpich", ["mpirun"]),
    "Open MPI": ("examples,openmpi", ["mpirun", "--oversubscribe", "--allow-run-as-root"]),
}
#: What mpirun starts besides the ranks.
TOOLS = ("sh", "env", "uname", "hostname")
TIMEOUT = 600


def pythons():
    """Return the Python of each minor version that this machine has."""
    found = {}
    for minor in PYTHONS:
        installed = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        if path := shutil.which(f"python3.{minor}"):
            installed.append(Path(path))
        for path in installed:
            if "shims" not in path.parts:
                found[minor] = path
    found.setdefault(sys.version_info.minor, Path(sys.executable))
    return found


def first_program():
    """Return the program without a framework that README shows."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return re.search(r"complete `train.py`.*?```python\n(.*?)```", readme, re.DOTALL)[1]


def environment(path):
    """Return the variables of a user's programs, which have this PATH."""
    kept = ("HOME", "LANG", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, "PATH": path}


def run(command, folder, path):
    """Run a command with a time limit; return its output. The PATH is `path`."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment(path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        command = " ".join(map(str, command))
        raise RuntimeError(f"{command}\nexited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def check(python, wheel, mpi, folder):
    """Install the wheel for a Python and an MPI, and run the programs."""
    extras, mpirun = MPIS[mpi]
    bin_folder, tools = folder / "environment" / "bin", folder / "tools"
    path = os.pathsep.join([str(bin_folder), str(tools)])
    tools.mkdir()
    run([python, "-m", "venv", folder / "environment"], folder, path)
    # A dependency without a wheel would need a compiler.
    options = ["-q", "--only-binary", ":all:"]
    install = [bin_folder / "python", "-m", "pip", "install", *options]
    run([*install, f"{wheel}[{extras}]"], folder, path)
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    (folder / "train.py").write_text(first_program(), "utf-8")
    shutil.copy(ROOT / "tests" / "test_multiverso.py", folder)
    start = ["multiverso", "run", "-np", 2] if not mpirun else [*mpirun, "-np", 2, "python"]
    programs = [
        ([*start, "train.py"], "2 worker(s) found"),
        (["multiverso", "demo", "-np", 2], "workers 2"),
        (["python", "-m", "unittest", "test_multiverso.py"], "OK"),
        ([*start, "test_multiverso.py"], "OK"),
        (["multiverso", "doctor", "-np", 2, *(["--mpi"] if mpirun else [])], ""),
        (["multiverso", "examples"], "logistic_regression"),
    ]
    for (name, *arguments), expected in programs:
        output = run([bin_folder / name, *arguments], folder, path)
        if expected not in output:
            raise RuntimeError(f"{name}: expected {expected!r}, received:\n{output}")


def main():
    """Check the wheel; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve(strict=True)
    found, failed = pythons(), False
    lines = []
    for minor, mpi in itertools.product(PYTHONS, MPIS):
        outcome = "not on this machine"
        if minor in found:
            with tempfile.TemporaryDirectory(prefix="multiverso-release-") as folder:
                try:
                    check(found[minor], wheel, mpi, Path(folder))
                    outcome = "works"
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    print(error, file=sys.stderr)
                    outcome, failed = "FAILED", True
        lines.append(f"Python 3.{minor:<3}{mpi:<10}{outcome}")
        print(lines[-1], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
