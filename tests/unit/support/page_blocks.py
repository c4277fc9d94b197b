"""Finds the Python blocks of Markdown pages, their outputs, and the modules that they import."""

import ast
import importlib.util
import re
import sys

# A Python block, which a list may indent, and its output if the next block is the output.
BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```$"
    r"(?:(?:(?!^ *```).)*?^ *```output\n(?P<output>.*?)^ *```$)?",
    re.DOTALL | re.MULTILINE,
)


def blocks_of(text):
    """Return (line, code, output or None) for each Python block of a Markdown text."""
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        margin = re.compile(f"^{match['indent']}", re.MULTILINE)
        code, output = (part and margin.sub("", part) for part in match.group("code", "output"))
        found.append((line, code, output))
    return found


def modules_of(code):
    """Return the top-level modules that the code imports, except the standard library."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    # Without Multiverso or NumPy the test must fail instead of skipping.
    return names - {"multiverso", "numpy"} - sys.stdlib_module_names


def missing_modules(code):
    """Return the modules that the code imports and this environment lacks."""
    return sorted(name for name in modules_of(code) if importlib.util.find_spec(name) is None)
