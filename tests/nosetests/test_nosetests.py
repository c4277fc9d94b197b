"""nosetests collects the unit tests and runs them too."""

import os
import re
import sys
from pathlib import Path

import pytest
from programs import run_command

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
NOSETESTS = Path(sys.executable).with_name("nosetests")

#: The files whose tests run. Two are enough, because this test is about the runner.
FILES = ("session/test_session.py", "tables/test_tables.py")


@pytest.mark.slow
@pytest.mark.release
def test_unit_tests_pass_with_nosetests():
    python_path = [str(UNIT / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {"PYTHONPATH": os.pathsep.join(python_path)}
    status, out, err = run_command(NOSETESTS, *(UNIT / file for file in FILES), cwd=ROOT, **environ)
    assert status == 0, out + err
    assert int(re.search(r"^Ran (\d+) tests", out + err, re.MULTILINE)[1]) > 18, out + err
