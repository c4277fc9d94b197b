"""nosetests runs the unit tests too, while pytest runs them in another process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOSETESTS = Path(sys.executable).with_name("nosetests")

#: Seconds; a multiple of what it takes on a busy machine, and less than pytest's own limit.
LIMIT = 550


@pytest.mark.long
def test_the_unit_tests_pass_with_nosetests_too():
    done = subprocess.run(
        [str(NOSETESTS), "tests/unit"],
        # What the pages show with NumPy alone is run once, by pytest.
        env={**os.environ, "MULTIVERSO_TEST_DOCS": "frameworks"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^Ran (\d+) tests", done.stdout, re.MULTILINE)[1]) > 200, done.stdout
