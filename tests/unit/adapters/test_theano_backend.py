"""Which of PyTensor, Aesara and Theano the adapter takes, whichever are installed."""

import sys
import types
import unittest
from unittest import mock

from programs import run_program

from multiverso.theano_ext import _backend


class TestBackends(unittest.TestCase):
    def modules(self, **present):
        names = dict.fromkeys(_backend.BACKENDS)
        fakes = {name: types.ModuleType(name) for name in present}
        for name, fake in fakes.items():
            vars(fake).update(present[name])
        return mock.patch.dict(sys.modules, {**names, **fakes})

    def test_the_imported_one_is_chosen(self):
        for name in _backend.BACKENDS:
            with self.modules(**{name: {"shared": print}}):
                self.assertEqual(_backend.choose_backend().__name__, name)

    def test_of_several_imported_ones_the_choice_is_always_the_same(self):
        whole = {"shared": print}
        with self.modules(theano=whole, pytensor=whole, aesara=whole):
            self.assertEqual(_backend.choose_backend().__name__, "pytensor")
        with self.modules(theano=whole, aesara=whole):
            self.assertEqual(_backend.choose_backend().__name__, "aesara")

    def test_a_module_that_is_not_the_framework_is_passed_over(self):
        with self.modules(pytensor={}, theano={"shared": print}):
            self.assertEqual(_backend.choose_backend().__name__, "theano")

    def test_without_any_the_error_says_what_to_install(self):
        text = "pip install pytensor.*pytensor is not installed.*Theano is not installed"
        with self.modules(), self.assertRaisesRegex(ImportError, text):
            _backend.choose_backend()

    def test_importing_the_adapter_imports_no_framework(self):
        code = """
            import sys
            import multiverso
            import multiverso.theano_ext.sharedvar
            print(sorted({"pytensor", "aesara", "theano"} & set(sys.modules)))
        """
        self.assertEqual(run_program(code), (0, "[]\n", ""))
