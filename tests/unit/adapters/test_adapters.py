"""Each adapter imports only its own framework, and the former module names still work."""

import importlib.util
import os
import unittest
from pathlib import Path

import pytest
from programs import run_program

import multiverso

pytestmark = pytest.mark.frameworks

PACKAGE = Path(multiverso.__file__).parent

FRAMEWORKS = ("aesara", "jax", "keras", "lasagne", "pytensor", "tensorflow", "theano", "torch")
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")  # the default of Keras

# The frameworks that each adapter imports. A program imports the framework of theano_ext itself.
ADAPTER_FRAMEWORKS = {
    "jax_ext": {"jax"},
    "keras_ext": {"keras", BACKEND},
    "lasagne_ext": set(),
    "theano_ext": set(),
    "torch_ext": {"torch"},
}

# The names that programs import from modules that have since moved, by former module.
FORMER_NAMES = {
    "multiverso.theano_ext.sharedvar": ("MVSharedVariable", "mv_shared", "sync_all_mv_shared_vars"),
    "multiverso.theano_ext.param_manager": ("MVModelParamManager",),
    "multiverso.theano_ext.lasagne_ext.param_manager": ("LasagneParamManager", "MVNetParamManager"),
    "multiverso.theano_ext.keras_ext.callbacks": ("MVCallback",),
    "multiverso.theano_ext.keras_ext.param_manager": ("KerasParamManager",),
}


def modules_in(folder):
    """Return the names of the public modules in an adapter's folder, without subfolders."""
    base = ".".join((PACKAGE.name, *folder.parts))
    names = sorted(path.stem for path in (PACKAGE / folder).glob("[a-z]*.py"))
    return [base, *(f"{base}.{name}" for name in names)]


class TestAdapters(unittest.TestCase):
    def test_adapters_import_no_other_framework(self):
        found = PACKAGE.rglob("*_ext/__init__.py")
        folders = sorted(path.parent.relative_to(PACKAGE) for path in found)
        self.assertGreater(len(folders), 3)
        for folder in folders:
            with self.subTest(str(folder)):
                allowed = ADAPTER_FRAMEWORKS[folder.name]
                if missing := [name for name in allowed if importlib.util.find_spec(name) is None]:
                    self.skipTest(f"needs {', '.join(missing)}")
                code = f"""
                    import importlib, sys
                    for name in {modules_in(folder)}:
                        importlib.import_module(name)
                    print(*sorted(set({FRAMEWORKS}) & set(sys.modules)))
                """
                status, printed, errors = run_program(code, KERAS_BACKEND=BACKEND)
                self.assertEqual(status, 0, errors)
                self.assertLessEqual(set(printed.split()), allowed)

    def test_package_imports_no_framework(self):
        code = f"import sys, multiverso; print(*set({FRAMEWORKS}) & set(sys.modules))"
        self.assertEqual(run_program(code), (0, "\n", ""))

    def test_former_module_names_still_work(self):
        for module, names in FORMER_NAMES.items():
            with self.subTest(module):
                if "keras" in module and importlib.util.find_spec("keras") is None:
                    self.skipTest("needs keras")
                code = f"from {module} import {', '.join(names)}"
                status, printed, errors = run_program(code)
                self.assertEqual((status, printed), (0, ""), errors)
