"""C and C++ programs find an installed Multiverso with CMake and with pkg-config."""

import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import pytest
from programs import output_of as run

import launch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "c"
BUILD = ROOT / "build" / "cmake"
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
REGRESSION = r"{} worker\(s\) found 1\.00 -2\.00 0\.50"
HISTOGRAM = r"{} worker\(s\) counted 100 values of class 3, their sum is 49800"


@unittest.skipUnless(
    CMAKE and (BUILD / "cmake_install.cmake").exists(), f"needs {BUILD}: make test-cpp"
)
class TestInstalledPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multiverso-c-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        installed = cls.folder / "installed"
        run(CMAKE, "--install", BUILD, "--prefix", installed)
        # Its files contain relative paths only, so it also works after a move.
        cls.prefix = installed.rename(cls.folder / "moved")

    def test_cmake_finds_the_library_and_programs_run_on_one_and_three_ranks(self):
        build = self.folder / "build"
        run(CMAKE, "-S", EXAMPLES, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(CMAKE, "--build", build)
        for name, expected in (("linear_regression", REGRESSION), ("histogram", HISTOGRAM)):
            with self.subTest(name):
                program = str(build / name)
                self.assertRegex(run(program), expected.format(1))
                job = launch.run("native.py", program, "--mpi", np=3).check()
                self.assertEqual(len(re.findall(expected.format(3), job.output)), 1, job.output)

    def test_cmake_rejects_another_version(self):
        project = self.folder / "other"
        project.mkdir()
        text = (EXAMPLES / "CMakeLists.txt").read_text("utf-8")
        text = re.sub(r"find_package\(multiverso [\d.]+", "find_package(multiverso 99.0", text)
        self.assertIn("99.0", text)
        (project / "CMakeLists.txt").write_text(text, "utf-8")
        with self.assertRaisesRegex(AssertionError, r'with\s+requested\s+version\s+"99\.0"'):
            run(CMAKE, "-S", project, "-B", project / "b", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    @unittest.skipUnless(shutil.which("pkg-config"), "needs pkg-config: apt install pkg-config")
    def test_pkg_config_finds_the_library(self):
        (pc_file,) = self.prefix.rglob("multiverso.pc")
        environ = {"PKG_CONFIG_PATH": str(pc_file.parent)}
        flags = run("pkg-config", "--cflags", "--libs", "multiverso", **environ).split()
        libdir = run("pkg-config", "--variable=libdir", "multiverso", **environ).strip()
        program = self.folder / "linear_regression"
        source = EXAMPLES / "linear_regression.c"
        run("cc", "-std=c99", source, "-o", program, *flags, f"-Wl,-rpath,{libdir}")
        self.assertRegex(run(program), REGRESSION.format(1))
