"""The library with failpoints (src/base/failpoint.h), which only the tests build."""

import os
import unittest
from pathlib import Path

_BUILT = Path(__file__).parents[3] / "build" / "cmake" / "libmultiverso_failpoints.so"

LIBRARY = Path(os.environ.get("MULTIVERSO_FAILPOINTS_LIBRARY", _BUILT))

needs_failpoints = unittest.skipUnless(
    LIBRARY.exists(), f"needs the library with failpoints, {LIBRARY}, which make builds"
)


def environ(points):
    """Return the environment variables that activate these failpoints in a process."""
    return {"MULTIVERSO_LIBRARY": str(LIBRARY), "MULTIVERSO_FAILPOINTS": points}
