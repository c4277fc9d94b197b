"""Lets the tests import the harness and the programs that it runs."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent / "programs")]
