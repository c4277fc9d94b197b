"""Lets the tests import the harness, the programs that it runs, and the hosts."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "mpi" / "programs"), str(TESTS / "hosts")]
