"""Draws what runs today, repeatably, where running all would only take longer."""

import hashlib
import os
import sys
from pathlib import Path

HAS_OPEN_MPI = (Path(sys.executable).parent / "ompi_info").exists()

#: The jobs in which each case of a program runs. Of the other jobs each case draws one.
FIXED_JOBS = {"1_ranks", "2_ranks"}

#: The variable with the seed. `conftest` sets it to the number of the day and prints it, so that
#: the days draw different jobs, and a test run can be repeated.
SEED = "MULTIVERSO_TEST_LAYOUTS_SEED"


def draw(name: str, values: list[str], count: int) -> list[str]:
    """Return up to `count` of the values; the name, the MPI and the seed decide which."""

    def position(value: str) -> str:
        text = f"{os.environ.get(SEED, '0')} {HAS_OPEN_MPI} {name} {value}"
        return hashlib.sha256(text.encode()).hexdigest()

    return sorted(values, key=position)[:count]
