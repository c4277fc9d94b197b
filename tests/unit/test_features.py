"""Few functions know many features, and each feature has a price.

A function that knows four features changes with each of them, and its tests multiply. So the
functions here are listed by name: the list may only become shorter.
"""

import unittest

from features import (
    CROSSING,
    OTHER,
    PLAIN,
    ROOT,
    functions,
    known_features,
    prices,
)

from multiverso._native import supported

#: The features from which a function counts as a crossroads.
MANY = 4

#: All functions that know at least `MANY` features. Remove a line when its function knows fewer.
CROSSROADS = {
    "multiverso/_session/opening.py: resolve_options",
    "multiverso/_session/options.py: session_options",
    "multiverso/learn/_options.py: add_options",
    "src/c_api/session_api.cc: OptionsOf",
}

#: How many functions know one feature less. Lower it when there are fewer.
NEARLY = 51


class TestCrossroads(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.known = [(name, known_features(text)) for name, text in functions(ROOT)]

    def test_no_further_function_knows_many_features(self):
        found = {name: features for name, features in self.known if len(features) >= MANY}
        new = {name: features for name, features in found.items() if name not in CROSSROADS}
        self.assertEqual(new, {}, "Let each of these functions know fewer features.")
        self.assertEqual(sorted(CROSSROADS - set(found)), [], "Remove these from CROSSROADS.")

    def test_fewer_functions_nearly_do(self):
        found = sorted(name for name, features in self.known if len(features) == MANY - 1)
        listing = "\n".join(found)
        self.assertLessEqual(len(found), NEARLY, f"One of these knows a feature more:\n{listing}")
        self.assertEqual(len(found), NEARLY, "Lower NEARLY, which then stays lower.")


class TestPrices(unittest.TestCase):
    def test_each_feature_that_meets_others_has_a_price(self):
        given = [feature.parts for feature in CROSSING + OTHER if feature.parts]
        parts = [part for each in given for part in each.split(", ")]
        names = [feature.name for feature in supported.features()]
        self.assertEqual(sorted([*parts, *PLAIN]), sorted(names))

    def test_each_feature_has_words_and_files(self):
        for feature, price in zip(CROSSING + OTHER, prices(), strict=True):
            with self.subTest(feature.name):
                for glob in feature.files.split():
                    self.assertTrue(list(ROOT.glob(glob)), f"no file is {glob}")
                self.assertGreater(price.lines + price.asked, 0)
