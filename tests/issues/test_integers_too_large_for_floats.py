"""Integers too large for a float, as options or timeouts, raise ValueError, not OverflowError."""

import unittest

import multiverso as mv


class TestIntegersTooLargeForFloats(unittest.TestCase):
    def test_options_and_timeouts_raise_value_error(self):
        with self.assertRaisesRegex(ValueError, "timeout: expected a finite number of seconds"):
            mv.init(timeout=10**400)
        with mv.session():
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                mv.ArrayTableHandler(2, updater="sgd", learning_rate=10**400)
            table = mv.ArrayTableHandler(2, updater="sgd", learning_rate=0.5)
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                table.set_option(learning_rate=-(10**400))
            self.assertEqual(table.options, {"learning_rate": 0.5})
