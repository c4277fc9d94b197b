"""Prints a table of the tests that ran and were skipped, from the JUnit files of a test run.

The Makefile runs ``summary.py TARGET FOLDER`` at the end of ``make test`` and ``make test-all``.
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parent

NO_GTEST = "GoogleTest not found: apt install libgtest-dev (Debian, Ubuntu), then make test-cpp"
NOT_IN_TEST = (
    "`make test-all` also runs: Open MPI, PyTorch, TensorFlow, JAX, Theano and Lasagne, the "
    "examples, benchmarks and soak tests, installation, Lua, Windows, and the site."
)


def read(folder):
    """Return a Counter of passed, failed and skipped tests and seconds per row, and the reasons.

    A row is the run and the folder of the tests. The reasons are those of the tests that were
    skipped in one run and passed in no other.
    """
    rows, passed, skipped = defaultdict(Counter), set(), {}
    for path in sorted(folder.rglob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            words = case.get("classname", "").split(".")
            is_cpp = path.parent.name == "cpp"
            place = "tests/cpp" if is_cpp else "/".join(words[:2])
            test = (place, *words, case.get("name"))
            outcome = "passed"
            for child in case:
                if child.tag in ("failure", "error"):
                    outcome = "failed"
                elif child.tag == "skipped":
                    outcome = "skipped"
                    skipped[test] = re.sub(r"\s+", " ", child.get("message") or "no reason given")
            if outcome == "passed":
                passed.add(test)
            row = rows["" if is_cpp else path.stem, place]
            row[outcome] += 1
            row["seconds"] += float(case.get("time") or 0)
    reasons = Counter(reason for test, reason in skipped.items() if test not in passed)
    return rows, reasons


def count_cpp_tests():
    """Return the number of C++ tests in the sources."""
    sources = (path.read_text("utf-8") for path in (TESTS / "cpp").rglob("*_test.cc"))
    return sum(len(re.findall(r"^TEST(?:_F|_P)?\(", text, re.MULTILINE)) for text in sources)


def main(target, folder):
    """Print the table of the runs whose results are in the folder."""
    rows, reasons = read(Path(folder))
    if ("", "tests/cpp") not in rows:
        rows["", "tests/cpp"]["skipped"] = reasons[NO_GTEST] = count_cpp_tests()
    columns = ("passed", "failed", "skipped", "seconds")
    print(f"\n{'tests':<18}{'run':<16}" + "".join(f"{name:>9}" for name in columns))
    for (run, place), row in sorted(rows.items()):
        counts = "".join(f"{row[name]:>9.0f}" for name in columns)
        print(f"{place:<18}{run:<16}{counts}")
    if reasons:
        print("\nskipped in every run, and why:")
        for reason, number in reasons.most_common():
            print(f"{number:>5}  {reason}")
    if target == "test":
        print(f"\n{NOT_IN_TEST}")


if __name__ == "__main__":
    main(*sys.argv[1:])
