"""The map in src/README.md names every header once, and members and tests that exist."""

import re
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SRC = ROOT / "src"
MAP = (SRC / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

#: One row of the map per header, with its purpose.
ROW = re.compile(r"^\| `([\w/]+\.h)` \| (\S.*) \|$", re.MULTILINE)
#: A member of a C++ class, in the form that the call paths use.
MEMBER = re.compile(r"`([A-Z]\w+)::(\w+)[()`]")
#: A method of a Python class.
METHOD = re.compile(r"`(_?[A-Z]\w+)\.(\w+)[()`]")
NAMED_TEST = re.compile(r"`(tests/[\w/.]+)::(\w+)`")


class TestSourceMap(unittest.TestCase):
    def test_every_header_has_one_row_and_every_row_a_header(self):
        rows = Counter(header for header, _ in ROW.findall(MAP))
        headers = Counter(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.h"))
        self.assertGreater(len(headers), 100)
        self.assertEqual(rows, headers)

    def test_call_paths_name_members_that_exist(self):
        files = [*SRC.rglob("*.h"), *SRC.rglob("*.cc")]
        code = "\n".join(path.read_text("utf-8") for path in files)
        pages = MAP + CONTRIBUTING + (ROOT / "docs" / "architecture.md").read_text("utf-8")
        members = set(MEMBER.findall(pages))
        self.assertGreater(len(members), 20)
        for name, member in sorted(members):
            with self.subTest(f"{name}::{member}"):
                self.assertRegex(code, rf"(class|struct) [^;{{]*\b{name}\b")
                self.assertRegex(code, rf"\b{member}\b")

    def test_call_paths_name_methods_that_exist(self):
        modules = [path.read_text("utf-8") for path in (ROOT / "multiverso").rglob("*.py")]
        methods = {(name, method) for name, method in METHOD.findall(MAP) if method != "h"}
        self.assertGreater(len(methods), 5)
        for name, method in sorted(methods):
            with self.subTest(f"{name}.{method}"):
                having = [code for code in modules if re.search(rf"^class {name}\b", code, re.M)]
                self.assertTrue(any(re.search(rf"^    def {method}\(", c, re.M) for c in having))


class TestPromises(unittest.TestCase):
    def test_named_tests_exist(self):
        named = NAMED_TEST.findall(CONTRIBUTING)
        self.assertGreater(len(named), 5)
        for file, name in named:
            with self.subTest(f"{file}::{name}"):
                self.assertRegex((ROOT / file).read_text("utf-8"), rf"\b{name}\b")
