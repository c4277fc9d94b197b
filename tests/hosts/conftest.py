"""Lets the tests import the harness, its programs and hosts.py."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "mpi" / "programs"), str(TESTS / "hosts")]
