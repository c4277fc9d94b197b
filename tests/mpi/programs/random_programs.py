"""Runs the random programs of `machine` on all ranks: ``random_programs.py FOLDER FIRST COUNT``."""

import collections
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import worker  # noqa: E402

import configurations  # noqa: E402
import multiverso as mv  # noqa: E402
from machine import programs  # noqa: E402
from multiverso import api  # noqa: E402

#: Seconds that a call may wait. A hanging program fails long before the job is killed.
TIMEOUT = 40.0


def main():
    """Run the programs, and report the calls, what was skipped, and the first failure."""
    worker.begin()
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    roles = configurations.current().roles
    options = {"role": roles[worker.RANK]} if roles else {}
    counts = {"calls": collections.Counter(), "skipped": collections.Counter()}
    for seed in range(first, first + count):
        place = folder / f"seed-{seed}"
        place.mkdir(exist_ok=True)
        try:
            programs.run(seed, place, counts, timeout=TIMEOUT, **options)
        except AssertionError as error:
            worker.report(failure=str(error))
            if mv.is_initialized():
                api.current_session().leave_with(f"seed {seed} failed")
            raise
    worker.report(**counts)


if __name__ == "__main__":
    main()
