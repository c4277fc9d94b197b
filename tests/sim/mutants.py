"""Break one line of the library at a time, and see whether the simulation notices.

``python tests/sim/mutants.py [--seeds N] [--only TEXT] [--jobs N]`` looks for the breaks of
mutants.txt in known runs and seeds of jobs before stories, and for those of mutants_saves.txt in
stories before jobs. Each of N workers has its copy of the tree (build/mutants). A line says for
each break what noticed it first, that it was not seen, or that it does not compile.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIES = ROOT / "build" / "mutants"
STORIES = "mutants_saves.txt"
LISTS = ("mutants.txt", STORIES)
#: Each break is looked for in the same seeds of these kinds of jobs: any, those whose faults most
#: seeds do not have, and each focus of tests/sim/job/focus.cc.
KINDS = (
    ("focus=none",),
    ("focus=none", "kills=1"),
    ("focus=none", "mode=sync", "kills=0"),
    ("focus=none", "suspends=1", "long=1"),
    ("focus=none", "means=1", "kills=0"),
    ("focus=small_rounds",),
    ("focus=waiting",),
    ("focus=disagree",),
    ("focus=excluded",),
    ("focus=excluded_goes_on",),
    ("focus=silent_node",),
    ("focus=late_ranks",),
    ("focus=late_heartbeat",),
    ("focus=rows",),
    ("focus=locks",),
    ("focus=late",),
    ("focus=stripes",),
    ("focus=held",),
    ("focus=chunks",),
    ("focus=aggregates",),
    ("focus=together",),
    ("focus=deadlines",),
    ("focus=silent",),
)
#: The first seeds of each kind see most breaks, so they run before the others.
FIRST_SEEDS = 8
#: Stories are smaller than jobs, and each has faults.
STORIES_PER_SEED = 10
#: A job of a broken library that hangs ends after this many seconds of real time.
LONGEST_JOB = 40
#: All seeds of a kind together end after this many.
LONGEST_RUN = 600


@dataclass
class Break:
    """Lines of source files, and what takes their place."""

    list: str
    file: str  # the first one
    says: str = ""
    files: list[str] = field(default_factory=list)  # of each line
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def read_breaks(name: str) -> list[Break]:
    """Read a list of breaks, in which a backslash and an n stand for the end of a line."""
    breaks: list[Break] = []
    file = ""
    for line in (Path(__file__).parent / name).read_text("utf-8").splitlines():
        word, _, rest = line.partition(" ")
        rest = rest.replace("\\n", "\n")
        if word == "file":
            breaks.append(Break(name, rest))
            file = rest
        elif word == "and":
            file = rest
        elif word == "says":
            breaks[-1].says = rest
        elif word == "from":
            breaks[-1].before.append(rest)
            breaks[-1].files.append(file)
        elif word == "to":
            breaks[-1].after.append(rest)
        elif line and not line.startswith("#"):
            raise ValueError(f"{name}: expected file, and, says, from or to, received {line!r}")
    return breaks


def say(line: str) -> None:
    """Print a line at once, since the next one may take minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Copy:
    """A copy of the tree, in which one worker breaks a line at a time."""

    def __init__(self, tree: Path) -> None:
        """Copy what the simulation is built from; unchanged files keep their times."""
        self.tree = tree
        names = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "src", "tests/sim", "cmake"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for name in [*names, "CMakeLists.txt", "CMakePresets.json", "multiverso/_version.py"]:
            source, target = ROOT / name, tree / name
            if not source.exists():
                continue
            if target.exists() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def build(self) -> bool:
        """Build the simulation, and return whether that worked."""
        if not (self.tree / "build" / "simulation" / "CMakeCache.txt").exists():
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            command = ["cmake", "--preset", "simulation", *generator]
            subprocess.run(command, cwd=self.tree, check=True, capture_output=True)
        command = ["cmake", "--build", "build/simulation", "--target", "simulation", "-j1"]
        done = subprocess.run(command, cwd=self.tree, capture_output=True, check=False)
        return done.returncode == 0

    def first_failure(self, name: str, seeds: int) -> str:
        """Run what notices the breaks of a list, and return the first failure, or an empty text."""
        # A list's own commands come first.
        for arguments in [
            line for one in sorted(LISTS, key=name.__ne__) for line in commands(one, seeds)
        ]:
            try:
                run = subprocess.run(
                    [str(self.tree / "build" / "simulation" / "simulation"), *arguments],
                    cwd=self.tree,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=LONGEST_RUN,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"{' '.join(arguments[:3])}: no hang: the seeds took too long"
            if run.returncode == 0:
                continue
            # A run of a fault that is not mended yet may only have come to another order of steps.
            pattern = r"^(seed .*|tests/sim/.*): (?!ok$|has no violation any more)(.+)"
            failed = re.search(pattern, run.stdout, re.MULTILINE)
            if failed is None and "has no violation any more" in run.stdout:
                continue
            what = failed[0] if failed else f"exit status {run.returncode}"
            options = [word for word in arguments if "=" in word and word != "first=1"]
            return f"{' '.join([arguments[0], *options])}: {what[:110]}"
        return ""

    def look_for(self, one: Break, seeds: int) -> str:
        """Make a break, and return whether it was seen and how."""
        whole = {file: (self.tree / file).read_text("utf-8") for file in one.files}
        broken = dict(whole)
        for file, before, after in zip(one.files, one.before, one.after, strict=True):
            if whole[file].count(before) != 1:
                return f"STALE     {one.says} (a line is there {whole[file].count(before)} times)"
            broken[file] = broken[file].replace(before, after)
        try:
            for file, text in broken.items():
                (self.tree / file).write_text(text, "utf-8")
            if not self.build():
                return f"BROKEN    {one.says}"
            failure = self.first_failure(one.list, seeds)
        finally:
            for file, text in whole.items():
                (self.tree / file).write_text(text, "utf-8")
        return f"seen      {one.says} ({failure})" if failure else f"NOT SEEN  {one.says}"


def commands(name: str, seeds: int) -> list[list[str]]:
    """Return the arguments of the simulation that look for the breaks of a list, cheap ones first.

    All of them end at the first failure.
    """
    if name == STORIES:
        runs = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/sim/stories/runs/*"))
        return [["stories", *runs], ["stories", "1", str(seeds * STORIES_PER_SEED), "first=1"]]
    options = ["--no-shrinking", "--stop-at-first", "--processes", "1"]
    options += ["--wall-seconds", str(LONGEST_JOB)]
    found = [["known", *(option for option in options if option != "--stop-at-first")]]
    few = min(FIRST_SEEDS, seeds)
    for first, count in ((1, few), (few + 1, seeds - few)):
        if count > 0:
            found += [["run", str(first), str(count), *options, *kind] for kind in KINDS]
    return found


def main() -> int:
    """Run the breaks that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="seeds of each kind of jobs")
    parser.add_argument("--only", default="", help="only breaks whose list, file or sentence match")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not run the library without a break first"
    )
    arguments = parser.parse_args()
    breaks: queue.SimpleQueue[Break] = queue.SimpleQueue()
    for name in LISTS:
        for one in read_breaks(name):
            if re.search(arguments.only, f"{name} {one.file} {one.says}"):
                breaks.put(one)
    results: list[str] = []
    broken_copies: list[str] = []
    start = time.monotonic()
    baseline = threading.Event()

    def work(number: int) -> None:
        copy = Copy(COPIES / str(number))
        if not copy.build():
            broken_copies.append("the copy does not compile")
        elif number == 0 and not arguments.no_baseline:
            failure = copy.first_failure(LISTS[0], arguments.seeds)
            if failure:
                broken_copies.append(f"this fails without a break: {failure}")
        if number == 0:
            baseline.set()
        baseline.wait()
        while not broken_copies:
            try:
                one = breaks.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            result = copy.look_for(one, arguments.seeds)
            results.append(result)
            where = one.file.removeprefix("src/")
            say(f"{result[:10]}{where}: {result[10:]} [{time.monotonic() - began:.0f} s]")

    workers = [threading.Thread(target=work, args=[number]) for number in range(arguments.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for line in broken_copies:
        say(line)
    seen = sum(result.startswith("seen") for result in results)
    took = f"{arguments.seeds} seeds of each kind, in {time.monotonic() - start:.0f} s"
    say(f"{seen} of {len(results)} breaks were seen, with {took}")
    return 2 if broken_copies else 0


if __name__ == "__main__":
    sys.exit(main())
