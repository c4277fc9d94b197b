"""Combinations that the table refuses raise its sentence, and pairs that it does not refuse work.

tests/mpi/test_combinations.py has those that need several ranks or nodes.
"""

import itertools
import re
import unittest

from sessions import SessionCleanupTestCase

import combinations
from multiverso._native.supported import check, features, refusal_of, refusals

#: Refusals that no Python program on Linux can get, with the tests that get them.
ELSEWHERE = {
    frozenset(("elastic", "not Linux")): "tests/mpi/test_posix.py",
    frozenset(("on disk", "not Linux")): "tests/mpi/test_posix.py",
    frozenset(("not Linux", "attach")): "tests/mpi/test_posix.py",
    frozenset(("keys", "live view")): "tests/cpp/table/table_test.cc: a HashTable has no view",
    frozenset(("row-wise updater", "ParamSync")): "tests/cpp/table/param_sync_test.cc",
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


class TestTheTable(unittest.TestCase):
    def test_every_refusal_is_of_features_that_a_test_can_use(self):
        for refusal in refusals():
            if refusal.features not in ELSEWHERE:
                with self.subTest(refusal.features):
                    self.assertLessEqual(refusal.features, combinations.KNOWN)

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
