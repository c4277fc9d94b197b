"""Whoever types `nosetests` in a clone, as the pages of 2016 say, sees a first test succeed."""

import sys
from pathlib import Path

from programs import run_command

import launch

ROOT = Path(__file__).resolve().parents[2]
NOSETESTS = Path(sys.executable).with_name("nosetests")


def test_first_test_passes_with_nosetests():
    status, out, err = run_command(NOSETESTS, cwd=ROOT)
    assert status == 0, out + err
    assert "Ran 3 tests" in out + err


def test_first_test_passes_on_two_workers():
    result = launch.run(ROOT / "tests" / "test_multiverso.py", np=2)
    assert result.returncode == 0, result.output
