"""Finds the library with failpoints (src/base/failpoint.h), which `make` builds only for tests."""

import os
import unittest
from pathlib import Path

_DEFAULT_LIBRARY = Path(__file__).parents[3] / "build" / "cmake" / "libmultiverso_failpoints.so"
LIBRARY = Path(os.environ.get("MULTIVERSO_FAILPOINTS_LIBRARY", _DEFAULT_LIBRARY))

needs_failpoints = unittest.skipUnless(
    LIBRARY.exists(), f"needs the library with failpoints, {LIBRARY}, which make builds"
)


def environment(points="none", factor=1):
    """Return the variables that activate `points`, such as "file.write@3=kill", in a process.

    The clock of the library is `factor` times as fast as others, so that deadlines pass sooner.
    """
    return {
        "MULTIVERSO_LIBRARY": str(LIBRARY),
        "MULTIVERSO_FAILPOINTS": points,
        "MULTIVERSO_CLOCK_FACTOR": str(factor),
    }
