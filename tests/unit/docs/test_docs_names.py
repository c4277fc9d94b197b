"""Functions, errors, environment variables and files that the pages name exist."""

import ast
import builtins
import functools
import importlib
import itertools
import re
import unittest
from pathlib import Path

import c_header
from project import PYPROJECT

import multiverso

ROOT = Path(__file__).resolve().parents[3]
# The change log also contains names that no longer exist.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "src/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
HEADER = c_header.TEXT

# `mv.x.y` and `multiverso.x.y`; FILE_NAME finds those that are files, such as multiverso.git.
PYTHON_NAME = re.compile(r"(?<![\w./:-])(?:mv|multiverso)\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
FILE_NAME = re.compile(r"multiverso\.(?:h|so|git|lua|dll|pc)$")
METHOD = re.compile(r"`(?:t|m|table|matrix)\.(\w+)")
C_NAME = re.compile(r"\bMV_[A-Za-z]\w*")
VARIABLE = re.compile(r"\bMULTIVERSO_[A-Z_]+\b")
ERROR = re.compile(r"`([A-Z][a-z]\w*(?:Error|Timeout|Interrupt|Warning))`")
OWN_FILE = re.compile(r"(?<![\w./])(?:benchmarks|docs|examples|lua|src|tests)/[\w./-]*\w")
INSTALLED = re.compile(r"""pip install (?:-\S+ )*['"]?(\.(?:\[[\w,]+\])?|\w[\w-]*)""")


def text_of(page):
    """Return the text of a page without Lua code and without former names.

    Those names are in the first column of the tables of migration.md and upgrading.md.
    """
    text = page.read_text("utf-8")
    text = re.sub(r"^```lua\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    if page.name in ("migration.md", "upgrading.md"):
        text = "\n".join(row if cells is None else cells[1] for row, cells in rows(text))
        text = text.replace("multiverso::", "")
        text = re.sub(r"`MV_CreateTable`|MV_CreateTable", "", text)
    return text


def rows(text):
    """Return (line, None), or (line, [first cell, the others]) if the line is a table row."""
    return [
        (line, line.strip().strip("|").split(" | ", 1) if line.startswith("| ") else None)
        for line in text.splitlines()
    ]


@functools.cache
def exists(name):
    """Return whether a dotted Python name exists: a module, or an attribute in one."""
    parts = name.split(".")
    parts[0] = "multiverso"
    for end in range(len(parts), 0, -1):
        if module_file(parts[:end]) is not None:
            return has(".".join(parts[:end]), parts[end:])
    return False


def module_file(parts):
    """Return the file of a module of this package, or None."""
    base = Path(multiverso.__file__).parents[1].joinpath(*parts)
    paths = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in paths if path.is_file()), None)


def has(module, attributes):
    """Return whether a module has an attribute, given as a path of names.

    If a framework that the module imports is missing, the source of the module is read instead.
    """
    try:
        found = importlib.import_module(module)
    except ImportError:
        return in_source(module, attributes[:1])
    missing = object()
    for attribute in attributes:
        found = getattr(found, attribute, missing)
    return found is not missing


def in_source(module, attributes):
    """Return whether the source of a module defines or imports all these names.

    It does so at its top level, or in a ``with`` statement there.
    """
    top = ast.parse(module_file(module.split(".")).read_text("utf-8")).body
    blocks = [top, *(node.body for node in top if isinstance(node, ast.With))]
    names = set()
    for node in itertools.chain(*blocks):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return in_source(node.module, attributes)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return set(attributes) <= names


def names_in(text, pattern):
    """Return the distinct matches of a pattern, in the order of their first occurrence."""
    return list(dict.fromkeys(pattern.findall(text)))


@functools.cache
def sources():
    """Return all files in which an environment variable may be read, as one text."""
    patterns = ("src/**/*.cc", "src/**/*.h", "multiverso/**/*.py", "lua/**/*.lua", "tests/**/*.py")
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    paths += [ROOT / name for name in ("CMakeLists.txt", "Makefile", "setup.py")]
    return "\n".join(path.read_text("utf-8") for path in paths)


class TestNames(unittest.TestCase):
    def check(self, pattern, is_there, pages=PAGES):
        """Check that each match of the pattern in each page exists, and that there are matches."""
        seen = 0
        for page in pages:
            for name in names_in(text_of(page), pattern):
                seen += 1
                with self.subTest(f"{page.relative_to(ROOT)}: {name}"):
                    self.assertTrue(is_there(name), f"there is no {name}")
        self.assertGreater(seen, 3)

    def test_python_names_exist(self):
        self.check(PYTHON_NAME, lambda name: FILE_NAME.search(name) or exists(name))

    def test_table_methods_exist(self):
        tables = (multiverso.ArrayTable, multiverso.HashTable, multiverso.MatrixTable)
        self.check(METHOD, lambda name: any(hasattr(table, name) for table in tables))

    def test_c_api_names_exist(self):
        # A name that ends in an underscore, such as MV_ERR_, means every name with this prefix.
        self.check(C_NAME, lambda n: re.search(rf"\b{n}" + r"\b" * (not n.endswith("_")), HEADER))

    def test_error_names_exist(self):
        self.check(ERROR, lambda name: hasattr(multiverso.errors, name) or hasattr(builtins, name))

    def test_environment_variables_exist(self):
        self.check(VARIABLE, lambda name: re.search(rf"\b{name}\b", sources()))

    def test_file_names_exist(self):
        self.check(OWN_FILE, lambda name: (ROOT / name).exists())

    def test_pages_and_messages_install_what_an_index_or_the_clone_has(self):
        extras = PYPROJECT["project"]["optional-dependencies"]
        known = {re.match(r"[\w-]+", name)[0] for name in itertools.chain(*extras.values())}
        known = known - {"multiverso"} | {"pre-commit"}
        messages = "setup.py multiverso/**/*.py src/**/*.cc examples/**/*.py examples/**/*.ipynb"
        pages = [*PAGES, *(path for pattern in messages.split() for path in ROOT.glob(pattern))]
        self.check(INSTALLED, lambda n: n in known or {*re.findall(r"\w+", n)} <= {*extras}, pages)


class TestMigration(unittest.TestCase):
    def test_every_name_of_2016_maps_to_an_existing_one(self):
        text = (ROOT / "docs" / "migration.md").read_text("utf-8")
        seen = 0
        for line, cells in rows(text):
            if cells is None or "`" not in cells[0]:
                continue
            seen += 1
            with self.subTest(line):
                python_names, c_names = PYTHON_NAME.findall(cells[1]), C_NAME.findall(cells[1])
                other_answer = "not " in cells[1] or names_in(cells[1], VARIABLE)
                self.assertTrue(python_names or c_names or other_answer)
                for name in python_names:
                    self.assertTrue(exists(name), f"there is no {name}")
                for name in c_names:
                    self.assertTrue(re.search(rf"\b{name}\(", HEADER), f"there is no {name}")
        self.assertGreater(seen, 30)


class TestTheChecks(unittest.TestCase):
    def test_distinguishes_existing_names_from_missing_ones(self):
        for name in ("mv.init", "multiverso.sync.ParamSync.sync", "mv.ArrayTable.add_get",
                     "multiverso.torch_ext.TorchParamManager", "multiverso.errors"):  # fmt: skip
            self.assertTrue(exists(name), name)
        for name in ("mv.save_all", "multiverso.torch_ext.NoManager", "mv.ArrayTable.push"):
            self.assertFalse(exists(name), name)

    def test_finds_names_in_code_and_prose(self):
        text = "`mv.init(sync=True)` (mv.barrier) x/multiverso.py import multiverso.sync as s"
        self.assertEqual(names_in(text, PYTHON_NAME), ["mv.init", "mv.barrier", "multiverso.sync"])

    def test_reads_the_source_if_the_framework_is_missing(self):
        self.assertTrue(in_source("multiverso.torch_ext", ["DistributedOptimizer"]))
        self.assertFalse(in_source("multiverso.torch_ext", ["Missing"]))
