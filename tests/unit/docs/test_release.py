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
    def test_pages_and_examples_name_the_version(self):
        minor = mv.__version__.rpartition(".")[0]
        for name, expected in {
            "docs/c.md": f"find_package(multiverso {minor} ",
            "examples/c/CMakeLists.txt": f"find_package(multiverso {minor} ",
            "docs/upgrading.md": f" to {minor}\n",
            "RELEASING.md": f"git tag -a v{mv.__version__} ",
            "CHANGELOG.md": f"## [{mv.__version__}] - ",
        }.items():
            with self.subTest(name):
                self.assertIn(expected, text_of(name))

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
        self.assertIn("class PyMultiverso(PythonPackage)", spack)  # of the folder py_multiverso
        commands = [f"{name} = {place}\n" for name, place in project["project"]["scripts"].items()]
        self.assertTrue(all(command in conda for command in commands), commands)
