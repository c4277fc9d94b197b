"""A feature asks few others about themselves, so that a new one need not know all of them."""

import re
import tempfile
import unittest
from pathlib import Path

from core_files import code_of, core_files

ROOT = Path(__file__).resolve().parents[2]

#: The flags of features, and the folders that define them: of tables, all folders about tables.
DEFINED_IN = {
    "is_elastic": {"node"},
    "is_hash": {"calls", "checkpoint", "remote", "table"},
    "is_lazy": {"calls", "checkpoint", "remote", "table"},
    "spans_nodes": {"node"},
    "survives_losses": {"node"},
}
MOST_FOLDERS = 2

#: The flags that more folders ask. A folder may only be removed.
ASKED_IN = {
    "is_elastic": {"c_api", "consistency", "group", "liveness", "session"},
    "is_hash": {"c_api", "reader", "saves", "session"},
    "spans_nodes": {"consistency", "group", "session"},
    "survives_losses": {"calls", "group", "liveness", "table"},
}


def folders_that_ask(src: Path) -> dict[str, set[str]]:
    """Return, for each flag, the folders of `src` whose code calls it."""
    call = re.compile(rf"\b({'|'.join(DEFINED_IN)})\(\)")
    folders: dict[str, set[str]] = {flag: set() for flag in DEFINED_IN}
    for path in core_files(src):
        if call.search(path.read_text("utf-8")):
            for flag in call.findall(code_of(path)):
                folders[flag].add(path.parent.name)
    return folders


class TestFlags(unittest.TestCase):
    maxDiff = None

    def test_few_folders_ask_a_flag(self):
        others = {
            flag: folders - DEFINED_IN[flag]
            for flag, folders in folders_that_ask(ROOT / "src").items()
        }
        more = {flag: folders for flag, folders in others.items() if len(folders) > MOST_FOLDERS}
        self.assertEqual(more, ASKED_IN)

    def test_calls_are_found_and_comments_are_not(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, code in {"a": "if (spec.is_hash()) return;", "b": "// is_hash()"}.items():
                Path(folder, name).mkdir()
                Path(folder, name, "file.cc").write_text(code)
            self.assertEqual(folders_that_ask(Path(folder))["is_hash"], {"a"})
