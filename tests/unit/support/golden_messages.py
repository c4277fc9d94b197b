"""Runs the wrong calls of tests/golden/messages.txt; as a program, it writes their errors there.

The file has sections, which begin with ``=== name``. A section is a program, of which each line
that raises is followed by the class and the text of its error, indented. A loop runs its body for
each value, and equal texts of values in turn are written once: where they have the value that they
received, or its type, they contain the name of the loop, or `type`, in braces. Each section has its
own session.

Sections that need modules that are not installed stay as they are, so after a change of an adapter
run this program in the environment of its framework as well.
"""

import ast
import contextlib
import difflib
import importlib
import io
import itertools
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from requirements import THEANOS, is_installed

import multiverso as mv
from multiverso import _commands
from multiverso.sync import ParamSync

FILE = Path(__file__).resolve().parents[2] / "golden" / "messages.txt"
COMMON = str(Path(__file__).resolve().parents[3] / "examples" / "common")
TITLE = re.compile(r"^=== (?P<name>.+?)(?: \(needs (?P<modules>.+)\))?$")
ADVICE = re.compile(r"\nWhat to do: multiverso explain \w+$")
INDENT = "    "

#: What differs between machines, environments and runs, and what is written in its place.
VARIABLE = (
    # Keras adds the call of the layer to its errors.
    (re.compile(r"Exception encountered [^\n]*\n\n\x1b\[1m(.*?)\x1b.*", re.DOTALL), r"\1"),
    (re.compile(r"(?<=expected at most )\d+(?= ranks)"), "N"),
    (re.compile(r"(?<=this machine has )[\d.]+ .iB.*"), "..."),
    (re.compile(rf"\b{os.getpid()}\b"), "PID"),
    (re.compile(r" at 0x[0-9a-f]+"), " at ADDRESS"),
    (re.compile(r"seed=\d{9,}"), "seed=SEED"),
    (re.compile(r"; there (are: '|is one without)[^;\n]*"), ""),  # the sessions of other tests
    (re.compile(r"np\.(True|False)_|np\.\w+\(([^()]*)\)"), r"\1\2"),
)


def sections():
    """Return the texts of the sections by their first line."""
    found = {}
    for line in FILE.read_text("utf-8").splitlines():
        if TITLE.match(line):
            found[line] = lines = []
        else:
            lines.append(line)
    return {title: "\n".join(lines).strip("\n") for title, lines in found.items()}


def modules_of(title):
    """Return the modules that a section needs; "theano" stands for any of its successors, too."""
    modules = TITLE.match(title)["modules"]
    return (
        [THEANOS if name == "theano" else name for name in modules.split(", ")] if modules else []
    )


def statements(text):
    """Yield the statements and comments of a section, without the errors."""
    pending = []
    for line in text.splitlines():
        if not pending and (line.startswith(INDENT) or not line):
            continue
        pending.append(line)
        try:
            ast.parse("\n".join(pending))
        except SyntaxError:
            continue
        yield "\n".join(pending)
        pending = []
    if pending:
        raise SyntaxError("\n".join(pending))


class CommandError(Exception):
    """The exit code of a command, and the last line that it wrote."""


def command(*arguments, main=_commands.main):
    """Run ``multiverso`` with arguments, or another program, which must succeed."""
    with contextlib.redirect_stderr(io.StringIO()) as errors, mock.patch.dict(os.environ):
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code
    if code != 0:
        raise CommandError(f"exit code {code}: {errors.getvalue().splitlines()[-1]}")


def backend(name):
    """Import Theano or Lasagne as the examples do, without their variables of the environment."""
    flags = {"THEANO_FLAGS": "mode=FAST_COMPILE,linker=py,cxx="}
    with mock.patch.dict(os.environ, flags), mock.patch.object(sys, "path", [*sys.path, COMMON]):
        return importlib.import_module(name)


#: What sections can use without an import, besides `folder`, an empty one.
NAMES = {"backend": backend, "command": command, "mv": mv, "np": np, "ParamSync": ParamSync}
NAMES |= {"Path": Path}


def text_of(error, folder, **value):
    """Return the class and the text of an error, with names in place of what varies."""
    text = ADVICE.sub("", str(error)).replace(folder, "FOLDER")
    for name, each in value.items():
        texts = {repr(each): name, str(each) or "''": name, type(each).__name__: "type"}
        for written, word in texts.items():
            text = re.sub(
                rf"\b(received|of type) {re.escape(written)}(?!\w)", rf"\1 {{{word}}}", text
            )
    for pattern, constant in VARIABLE:
        text = pattern.sub(constant, text)
    return f"{type(error).__name__}: {text}"


def errors_of(statement, names, folder):
    """Yield the errors of a statement, or those of a loop for its values."""
    tree = ast.parse(statement)
    values, value = [None], {}
    try:
        match tree.body:
            case [ast.For(target=ast.Name(id=name), iter=iterable, body=body)]:
                values = eval(compile(ast.Expression(iterable), FILE.name, "eval"), names)
                tree = ast.Module(body, [])
                value = {name: None}
        code = compile(tree, FILE.name, "exec")
        for each in values:
            value = dict.fromkeys(value, each)
            names.update(value)
            try:
                exec(code, names)
            except Exception as error:
                yield text_of(error, folder, **value)
            else:
                yield from (f"no error: {each!r}" for each in value.values())
    except Exception as error:
        yield text_of(error, folder)


def run(text):
    """Return a section with the errors that its statements raise now."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"__name__": "messages", "folder": folder, **NAMES}
        lines = []
        try:
            mv.init()
            for statement in statements(text):
                lines += statement.splitlines()
                for error, _ in itertools.groupby(errors_of(statement, names, folder)):
                    lines += [INDENT + line for line in error.splitlines()]
        finally:
            names.clear()
            if mv.is_initialized():
                mv.shutdown()
    return "\n".join(lines)


def difference(text):
    """Return how the errors of a section now differ from those in the file, or nothing."""
    written = [line for line in text.splitlines() if line]
    return "\n".join(difflib.unified_diff(written, run(text).splitlines(), lineterm="", n=1))


def main():
    """Write the errors of all sections whose modules are installed."""
    lines = []
    for title, text in sections().items():
        is_possible = all(map(is_installed, modules_of(title)))
        lines += [title, run(text) if is_possible else text, ""]
    FILE.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
