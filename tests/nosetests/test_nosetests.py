"""The unit tests pass under nosetests too."""

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

#: Seconds: a multiple of the usual time, and less than the 600 s after which pytest ends the test.
TIMEOUT = 550


@pytest.mark.slow
def test_unit_tests_pass_with_nosetests():
    process = subprocess.Popen(
        # -e excludes the code blocks of the pages, which do not depend on the test runner.
        [str(NOSETESTS), "-e", "python_blocks", *sorted(map(str, UNIT.rglob("test_*.py")))],
        env={
            **os.environ,
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
        printed, _ = process.communicate(timeout=TIMEOUT)
    finally:  # kills also the processes that the tests have started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, printed
    assert int(re.search(r"^Ran (\d+) tests", printed, re.MULTILINE)[1]) > 200, printed
