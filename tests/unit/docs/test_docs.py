"""Python blocks in README and docs run and print the documented output; links are valid."""

import collections
import itertools
import re
import signal
import tempfile
import unittest
from pathlib import Path

import pytest
from page_blocks import blocks_of, missing_modules, modules_of
from programs import WALL_TIMEOUT, run_python

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def anchors_of(text):
    """Return the anchors that GitHub and the site give the headings, and those in the text."""
    headings = HEADING.findall(FENCED.sub("", text))
    own = set(re.findall(r'<a id="([^"]+)"></a>', text))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return own | {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in plain}


def lines_without_blank_above(text):
    """Return the lines that begin a list or a table directly below other text.

    The site, unlike GitHub, makes such a line a part of the text above.
    """
    lines = FENCED.sub("", text).splitlines()
    return [
        line
        for above, line in itertools.pairwise(lines)
        if (line.startswith("- ") and above and not above.startswith(("- ", " ")))
        or (line.startswith("| ") and above and not above.startswith("|"))
    ]


def uneven_rows(text):
    """Return the rows of tables that have another number of cells than the first row.

    Two rows in one line are such a row: GitHub and the site drop the cells beyond the first row's.
    """
    found, cells = [], 0
    for line in FENCED.sub("", text).splitlines():
        row = re.sub(r"`[^`]*`|\\\|", "", line.strip())
        if not row.startswith("|"):
            cells = 0
        elif not cells:
            cells = row.count("|")
        elif row.count("|") != cells or not row.endswith("|"):
            found.append(line)
    return found


def blocks_of_pages():
    """Yield the page, line, code and output, or None, of each Python block."""
    for page in PAGES:
        for block in blocks_of(page.read_text("utf-8")):
            yield page.relative_to(ROOT), *block


#: Precedes the output of each block that `ONE_AFTER_ANOTHER` runs.
SEPARATOR = "-- the next block --\n"
ONE_AFTER_ANOTHER = f"""
import os, runpy, sys, tempfile
os.environ["TMPDIR"] = tempfile.tempdir = os.path.dirname(__file__)  # which `run` removes
import multiverso as mv
codes, sys.argv[:] = sys.argv[1:], ["block.py"]
for code in codes:
    print({SEPARATOR!r}, end="", flush=True)
    os.chdir(tempfile.mkdtemp())
    with open("block.py", "w") as file:
        file.write(code)
    runpy.run_path(os.path.abspath("block.py"), run_name="__main__")
    if mv.api.is_initialized():
        mv.shutdown()
"""


def run(code, *arguments, timeout=WALL_TIMEOUT):
    """Run the code with arguments in a separate process; return its exit code and output."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(code, "utf-8")
        return run_python("-X", "faulthandler", script, *arguments, cwd=folder, timeout=timeout)


class TestThePages(unittest.TestCase):
    def check_blocks(self, blocks):
        """Run blocks, each with its name and output, in one process, as importing takes long."""
        names = [name for name, _, _ in blocks]
        status, output, errors = run(ONE_AFTER_ANOTHER, *(code for _, code, _ in blocks))
        outputs = output.split(SEPARATOR)[1:]
        self.assertEqual(status, 0, f"the last of {names[: len(outputs)]} failed: {errors}")
        for (name, _, expected), printed in zip(blocks, outputs, strict=True):
            if expected is not None:
                with self.subTest(name):
                    self.assertEqual(printed, expected, errors)

    @pytest.mark.slow
    def test_python_blocks_run_and_print_the_output_shown(self):
        by_page = collections.defaultdict(list)
        for page, line, code, expected in blocks_of_pages():
            if not modules_of(code):
                by_page[page].append((f"{page}:{line}", code, expected))
        self.assertGreater(len(by_page), 1)
        for page, blocks in by_page.items():
            with self.subTest(page):
                self.check_blocks(blocks)

    @pytest.mark.frameworks
    def test_python_blocks_with_frameworks_run_and_print_the_output_shown(self):
        by_modules = collections.defaultdict(list)
        for page, line, code, expected in blocks_of_pages():
            if modules_of(code):
                by_modules[frozenset(modules_of(code))].append((f"{page}:{line}", code, expected))
        self.assertGreater(len(by_modules), 1)
        installed = [blocks for blocks in by_modules.values() if not missing_modules(blocks[0][1])]
        if not installed:
            self.skipTest("needs " + " or ".join(sorted(set().union(*by_modules))))
        for blocks in installed:
            self.check_blocks(blocks)

    def test_links_lead_to_existing_files_and_headings(self):
        for page in PAGES:
            for link in LINK.finditer(page.read_text("utf-8")):
                target, _, anchor = link["target"].partition("#")
                if "://" in target:
                    continue
                with self.subTest(f"{page.relative_to(ROOT)}: {link['target']}"):
                    path = page.parent / target if target else page
                    self.assertTrue(path.exists())
                    if anchor and path.suffix == ".md":
                        self.assertIn(anchor, anchors_of(path.read_text("utf-8")))

    def test_lists_and_tables_follow_a_blank_line(self):
        for page in PAGES:
            with self.subTest(page.relative_to(ROOT)):
                self.assertEqual(lines_without_blank_above(page.read_text("utf-8")), [])

    def test_rows_of_a_table_have_as_many_cells_as_its_header(self):
        for page in PAGES:
            with self.subTest(page.relative_to(ROOT)):
                self.assertEqual(uneven_rows(page.read_text("utf-8")), [])

    def test_a_colon_at_the_end_of_a_text_introduces_something(self):
        for page in PAGES:
            text = FENCED.sub("code", page.read_text("utf-8"))
            with self.subTest(page.relative_to(ROOT)):
                self.assertEqual(re.findall(r"^(.*:)\n+(?:#.*|\Z)", text, re.MULTILINE), [])

    def test_tables_have_a_header(self):
        for page in PAGES:
            lines = ["", *FENCED.sub("", page.read_text("utf-8")).splitlines()]
            for above, line, below in zip(lines, lines[1:], [*lines[2:], ""], strict=False):
                if line.startswith("| ") and not above.startswith("|"):
                    with self.subTest(f"{page.relative_to(ROOT)}: {line}"):
                        self.assertTrue(below.startswith("|--") or below.startswith("| --"))

    def test_src_readme_names_existing_files(self):
        text = (ROOT / "src" / "README.md").read_text("utf-8")
        for name in re.findall(r"`([a-z_]+/[a-z_.]+\.(?:h|cc))`", text):
            with self.subTest(name):
                self.assertTrue((ROOT / "src" / name).exists() or (ROOT / name).exists())


class TestTheChecks(unittest.TestCase):
    def test_finds_blocks_with_the_output_directly_below(self):
        text = "a\n```python\nprint(1)\n```\n\nprints\n\n```output\n1\n```\n```python\nx\n```\n"
        self.assertEqual(blocks_of(text), [(3, "print(1)\n", "1\n"), (12, "x\n", None)])
        text = "1. a\n    ```python\n    if x:\n        y\n    ```\n    ```output\n    1\n    ```\n"
        self.assertEqual(blocks_of(text), [(3, "if x:\n    y\n", "1\n")])
        text = "```python\na\n```\n```sh\nb\n```\n```output\n1\n```\n"
        self.assertEqual(blocks_of(text), [(2, "a\n", None)])

    def test_finds_a_list_without_a_blank_line(self):
        text = "a\n- b\n- c\n  d\n- e\n\n- f\ng\n| h |\n```\ni\n- j\n```\n"
        self.assertEqual(lines_without_blank_above(text), ["- b", "| h |"])

    def test_finds_two_rows_in_one_line(self):
        text = "| a | b |\n|---|---|\n| `|` | 1 |\n| c | 2 | | d | 3 |\n\n| e |\n|---|\n| f |\n"
        self.assertEqual(uneven_rows(text), ["| c | 2 | | d | 3 |"])

    def test_anchors_come_from_headings_outside_code(self):
        text = "# On `two` machines?\n```sh\n# a comment\n```\n## [A](b.md) link - here\n"
        self.assertEqual(anchors_of(text), {"on-two-machines", "a-link-here"})
        self.assertEqual(anchors_of('| <a id="s1"></a>1 |'), {"s1"})

    def test_detects_a_failing_block(self):
        status, _, errors = run("raise ValueError('no')")
        self.assertNotEqual(status, 0)
        self.assertIn("ValueError: no", errors)

    def test_kills_a_hanging_block(self):
        status, output, errors = run(
            "print(1, flush=True)\nimport time\ntime.sleep(600)", timeout=3
        )
        self.assertEqual((status, output), (-signal.SIGKILL, "1\n"))
        self.assertIn("killed after 3 s", errors)

    def test_names_missing_modules(self):
        self.assertEqual(missing_modules("import no_such_thing.x, os, numpy"), ["no_such_thing"])
