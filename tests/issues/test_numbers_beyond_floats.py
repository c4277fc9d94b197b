"""A number that no float holds, as an option or a timeout, was an OverflowError."""

import unittest

import multiverso as mv


class TestNumbersBeyondFloats(unittest.TestCase):
    def test_they_are_a_value_error(self):
        with self.assertRaisesRegex(ValueError, "timeout: expected a finite number of seconds"):
            mv.init(timeout=10**400)
        with mv.session():
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                mv.ArrayTableHandler(2, updater="sgd", learning_rate=10**400)
            table = mv.ArrayTableHandler(2, updater="sgd", learning_rate=0.5)
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                table.set_option(learning_rate=-(10**400))
            self.assertEqual(table.options, {"learning_rate": 0.5})
