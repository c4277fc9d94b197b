"""The choice between PyTensor, Aesara and Theano, with stubs of all three."""

import sys
import types
import unittest
from unittest import mock

from multiverso.theano_ext import _backend


class TestBackends(unittest.TestCase):
    def installed(self, **present):
        """Return a patch with which only stubs of these backends can be imported."""
        fakes = {name: types.SimpleNamespace(__name__=name, **present[name]) for name in present}
        return mock.patch.dict(sys.modules, {**dict.fromkeys(_backend.BACKENDS), **fakes})

    def test_chooses_the_imported_backend(self):
        for name in _backend.BACKENDS:
            with self.installed(**{name: {"shared": print}}):
                self.assertEqual(_backend.choose_backend().__name__, name)

    def test_prefers_pytensor_then_aesara_then_theano(self):
        stub = {"shared": print}
        with self.installed(theano=stub, pytensor=stub, aesara=stub):
            self.assertEqual(_backend.choose_backend().__name__, "pytensor")
        with self.installed(theano=stub, aesara=stub):
            self.assertEqual(_backend.choose_backend().__name__, "aesara")

    def test_ignores_modules_that_are_not_the_framework(self):
        with self.installed(pytensor={}, theano={"shared": print}):
            self.assertEqual(_backend.choose_backend().__name__, "theano")

    def test_error_without_a_backend_says_what_to_install(self):
        text = r"pip install 'pytensor.*pytensor is not installed.*Theano is not installed"
        with self.installed(), self.assertRaisesRegex(ImportError, text):
            _backend.choose_backend()
