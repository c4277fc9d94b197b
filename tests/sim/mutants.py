"""Break one line of the library at a time, and see whether the simulation notices.

``python tests/sim/mutants.py [--seeds N] [--only TEXT] [--jobs N]`` runs the breaks of mutants.txt
in a copy of the tree (build/mutants), and prints one line for each: seen and by what, not seen, or
does not compile. A break is seen if a known run or one of the seeds fails that does not fail
without it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "mutants"
#: Each break is looked for in the same seeds of these kinds of jobs: any, and those whose faults
#: most seeds do not have.
KINDS = ((), ("kills=1",), ("suspends=1", "long=1"), ("mode=sync", "kills=0"), ("disagree=1",))
#: A broken library may run until its limit of real time in each seed.
LONGEST_RUN = 600


@dataclass
class Break:
    """One line of a source file, and what takes its place."""

    file: str = ""
    says: str = ""
    before: str = ""
    after: str = ""


def read_breaks(text: str) -> list[Break]:
    """Read the list of breaks, in which a backslash and an n stand for the end of a line."""
    breaks: list[Break] = []
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        rest = rest.replace("\\n", "\n")
        if word == "file":
            breaks.append(Break(file=rest))
        elif word == "says":
            breaks[-1].says = rest
        elif word == "from":
            breaks[-1].before = rest
        elif word == "to":
            breaks[-1].after = rest
        elif line and not line.startswith("#"):
            raise ValueError(f"mutants.txt: expected file, says, from or to, received {line!r}")
    return breaks


def say(line: str) -> None:
    """Print a line at once, since the next one may take minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def copy_tree() -> None:
    """Copy what the simulation is built from; unchanged files keep their times."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src", "tests/sim", "cmake"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    for name in [*names, "CMakeLists.txt", "CMakePresets.json", "multiverso/_version.py"]:
        source, target = ROOT / name, TREE / name
        if not source.exists():
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def build(jobs: int) -> bool:
    """Build the simulation in the copy, and return whether that worked."""
    if not (TREE / "build" / "simulation" / "CMakeCache.txt").exists():
        subprocess.run(["cmake", "--preset", "simulation"], cwd=TREE, check=True)
    command = ["cmake", "--build", "build/simulation", "--target", "simulation", f"-j{jobs}"]
    return subprocess.run(command, cwd=TREE, capture_output=True, check=False).returncode == 0


def failures(seeds: int) -> dict[str, str]:
    """Run the known runs and the seeds, and return what failed: how to repeat it, and the text."""
    program = str(TREE / "build" / "simulation" / "simulation")
    commands = [[program, "known"]]
    options = ["--no-shrinking", "--stop-at-first"]
    commands += [[program, "run", "1", str(seeds), *options, *kind] for kind in KINDS]
    found: dict[str, str] = {}
    for command in commands:
        try:
            run = subprocess.run(
                command, cwd=TREE, capture_output=True, text=True, timeout=LONGEST_RUN, check=False
            )
        except subprocess.TimeoutExpired:
            found[" ".join(command[1:3])] = "no hang: the seeds took too long"
            return found
        for line in run.stdout.splitlines():
            match = re.match(r"(seed \d+|tests/sim/runs/\S+|seed .*): (.+)", line)
            if match:
                found[match[1] + " " + " ".join(command[6:])] = match[2]
        if found:
            return found
    return found


def main() -> int:
    """Run the breaks that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="seeds of each kind of jobs")
    parser.add_argument("--only", default="", help="only breaks whose file or sentence has this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    breaks = read_breaks((Path(__file__).parent / "mutants.txt").read_text("utf-8"))
    breaks = [one for one in breaks if arguments.only in one.file + " " + one.says]
    copy_tree()
    if not build(arguments.jobs):
        say("the copy does not compile")
        return 2
    without = failures(arguments.seeds)
    if without:
        say(f"these fail without a break: {without}")
        return 2
    seen = missed = 0
    for one in breaks:
        path = TREE / one.file
        text = path.read_text("utf-8")
        if text.count(one.before) != 1:
            count = text.count(one.before)
            say(f"STALE     {one.file}: {one.says} (its line is there {count} times)")
            continue
        start = time.monotonic()
        path.write_text(text.replace(one.before, one.after), "utf-8")
        try:
            found = failures(arguments.seeds) if build(arguments.jobs) else None
        finally:
            path.write_text(text, "utf-8")
        took = f"{time.monotonic() - start:.0f} s"
        if found is None:
            say(f"BROKEN    {one.file}: {one.says} ({took})")
        elif found:
            seen += 1
            where, what = next(iter(found.items()))
            say(f"seen      {one.file}: {one.says} ({where}: {what[:90]}; {took})")
        else:
            missed += 1
            say(f"NOT SEEN  {one.file}: {one.says} ({took})")
    say(f"{seen} of {seen + missed} breaks were seen, with {arguments.seeds} seeds of each kind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
