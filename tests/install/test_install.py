"""The package as a user installs it: an sdist, the wheel built from it, a new environment."""

import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import unittest
import venv
import zipfile
from pathlib import Path

import pytest
from programs import output_of as run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: Options of CMake for a build that takes little time, without optimization.
FAST_BUILD = "-DMULTIVERSO_PRECOMPILE=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_BUILD_TYPE=None"
LIBRARY = "multiverso/_lib/libmultiverso.so"
PROGRAM = """
import sys
import multiverso as mv

with mv.session():
    table = mv.ArrayTableHandler(3, init_value=[1, 2, 3])
    table.add([10, 20, 30])
    print(mv.__version__, mv.__file__, *table.get())
assert "mpi4py.MPI" not in sys.modules, "one rank needs no MPI"
"""


def run_lines(dockerfile):
    """Return the shell commands of a Dockerfile."""
    return re.findall(r"^RUN (.+)$", (ROOT / dockerfile).read_text("utf-8"), re.MULTILINE)


class TestDevelopmentContainer(unittest.TestCase):
    @unittest.skipUnless(shutil.which("apt-get"), "needs apt-get")
    def test_packages_exist(self):
        (line,) = run_lines(".devcontainer/Dockerfile")
        with tempfile.TemporaryDirectory() as folder:
            # The packages are looked up, but not installed on this machine.
            simulation = Path(folder, "apt-get")
            real = shutil.which("apt-get")
            simulation.write_text(f'#!/bin/sh\n[ "$1" = update ] || exec {real} --simulate "$@"\n')
            simulation.chmod(0o755)
            run("sh", "-c", line, PATH=os.pathsep.join([folder, os.environ["PATH"]]))

    def test_command_after_the_creation_makes_targets(self):
        settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
        program, *targets = settings["postCreateCommand"].split()
        run(program, "--dry-run", *targets, cwd=ROOT)


class TestInstall(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multiverso-install-")
        cls.addClassCleanup(folder.cleanup)
        cls.tmp = Path(folder.name)
        # A copy without the egg-info of earlier builds, whose files setuptools would add even if
        # MANIFEST.in lacks them, and without caches that other tests write at the same time.
        patterns = (".*env*", ".git", ".*_cache", "build", "*.egg-info", "__pycache__", "_lib")
        ignored = shutil.ignore_patterns(*patterns)
        cls.clone = source = shutil.copytree(ROOT, cls.tmp / "tree", ignore=ignored)
        build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
        run(sys.executable, "-c", build, cls.tmp, cwd=source)
        (cls.sdist,) = cls.tmp.glob("*.tar.gz")
        cls.build_wheel, cls.install_wheel = run_lines("Dockerfile")
        programs = Path(sys.executable).parent
        cls.shell(cls.build_wheel, programs, CMAKE_ARGS=FAST_BUILD, timeout=550)
        (cls.wheel,) = cls.tmp.glob("wheels/*.whl")

    @classmethod
    def shell(cls, line, programs, **environ):
        """Run a line of the Dockerfile in this folder, with these programs first on the PATH."""
        line = line.replace("/source", str(cls.sdist)).replace("/wheels", str(cls.tmp / "wheels"))
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        return run("sh", "-c", line, cwd=cls.tmp, PATH=path, **environ)

    @unittest.skipUnless((ROOT / ".git").exists(), "needs a clone")
    def test_sdist_contains_the_clone_and_no_build_output(self):
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertEqual(set(run("git", "ls-files", cwd=ROOT).splitlines()) - names, set())
        built = [n for n in names if n.endswith((".so", ".o", ".pyc")) or n.startswith("build/")]
        self.assertEqual(built, [])

    def test_wheel_fits_every_python_and_contains_no_mpi(self):
        self.assertRegex(self.wheel.name, r"^multiverso-.+-py3-none-\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = set(archive.namelist())
        self.assertLessEqual({LIBRARY, "multiverso/py.typed", "multiverso/errors.py"}, names)
        self.assertEqual([n for n in names if ".so" in n], [LIBRARY])
        top_level = {name.split("/")[0].partition("-")[0] for name in names}
        self.assertEqual(top_level, {"multiverso", "multiverso_torch_backend.py"})
        # The folder of the package is an install prefix for C programs.
        for name in (
            "include/multiverso/c_api.h",
            "include/multiverso/constants.h",
            "share/cmake/multiverso/multiverso-config.cmake",
            "share/cmake/multiverso/multiverso-targets.cmake",
            "share/pkgconfig/multiverso.pc",
        ):
            self.assertIn(f"multiverso/{name}", names)

    def test_readme_works_word_by_word_in_the_folder_of_a_clone(self):
        readme = (ROOT / "README.md").read_text("utf-8")
        install, start = re.findall(r"^((?:pip install|multiverso run) .*)$", readme, re.M)[:2]
        install_mpi, start_mpi = re.findall(r"^((?:pip install '|mpirun ).*)$", readme, re.M)[:2]
        program = re.search(r"complete `train.py`.*?```python\n(.*?)```", readme, re.DOTALL)[1]
        (self.clone / "train.py").write_text(program, "utf-8")
        venv.create(self.tmp / "readme", with_pip=True)
        with zipfile.ZipFile(self.wheel) as archive:  # It need not be compiled again.
            library = archive.extract(LIBRARY, self.tmp)
        programs = self.tmp / "readme" / "bin"

        def shell(line):
            path = os.pathsep.join([str(programs), os.environ["PATH"]])
            return run("sh", "-c", line, cwd=self.clone, PATH=path, PYTHONPATH="", **variables)

        variables = {"MULTIVERSO_PREBUILT_LIBRARY": library, "PIP_QUIET": "1"}
        shell(install)
        for line, workers in {start: r"\d+", "python train.py": 1}.items():
            self.assertRegex(shell(line), rf"^{workers} worker\(s\) found")
        shell(install_mpi)
        for line, workers in {start_mpi: 4, "mpirun -np 2 python train.py": 2}.items():
            self.assertRegex(shell(line), rf"^{workers} worker\(s\) found")
        used = json.loads(shell("python -m multiverso info --json"))
        self.assertEqual(used["package"], str(self.clone / "multiverso"))
        self.assertTrue(Path(used["library"]["path"]).is_relative_to(self.tmp / "readme"), used)

    def test_wheel_runs_in_a_new_environment(self):
        venv.create(self.tmp / "env", with_pip=True)
        python = self.tmp / "env" / "bin" / "python"
        self.shell(self.install_wheel, python.parent, PIP_QUIET="1")
        version, module, *values = run(python, "-I", "-c", PROGRAM, cwd=self.tmp).split()
        self.assertIn(f"-{version}-", self.wheel.name)
        self.assertTrue(Path(module).is_relative_to(self.tmp / "env"), module)
        self.assertEqual([float(value) for value in values], [11, 22, 33])
        # The programs of the package are inside it.
        commands = python.with_name("multiverso")
        output = run(commands, "demo", "-np", 2, cwd=self.tmp)
        self.assertIn("workers 2", output)
        self.assertIn("OperationTimeout", run(commands, "explain", "9", cwd=self.tmp))
        run(commands, "examples", "--copy", self.tmp / "copy", cwd=self.tmp)
        self.assertTrue((self.tmp / "copy" / "numpy" / "logistic_regression.py").is_file())
        self.assertTrue((Path(module).parent / "_benchmarks" / "tables.py").is_file())
        # With the package as the prefix, a C program finds the same library.
        build = self.tmp / "build-c"
        prefix = f"-DCMAKE_PREFIX_PATH={Path(module).parent}"
        run("cmake", "-S", ROOT / "examples" / "c", "-B", build, prefix, cwd=self.tmp)
        run("cmake", "--build", build, cwd=self.tmp)
        self.assertIn(
            "1 worker(s) found 1.00 -2.00", run(build / "linear_regression", cwd=self.tmp)
        )
