"""Options and timeouts too large for a float raised OverflowError instead of ValueError."""

import unittest

import multiverso as mv


class TestNumbersBeyondFloats(unittest.TestCase):
    def test_too_large_integers_raise_value_error(self):
        with self.assertRaisesRegex(ValueError, "timeout: expected a finite number of seconds"):
            mv.init(timeout=10**400)
        with mv.session():
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                mv.ArrayTableHandler(2, updater="sgd", learning_rate=10**400)
            table = mv.ArrayTableHandler(2, updater="sgd", learning_rate=0.5)
            with self.assertRaisesRegex(ValueError, "learning_rate: expected a finite number"):
                table.set_option(learning_rate=-(10**400))
            self.assertEqual(table.options, {"learning_rate": 0.5})
