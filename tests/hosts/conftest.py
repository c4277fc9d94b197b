"""Lets these tests import hosts.py and the programs of tests/mpi; pyproject.toml adds tests/."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "mpi" / "programs"), str(Path(__file__).parent)]
