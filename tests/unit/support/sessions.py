"""What tests of sessions stand on."""

import unittest

import multiverso as mv


class ClosesSession(unittest.TestCase):
    """Leaves no session open, however a test ended."""

    def tearDown(self):
        if mv.is_initialized():
            mv.shutdown()
