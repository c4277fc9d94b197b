"""nosetests runs the unit tests too, while pytest runs them in another process."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
SUPPORT = str(UNIT / "support")
NOSETESTS = Path(sys.executable).with_name("nosetests")

#: Seconds; a multiple of what it takes on a busy machine, and less than pytest's own limit.
LIMIT = 550


@pytest.mark.long
def test_the_unit_tests_pass_with_nosetests_too():
    process = subprocess.Popen(
        [str(NOSETESTS), *sorted(map(str, UNIT.rglob("test_*.py")))],
        # What the pages show with NumPy alone is run once, by pytest.
        env={
            **os.environ,
            "MULTIVERSO_TEST_DOCS": "frameworks",
            "PYTHONPATH": os.pathsep.join(filter(None, (SUPPORT, os.environ.get("PYTHONPATH")))),
        },
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT)
    finally:  # with all that its tests have started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, printed
    assert int(re.search(r"^Ran (\d+) tests", printed, re.MULTILINE)[1]) > 200, printed
