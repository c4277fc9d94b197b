"""Unit tests pass under nosetests too."""

import os
import re
import sys
from pathlib import Path

import pytest
from programs import run_command

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
NOSETESTS = Path(sys.executable).with_name("nosetests")

#: The folders whose tests run. A few are enough, because this test is about the runner.
FOLDERS = ("session", "sync", "tables")

#: Seconds: a multiple of the usual time, and less than the 600 s after which pytest ends the test.
TIMEOUT = 550


@pytest.mark.slow
def test_unit_tests_pass_with_nosetests():
    paths = (path for folder in FOLDERS for path in sorted((UNIT / folder).glob("test_*.py")))
    python_path = [str(UNIT / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {"PYTHONPATH": os.pathsep.join(python_path)}
    status, out, err = run_command(NOSETESTS, *paths, cwd=ROOT, timeout=TIMEOUT, **environ)
    assert status == 0, out + err
    assert int(re.search(r"^Ran (\d+) tests", out + err, re.MULTILINE)[1]) > 120, out + err
