"""Skips tests that need modules that are not installed, or what the library does not have."""

import importlib.util
import json
import unittest

import pytest

from multiverso._native import library

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


#: The platform of the library, which `MULTIVERSO_LIBRARY` may name.
PLATFORM = json.loads(library.lib.MV_BuildInfo())["platform"]

needs_found_sessions = pytest.mark.skipif(
    PLATFORM != "linux", reason=f"processes cannot find sessions with the library for {PLATFORM}"
)
