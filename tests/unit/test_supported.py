"""Combinations that the table refuses raise its sentence, and pairs that it does not refuse work.

tests/mpi/test_combinations.py has those that need several ranks or nodes.
"""

import ast
import itertools
import re
import unittest
from collections.abc import Iterator
from pathlib import Path

from sessions import SessionCleanupTestCase

import combinations
from multiverso._native.supported import check, features, refusal_of, refusals

#: Refusals that no Python program on Linux can get, with the tests that get them.
ELSEWHERE = {
    frozenset(("elastic", "not Linux")): "tests/mpi/test_posix.py",
    frozenset(("on disk", "not Linux")): "tests/mpi/test_posix.py",
    frozenset(("not Linux", "attach")): "tests/mpi/test_posix.py",
    frozenset(("keys", "live view")): "tests/cpp/calls/table_test.cc: a HashTable has no view",
    frozenset(("row-wise updater", "ParamSync")): "tests/cpp/calls/param_sync_test.cc",
}

ROOT = Path(__file__).resolve().parents[2]

#: Words of errors about features that do not go together.
WORDS = re.compile(
    r"in sync mode|async mode|an? elastic|elastic one|several nodes|with staleness|on_peer_lost|"
    r"with backing|table of integers|a hash table"
)

#: Errors with these words that refuse something else: a state, or what a kind of table lacks.
OTHER_ERRORS = {
    "src/session/joining.cc": "expected the name of an elastic session",
    "src/table/table_spec.cc": "a hash table",
    "multiverso/checkpoint/_safetensors.py": "received a hash table, which add() can fill",
    "multiverso/tables/_on_disk.py": "stats: expected a table with backing or with keys",
}

NAMES = [feature.name for feature in features()]
ALONE = [
    refusal
    for refusal in refusals()
    if refusal.features not in ELSEWHERE and not refusal.features & combinations.OF_SEVERAL_RANKS
]
#: The pairs of features of a session of one rank and a table.
PAIRS = [
    pair
    for pair in itertools.combinations(NAMES, 2)
    if {combinations.group_of(name) for name in pair} <= {"session", "table"}
    and combinations.KNOWN - combinations.OF_SEVERAL_RANKS >= set(pair)
    and not combinations.is_choice(pair)
    and refusal_of(*combinations.completed(pair)) is None
]


def errors_of_core() -> Iterator[tuple[str, str]]:
    """Yield the file and the text of each error of the core, without what it inserts."""
    for path in sorted((ROOT / "src").rglob("*.[ch]*")):
        for error in re.findall(r"Status\(\s*Code::k\w+,(.*?)\);", path.read_text("utf-8"), re.S):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', error))
            yield path.relative_to(ROOT).as_posix(), text


def errors_of_package() -> Iterator[tuple[str, str]]:
    """Yield the file and the text of each error of the package, without what it inserts."""
    for path in sorted((ROOT / "multiverso").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Assign(targets=[ast.Name(id="msg")], value=message):
                    pass
                case ast.Raise(exc=ast.Call(args=[message, *_])):
                    pass
                case _:
                    continue
            parts = [each.value for each in ast.walk(message) if isinstance(each, ast.Constant)]
            yield path.relative_to(ROOT).as_posix(), "".join(map(str, parts))


class TestTheTable(unittest.TestCase):
    def test_every_refusal_is_of_features_that_a_test_can_use(self):
        for refusal in refusals():
            if refusal.features not in ELSEWHERE:
                with self.subTest(refusal.features):
                    self.assertLessEqual(refusal.features, combinations.KNOWN)

    def test_no_other_place_refuses_a_combination(self):
        errors = [*errors_of_core(), *errors_of_package()]
        self.assertGreater(len(errors), 500)
        for file, text in errors:
            allowed = file in OTHER_ERRORS and OTHER_ERRORS[file] in text
            if WORDS.search(text) and not allowed:
                self.fail(f"{file}: src/base/supported.cc should have the refusal: {text}")

    def test_unknown_feature_is_an_error(self):
        self.assertRaisesRegex(KeyError, "asink", check, "asink", "elastic")


class TestOneRank(SessionCleanupTestCase):
    def test_refused_combinations_raise_the_sentence(self):
        self.assertGreater(len(ALONE), 50)
        for refusal in ALONE:
            if combinations.is_possible(refusal.features):
                with self.subTest(refusal.features):
                    with self.assertRaisesRegex(refusal.error, re.escape(refusal.sentence)):
                        combinations.use(refusal.features)

    def test_other_pairs_work(self):
        self.assertGreater(len(PAIRS), 200)
        for pair in PAIRS:
            with self.subTest(pair):
                combinations.use(pair)
