"""The library for macOS, compiled and linked with zig. Nothing here can run it."""

import importlib.util
import os
import shutil
import struct
import sys
from pathlib import Path

import pytest
from programs import output_of

from multiverso._native import capi

pytestmark = [pytest.mark.slow, pytest.mark.release]

ROOT = Path(__file__).resolve().parents[2]
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
HAS_ZIG = importlib.util.find_spec("ziglang") is not None
# The environment of `make wheels` has zig too.
HAS_WHEELS = any(ROOT.glob(".venv-wheels/lib/*/site-packages/ziglang"))
PYTHON = sys.executable if HAS_ZIG else ROOT / ".venv-wheels" / "bin" / "python"

#: The first word of a 64-bit library of macOS, and the number of each processor.
MAGIC = 0xFEEDFACF
PROCESSORS = {"aarch64": 0x0100000C, "x86_64": 0x01000007}


@pytest.mark.skipif(
    not (CMAKE and (HAS_ZIG or HAS_WHEELS)), reason="needs zig: pip install ziglang, or make wheels"
)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_library_for_macos_can_be_linked(processor):
    build = (
        ROOT / "build" / f"macos-{processor}"
    )  # kept, so that the next run compiles changes only
    compiler = f"{PYTHON} -m ziglang c++ -target {processor}-macos.12.0"
    output_of(CMAKE, "-S", ROOT, "-B", build, "-DCMAKE_SYSTEM_NAME=Darwin",
        f"-DCMAKE_SYSTEM_PROCESSOR={processor}", "-DCMAKE_BUILD_TYPE=None", "-DBUILD_TESTING=OFF",
        "-DCMAKE_UNITY_BUILD=ON", CXX=compiler)  # fmt: skip
    output_of(CMAKE, "--build", build, "--parallel", os.cpu_count() or 1)
    library = (build / "libmultiverso.dylib").read_bytes()
    assert struct.unpack("<II", library[:8]) == (MAGIC, PROCESSORS[processor])
    missing = [name for name in capi.PROTOTYPES if f"_{name}\0".encode() not in library]
    assert missing == []
