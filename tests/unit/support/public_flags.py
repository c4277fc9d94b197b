"""Finds the arguments of public functions that are True or False, and tests what they reject."""

import dataclasses
import importlib
import inspect
import re

import numpy as np

#: Values that Python takes for true or false, of which a caller may have meant another argument.
WRONG_FLAGS = (
    *(0, 1, 2, 0.0, "", "False", "no", b"", [], [True], [1, 2], (), (0,), {}, range(3)),
    *(np.float32(1), np.int64(0), np.ones(1), np.zeros(2, np.bool_), np.s_[1:3], object(), 10**400),
)


def flags_of(*modules):
    """Return the public functions, constructors and methods, each with its flags."""
    found = {}
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            functions = {name: value}
            is_record = dataclasses.is_dataclass(value)  # which the package makes
            if is_record or getattr(value, "__name__", name) != name:  # or a second name
                continue
            if inspect.isclass(value):
                functions = {
                    name if method == "__init__" else f"{name}.{method}": function
                    for method, function in inspect.getmembers(value, inspect.isfunction)
                    if method == "__init__" or not method.startswith("_")
                }
            for function_name, function in functions.items():
                # What an adapter inherits from a framework belongs to the framework.
                if getattr(function, "__module__", "").startswith("multiverso"):
                    found |= {function_name: _flags(function)}
    return {name: flags for name, flags in found.items() if flags}


def _flags(function):
    return {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation in ("bool", bool, "bool | None", bool | None)
    }


def check_rejections(case, flags, calls):
    """Check that each call rejects wrong values of each of its flags by name."""
    case.assertEqual(set(flags), set(calls))
    for name, call in calls.items():
        for flag in flags[name]:
            for value in WRONG_FLAGS:
                with case.subTest(f"{name}({flag}={value!r})"):
                    with case.assertRaises((TypeError, ValueError)) as caught:
                        call(**{flag: value})
                    expected = re.escape(f"{flag}: expected True or False, received ")
                    case.assertRegex(str(caught.exception), f"^{expected}")
