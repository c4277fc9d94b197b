"""Lets these tests import hosts.py and the programs of tests/mpi; pyproject.toml adds tests/."""

import sys
from pathlib import Path

HOSTS = Path(__file__).parent
sys.path[:0] = [str(HOSTS.parent / "mpi" / "programs"), str(HOSTS)]
