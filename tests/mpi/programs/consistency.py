"""Sync mode, bounded staleness and aggregate on any number of ranks: the cases of four modules."""

import aggregation  # noqa: F401 (importing a module registers its cases)
import parts  # noqa: F401
import rounds  # noqa: F401
import working  # noqa: F401
from cases import run_all
from modes import CASES

__all__ = ["CASES"]

if __name__ == "__main__":
    run_all(CASES)
