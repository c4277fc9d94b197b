"""Few functions know many features, and each feature has a price.

A function that knows four features changes with each of them, and its tests multiply. So the
functions here are listed by name: the list may only become shorter.
"""

import ast
import unittest

from features import (
    CROSSING,
    OTHER,
    PLAIN,
    ROOT,
    core_functions,
    functions,
    known_features,
    package_functions,
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


class TestTheCount(unittest.TestCase):
    CORE = """
namespace multiverso {
class Example : public Other {
 public:
  explicit Example(int a)
      : a_{a} {}
  int rows() const { return row_ids[0]; }
  template <class Body>
  Status Each(Body body) const {
    for (int i = 0; i < a_; ++i) {
      body(keys);
    }
    return Status::Ok();
  }

 private:
  int a_ = 0;
};

Status Example::Run(int a,
                    int b) const {
  const auto name = [](int c) {
    return c;
  };
  return name(a) ? elastic : wire;
}
"""

    PACKAGE = '''
class Example:
    """A class with `elastic`."""

    def run(self):
        """Say nothing about `elastic`."""

        def inner():
            return wire
'''

    def test_functions_of_the_core_are_found(self):
        found = [(name, known_features(text)) for name, text in core_functions(self.CORE)]
        self.assertEqual(found, [("Each", ["keys"]), ("Example::Run", ["elastic", "wire"])])

    def test_functions_of_the_package_are_found_without_docstrings(self):
        found = package_functions(ast.parse(self.PACKAGE))
        self.assertEqual(
            [(name, known_features(text)) for name, text in found],
            [("Example.run", ["wire"]), ("Example.run.inner", ["wire"])],
        )
