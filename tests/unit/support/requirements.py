"""Skips tests that need modules that are not installed."""

import importlib.util
import unittest

#: The frameworks with the interface of Theano. A test that needs one runs with any of them.
THEANOS = ("pytensor", "aesara", "theano")


def is_installed(module):
    """Return whether a module, or any one of a tuple of modules, is installed."""
    modules = module if isinstance(module, tuple) else (module,)
    return any(map(importlib.util.find_spec, modules))


def needs(*modules):
    """Return a decorator that skips a test or class unless `is_installed` holds for all modules."""
    missing = [module for module in modules if not is_installed(module)]
    names = [" or ".join(name) if isinstance(name, tuple) else name for name in missing]
    return unittest.skipIf(missing, f"needs {' and '.join(names)}")
