"""Builds libmultiverso with CMake and adds it to the package; pyproject.toml has everything else.

One library serves every Python version, so the wheel is tagged py3-none-<platform>. CMake runs in
a temporary folder, so that it never uses the cache of another compiler or another path.

Environment variables
---------------------
CXX, CXXFLAGS
    The C++ compiler and its flags, as CMake reads them.
CMAKE_ARGS
    Additional arguments for CMake, such as ``-DMULTIVERSO_SANITIZE=address``.
CMAKE_BUILD_PARALLEL_LEVEL
    The number of files compiled at the same time; by default one per available core.
MULTIVERSO_PREBUILT_LIBRARY
    Path of a libmultiverso.so to package instead of compiling one.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # `python setup.py install` takes the setuptools that is there.
    sys.exit("setup.py needs setuptools 77 or newer; `pip install .` brings its own")

ROOT = Path(__file__).resolve().parent
LIBRARY = Path("multiverso", "_lib", "libmultiverso.so")
if sys.platform == "win32":
    LIBRARY = LIBRARY.with_name("Multiverso.dll")
elif sys.platform == "darwin":
    LIBRARY = LIBRARY.with_suffix(".dylib")
# The folders inside the package, which is an install prefix for CMake and pkg-config.
LAYOUT = [
    f"-DCMAKE_INSTALL_LIBDIR={LIBRARY.parent.name}",
    f"-DCMAKE_INSTALL_BINDIR={LIBRARY.parent.name}",  # of a DLL
    "-DCMAKE_INSTALL_INCLUDEDIR=include",
    "-DMULTIVERSO_CMAKE_DIR=share/cmake/multiverso",
    "-DMULTIVERSO_PKGCONFIG_DIR=share/pkgconfig",
]
COMPILERS = ("c++", "g++", "clang++")
HINT = (
    "Multiverso is compiled from source and needs a C++17 compiler (g++ 8 or clang++ 7, or newer) "
    "and make. Debian, Ubuntu: apt install g++ make; Fedora: dnf install gcc-c++ make; "
    "conda: conda install cxx-compiler make. Set CXX to choose a compiler."
)


def find_cmake() -> str:
    """Return the cmake of this Python environment, else the first one on the PATH."""
    environment = Path(sys.executable).parent
    for path in (str(environment), None):
        if cmake := shutil.which("cmake", path=path):
            return cmake
    raise ExecError("expected cmake on the PATH, found none; pip install cmake")


def check_tools() -> None:
    """Raise CompileError, with the packages to install, if there is no compiler or no make."""
    compiler = shlex.split(os.environ.get("CXX", ""))[:1]
    if not any(shutil.which(name) for name in compiler or COMPILERS):
        searched = f"CXX={compiler[0]}" if compiler else ", ".join(COMPILERS)
        raise CompileError(f"expected a C++ compiler ({searched}), found none. {HINT}")
    if not os.environ.get("CMAKE_GENERATOR") and not shutil.which("make"):
        raise CompileError(f"expected make on the PATH, found none. {HINT}")


def run(command: list[str], step: str) -> None:
    """Run a CMake command; if it fails, raise a CompileError that names the step."""
    # DESTDIR is for the files that pip installs; CMake would put it before the prefix.
    environment = {name: value for name, value in os.environ.items() if name != "DESTDIR"}
    try:
        subprocess.run(command, check=True, env=environment)
    except subprocess.CalledProcessError as error:
        raise CompileError(
            f"{step} failed with exit code {error.returncode}; the reason is printed above. {HINT}"
        ) from error


def build_library(destination: Path, jobs: int | None) -> None:
    """Compile libmultiverso in a temporary folder and install it as `destination`.

    The header and the files for CMake and pkg-config are installed beside it, as in `LAYOUT`.
    """
    check_tools()
    cmake = find_cmake()
    if not jobs:
        default = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        jobs = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or default)
    with tempfile.TemporaryDirectory(prefix="multiverso-build-") as folder:
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF", "-DCMAKE_UNITY_BUILD=ON"]
        options += [*shlex.split(os.environ.get("CMAKE_ARGS", "")), *LAYOUT]
        run(
            [cmake, "-S", str(ROOT), "-B", folder, *options],
            "configuring libmultiverso",
        )
        run(
            [cmake, "--build", folder, "--config", "Release", "--target", "multiverso"]
            + ["--parallel", str(jobs)],
            "compiling libmultiverso",
        )
        prefix = destination.parents[1]
        run([cmake, "--install", folder, "--prefix", str(prefix)], "installing libmultiverso")


class Build(build):
    """Collects the package in a temporary folder, so that a wheel has no file of an old build."""

    def initialize_options(self) -> None:
        """Make a temporary folder the default of --build-base."""
        super().initialize_options()
        self.temporary = tempfile.TemporaryDirectory(prefix="multiverso-package-")
        self.build_base = self.temporary.name

    def run(self) -> None:
        """Add the programs that `multiverso examples`, `demo` and `bench` offer, and a page."""
        super().run()
        for name in ("examples", "benchmarks"):
            shutil.copytree(
                ROOT / name,
                Path(self.build_lib, "multiverso", f"_{name}"),
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        docs = Path(self.build_lib, "multiverso", "_docs")  # for `multiverso explain`
        docs.mkdir(exist_ok=True)
        shutil.copy2(ROOT / "docs" / "errors.md", docs)


class BuildLibrary(build_ext):
    """Builds the library as if it were a Python extension."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path of the library, whose suffix names no Python version."""
        return str(Path(*fullname.split("."))) + LIBRARY.suffix

    def build_extension(self, ext: Extension) -> None:
        """Compile the library, or copy the one that MULTIVERSO_PREBUILT_LIBRARY names."""
        destination = Path(self.get_ext_fullpath(ext.name))
        destination.parent.mkdir(parents=True, exist_ok=True)
        if prebuilt := os.environ.get("MULTIVERSO_PREBUILT_LIBRARY"):
            shutil.copyfile(prebuilt, destination)
        else:
            build_library(destination, self.parallel)

    def copy_extensions_to_source(self) -> None:
        """Copy the library of an editable install to multiverso/_lib/, replacing an older one."""
        (ROOT / LIBRARY.parent).mkdir(exist_ok=True)
        # Overwriting the older file in place would crash the processes that have mapped it.
        (ROOT / LIBRARY).unlink(missing_ok=True)
        super().copy_extensions_to_source()


class Wheel(bdist_wheel):
    """A wheel for any Python 3 of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return py3-none-<platform>."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"multiverso._lib.{LIBRARY.stem}", sources=[])],
    cmdclass={"build": Build, "build_ext": BuildLibrary, "bdist_wheel": Wheel},
)
