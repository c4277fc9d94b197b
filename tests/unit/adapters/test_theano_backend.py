"""The choice between PyTensor, Aesara and Theano, with stubs of all three."""

import sys
import types
import unittest
from unittest import mock

from multiverso.theano_ext import _backend


class TestBackends(unittest.TestCase):
    def modules(self, **present):
        fakes = {name: types.SimpleNamespace(__name__=name, **present[name]) for name in present}
        return mock.patch.dict(sys.modules, {**dict.fromkeys(_backend.BACKENDS), **fakes})

    def test_chooses_the_imported_backend(self):
        for name in _backend.BACKENDS:
            with self.modules(**{name: {"shared": print}}):
                self.assertEqual(_backend.choose_backend().__name__, name)

    def test_prefers_pytensor_then_aesara_then_theano(self):
        whole = {"shared": print}
        with self.modules(theano=whole, pytensor=whole, aesara=whole):
            self.assertEqual(_backend.choose_backend().__name__, "pytensor")
        with self.modules(theano=whole, aesara=whole):
            self.assertEqual(_backend.choose_backend().__name__, "aesara")

    def test_ignores_modules_that_are_not_the_framework(self):
        with self.modules(pytensor={}, theano={"shared": print}):
            self.assertEqual(_backend.choose_backend().__name__, "theano")

    def test_error_without_a_backend_says_what_to_install(self):
        text = "pip install pytensor.*pytensor is not installed.*Theano is not installed"
        with self.modules(), self.assertRaisesRegex(ImportError, text):
            _backend.choose_backend()
