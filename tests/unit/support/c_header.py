"""The text of the C API's header and of its constants, with which tests compare other files."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "src" / "include" / "multiverso"
TEXT = "".join((FOLDER / name).read_text("utf-8") for name in ("constants.h", "c_api.h"))
