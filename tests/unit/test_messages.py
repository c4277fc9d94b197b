"""Wrong calls raise the errors of tests/golden/messages.txt.

``python tests/unit/support/golden_messages.py`` writes the file anew.
"""

import pytest
from golden_messages import difference, modules_of, run, sections
from requirements import is_installed


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=[pytest.mark.frameworks] if modules_of(title) else [])
        for title in sections()
    ],
)
def test_errors_are_those_of_the_golden_file(title):
    missing = [module for module in modules_of(title) if not is_installed(module)]
    if missing:
        pytest.skip(f"needs {' and '.join(map(str, missing))}")
    assert not (found := difference(sections()[title])), found


def test_changed_and_missing_errors_are_found():
    assert "\n+    ValueError: y" in difference("raise ValueError('y')\n    ValueError: x")
    assert "\n-    ValueError: x" in difference("1 + 1\n    ValueError: x")
    assert (
        run("for x in 1, 2: [][x]")
        == "for x in 1, 2: [][x]\n    IndexError: list index out of range"
    )
    assert "no error: 1" in run("for x in (1,): x")
