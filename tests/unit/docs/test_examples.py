"""Every public name of the Python reference has an example in a docstring, and the examples run."""

import ast
import collections
import doctest
import functools
import importlib
import re
import unittest
from pathlib import Path

import pytest
from page_blocks import missing_modules, modules_of
from programs import run_python

ROOT = Path(__file__).resolve().parents[3]

#: Methods that a program does not call: a framework or the package does, or the name is a former
#: one, which gets no example, so that nobody learns it.
NOT_CALLED = re.compile(
    r"on_(train|epoch)\w+|build|call|compute_\w+|forward|extra_repr|from_config|get_(build_)?config"
    r"|tree_\w+|zero_grad|add_param_group|error|set_file"
    r"|require_room|unscale|force|compile_model|count_data|check"
    r"|sync_all|mv_sync|update_all_param"
)

#: Errors that a program handles as those of their base classes, which have an example.
ERRORS = {"AbortedError", "InternalError", "OperationTimeout", "PeerLostError", "TransportError"}

#: The docstring of a function that has a new name says so.
FORMER = re.compile(r"which replaces this function|older scripts use this name")

#: The packages that need a framework, whether their examples import it or not.
OF_FRAMEWORKS = re.compile(r"multiverso\.(\w+_ext|learn)\b")

#: Runs the examples of modules whose frameworks are installed, and prints of how many modules.
RUN = """
import doctest, importlib, importlib.util, sys
from multiverso.learn import choose_backend
if importlib.util.find_spec("keras"):
    # PyTorch starts faster than TensorFlow, the default, which may not be installed.
    choose_backend("torch" if importlib.util.find_spec("torch") else None)
ran = 0
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    results = doctest.testmod(module)
    if results.failed or not results.attempted:
        sys.exit(f"{name}: {results}")
    ran += 1
print(ran)
"""


@functools.cache
def definitions_in(module):
    """Return the classes and functions that the file of a module defines, by name."""
    return {
        node.name: node
        for node in tree_of(module).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }


@functools.cache
def tree_of(module):
    """Return the syntax tree of a module."""
    base = ROOT.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def public_modules():
    """Return the modules whose names have no part that begins with an underscore."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "multiverso").rglob("*.py")]
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(name for name in names if "._" not in name)


def public_names():
    """Return {(module, name): node} for each public class and function, where it is defined.

    Public are the names in ``__all__`` of a public module, or, without it, all that it defines and
    that do not begin with an underscore.
    """
    found = {}
    for module in public_modules():
        defined, exported, imported = definitions_in(module), None, {}
        top = tree_of(module).body
        # Names that are imported when they are first used are below "if TYPE_CHECKING".
        typed = [node for part in top if isinstance(part, ast.If) for node in part.body]
        for node in top + typed:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                exported = ast.literal_eval(node.value)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("multiverso."):
                imported |= {alias.asname or alias.name: node.module for alias in node.names}
        if exported is None:
            exported = [name for name in defined if not name.startswith("_")]
        for name in exported:
            home = module if name in defined else imported.get(name)
            if home is not None and name in definitions_in(home):
                found[home, name] = definitions_in(home)[name]
    return found


def examples_of(node):
    """Return the statements in the examples of a docstring, as one text."""
    found = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
    return "".join(example.source for example in found)


def methods_of(node):
    """Return the public methods of a class."""
    members = node.body if isinstance(node, ast.ClassDef) else ()
    return [
        member
        for member in members
        if isinstance(member, ast.FunctionDef)
        and not member.name.startswith("_")
        and not NOT_CALLED.fullmatch(member.name)
        and not any(ast.unparse(mark).endswith("property") for mark in member.decorator_list)
    ]


def all_examples():
    """Return the statements of all examples of the package."""
    texts = []
    for path in (ROOT / "multiverso").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                texts.append(examples_of(node))
    return "\n".join(texts)


def needs_a_framework(module, code):
    """Return whether a module or the code of its examples needs more than NumPy."""
    return bool(OF_FRAMEWORKS.match(module) or modules_of(code))


def modules_with_examples():
    """Return {module: code of its examples} of the modules that define public names."""
    found = {}
    for (module, _), node in public_names().items():
        texts = [examples_of(part) for part in (node, *methods_of(node))]
        found[module] = found.get(module, "") + "".join(texts)
    return found


class TestExamples(unittest.TestCase):
    def test_every_public_class_and_function_has_an_example(self):
        names = public_names()
        self.assertGreater(len(names), 100)
        missing = [
            f"{module}.{name}"
            for (module, name), node in names.items()
            if not (examples_of(node) or FORMER.search(ast.get_docstring(node)) or name in ERRORS)
        ]
        self.assertEqual(missing, [])

    def test_an_example_calls_or_overrides_every_public_method(self):
        examples = all_examples()
        seen = 0
        for (_, name), node in public_names().items():
            for method in methods_of(node):
                seen += 1
                with self.subTest(f"{name}.{method.name}"):
                    self.assertTrue(re.search(rf"(\.|\bdef ){method.name}\(", examples))
        self.assertGreater(seen, 50)

    def test_examples_run(self):
        seen = 0
        for module, code in modules_with_examples().items():
            if not needs_a_framework(module, code):
                seen += 1
                with self.subTest(module):
                    results = doctest.testmod(importlib.import_module(module))
                    self.assertEqual(results.failed, 0)
        self.assertGreater(seen, 10)

    @pytest.mark.frameworks
    def test_examples_with_frameworks_run(self):
        # Each package has a process of its own, because frameworks do not share one well.
        packages = collections.defaultdict(list)
        for module, code in modules_with_examples().items():
            if needs_a_framework(module, code) and not missing_modules(code):
                packages[".".join(module.split(".")[:2])].append(module)
        ran = 0
        for package, modules in packages.items():
            with self.subTest(package):
                status, output, errors = run_python("-c", RUN, *modules, cwd=ROOT)
                self.assertEqual(status, 0, output + errors)
                ran += int(output.split()[-1])
        self.assertGreater(ran, 0)


class TestTheChecks(unittest.TestCase):
    def test_follows_exports_to_private_modules(self):
        names = public_names()
        self.assertIn(("multiverso.tables._array_table", "ArrayTable"), names)
        self.assertIn(("multiverso._session.spawn", "spawn"), names)
        self.assertNotIn(("multiverso._session.process", "current"), names)

    def test_finds_examples_in_docstrings_only(self):
        node = ast.parse('def f():\n    """Do.\n\n    >>> f()\n    """\n').body[0]
        self.assertEqual(examples_of(node), "f()\n")
        self.assertEqual(examples_of(ast.parse("def f(): 'Do.'").body[0]), "")
