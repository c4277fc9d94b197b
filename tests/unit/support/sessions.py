"""Base classes of tests that open sessions."""

import unittest

import multiverso as mv


class ClosesSession(unittest.TestCase):
    """Closes the session after each test, if one is open."""

    def tearDown(self):
        if mv.is_initialized():
            mv.shutdown()


class InSession(ClosesSession):
    """Opens a session before each test, and closes it afterwards."""

    def setUp(self):
        mv.init()
