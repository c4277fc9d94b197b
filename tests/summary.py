"""Prints a table of the tests that ran and were skipped, from the JUnit files of a test run.

Beside the seconds of each part it prints the processor seconds, those of processes that the tests
started included: what waits has few of them. Then it lists the slowest files, and the steps of the
Makefile (`measured.py`), which also have the time in which nothing is tested.

The Makefile runs ``summary.py TARGET FOLDER PARTS`` at the end of ``make test``, ``make test-all``
and ``make test-release``.
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parent

#: The number of files in the list of the slowest.
SLOWEST = 10

NO_GTEST = "GoogleTest not found: apt install libgtest-dev (Debian, Ubuntu), then make test-cpp"
NOT_IN_TEST = (
    "`make test-all` also runs: Open MPI, PyTorch, TensorFlow, JAX, Theano and Lasagne, the "
    "examples, benchmarks and soak tests, installation, Lua, and the site."
)
NOT_IN_ALL = (
    "`make test-release` also runs: Windows, the files for macOS, the C++ tests with sanitizers, "
    "fuzzing, the longest examples and benchmarks, and most tests again with Open MPI, with other "
    "layouts of ranks, and with each backend of Keras."
)


def read(folder):
    """Return the counts and times of each row, the skipped tests per reason, and times per file.

    A row is a folder of tests in one run, where a folder of files is a run of the C++ tests. A
    reason counts tests that every run has skipped. A test that skipped cases counts only if the
    runs share a reason: otherwise each case ran in some run.
    """
    rows, passed, skipped = defaultdict(Counter), set(), defaultdict(list)
    files = defaultdict(Counter)
    for path in sorted(folder.rglob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            names = (case.get("classname") or case.get("name")).split(".")
            is_cpp = path.parent != folder
            tests_folder = "tests/cpp" if is_cpp else "/".join(names[:2])
            test = (tests_folder, *names, case.get("name"))
            reasons = [_reason(child) for child in case.iter("skipped")]
            outcome = "skipped" if reasons else "passed"
            if case.find("failure") is not None or case.find("error") is not None:
                outcome = "failed"
            elif reasons:
                skipped[test].append(reasons)
            else:
                passed.add(test)
            run = path.parent.name.removeprefix("cpp") if is_cpp else path.stem
            row = rows[run, tests_folder]
            row[outcome] += 1
            for each in (row, files[run, _file_of(case, names)]):
                each["seconds"] += float(case.get("time") or 0)
                each["processor"] += _processor_seconds(case)
    skipped_everywhere = Counter()
    for test in skipped.keys() - passed:
        common = set.intersection(*map(set, skipped[test]))
        if common or all(len(reasons) == 1 for reasons in skipped[test]):
            skipped_everywhere[min(common or skipped[test][-1])] += 1
    return rows, skipped_everywhere, files


def _file_of(case, names):
    """Return the file of a test: GoogleTest names it, and pytest the module and its classes."""
    if file := case.get("file"):
        return file.rpartition("/tests/")[2]
    module = [name for name in names if not name[:1].isupper()]
    return "/".join(module).removeprefix("tests/") + ".py"


def _processor_seconds(case):
    """Return the processor time of a test, of the property that both test programs write."""
    values = {each.get("name"): each.get("value") for each in case.iter("property")}
    return float(values.get("processor") or case.get("processor") or 0)


def _reason(skipped):
    """Return why a test was skipped; for a whole module the reason is at the end of the text."""
    # GoogleTest puts the place of the skip before the reason.
    message = skipped.get("message", "").strip().rpartition("\n")[2]
    match = re.search(r"(?:Skipped|SkipTest): (.*?)['\"]?\)?$", skipped.text or "")
    return match[1] if message == "collection skipped" and match else message


def count_cpp_tests():
    """Return the number of C++ tests in the sources."""
    sources = (path.read_text("utf-8") for path in (TESTS / "cpp").rglob("*_test.cc"))
    return sum(len(re.findall(r"^TEST(?:_F|_P)?\(", text, re.MULTILINE)) for text in sources)


def _steps(folder):
    """Return the name and the seconds of each step of the Makefile, in the order of their ends."""
    path = folder / "steps.txt"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    fields = (line.split(" ", 2) for line in lines)
    return [(name, {"seconds": float(s), "processor": float(p)}) for s, p, name in fields]


def _print_times(title, times):
    if times:
        print(f"\n{title:<64}{'seconds':>10}{'processor':>10}")
    for name, each in times:
        print(f"{name:<64}{each['seconds']:>10.0f}{each['processor']:>10.0f}")


def main(target, folder, *parts):
    """Print the table of the runs of these parts, whose results are in the folder."""
    rows, reasons, files = read(Path(folder))
    if "test-cpp" in parts and ("", "tests/cpp") not in rows:
        rows["", "tests/cpp"]["skipped"] = reasons[NO_GTEST] = count_cpp_tests()
    columns = ("passed", "failed", "skipped", "seconds", "processor")
    print(f"\n{'tests':<18}{'run':<16}" + "".join(f"{name:>10}" for name in columns))
    for (run, tests_folder), row in sorted(rows.items()):
        counts = "".join(f"{row[name]:>10.0f}" for name in columns)
        print(f"{tests_folder:<18}{run:<16}{counts}")
    slowest = sorted(files.items(), key=lambda file: -file[1]["seconds"])[:SLOWEST]
    _print_times("slowest files", [(f"{file} {run}", each) for (run, file), each in slowest])
    _print_times("steps", _steps(Path(folder)))
    if reasons:
        print("\nskipped, and how to enable:")
        for reason, count in reasons.most_common():
            print(f"{count:>5}  {reason}")
    if target == "test":
        print(f"\n{NOT_IN_TEST}")
    if target != "test-release":
        print(f"\n{NOT_IN_ALL}")


if __name__ == "__main__":
    main(*sys.argv[1:])
