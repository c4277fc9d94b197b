"""The library with failpoints (src/base/failpoint.h), which the tests have built for themselves."""

import os
import unittest
from pathlib import Path

_BUILT = Path(__file__).parents[3] / "build" / "cmake" / "libmultiverso_failpoints.so"

LIBRARY = Path(os.environ.get("MULTIVERSO_FAILPOINTS_LIBRARY", _BUILT))

needs_failpoints = unittest.skipUnless(
    LIBRARY.exists(), f"make builds the library with failpoints, {LIBRARY}, which is not there"
)


def environ(points):
    """Return the variables of a process that comes to these failpoints."""
    return {"MULTIVERSO_LIBRARY": str(LIBRARY), "MULTIVERSO_FAILPOINTS": points}
