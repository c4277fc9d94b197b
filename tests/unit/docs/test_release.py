"""What a release needs: recipes and pages that follow from pyproject.toml and the version."""

import re
import sys
import unittest
from pathlib import Path

import multiverso as mv

ROOT = Path(__file__).resolve().parents[3]


def text_of(name):
    return (ROOT / name).read_text("utf-8")


class TestRelease(unittest.TestCase):
    def test_pages_and_examples_name_the_version_for_cmake(self):
        expected = ".".join(mv.__version__.split(".")[:2])
        for name in ("docs/c.md", "examples/c/CMakeLists.txt"):
            with self.subTest(name):
                self.assertIn(f"find_package(multiverso {expected} ", text_of(name))

    @unittest.skipIf(sys.version_info < (3, 11), "needs tomllib of Python 3.11")
    def test_recipes_have_the_requirements_of_the_package(self):
        import tomllib

        project = tomllib.loads(text_of("pyproject.toml"))
        wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
        conda = text_of("packaging/conda/recipe.yaml")
        spack = text_of("packaging/spack/package.py")
        for requirement in wanted:
            name, least, below = re.fullmatch(
                r"([\w]+)>=([\d.]+)(?:,<(\d+))?", requirement
            ).groups()
            with self.subTest(requirement):
                self.assertIn(f"- {name} >={least}" + (f",<{below}" if below else "") + "\n", conda)
                package = name if name == "cmake" else f"py-{name}"
                limit = int(below) - 1 if below else ""
                self.assertIn(f'depends_on("{package}@{least}:{limit}", ', spack)
        commands = [f"{name} = {place}\n" for name, place in project["project"]["scripts"].items()]
        self.assertTrue(all(command in conda for command in commands), commands)
