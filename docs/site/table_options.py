"""A griffe extension that shows the options of tables and sessions where they are passed.

The package does the same with docstrings and signatures when a program imports it.
"""

import ast
import inspect
from typing import Any

import griffe

#: The line that stands for the options in the docstring of a table; a sentence follows it.
PLACE = "dtype, updater, name, max_bytes, backing, numa, wire, **options : optional"


class TableOptions(griffe.Extension):
    """Replaces the place of options in docstrings, and the parameters of `init` and `session`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the objects after the package has been read."""
        if pkg.name != "multiverso":
            return
        options = inspect.cleandoc(pkg["tables._options.TableOptions"].docstring.value)
        for name in ("array_table.ArrayTable", "matrix_table.MatrixTable", "hash_table.HashTable"):
            docstring = pkg[f"tables._{name}"].docstring
            lines = inspect.cleandoc(docstring.value).splitlines()
            at = lines.index(PLACE)
            text = options.split("----------\n")[1]
            docstring.value = "\n".join([*lines[:at], text, *lines[at + 2 :]])
            self._show(pkg[f"tables._{name}"].members["__init__"], pkg["tables._options"])
        for name in ("init", "session"):
            pkg[f"api.{name}"].parameters = pkg["_session.options.session_options"].parameters

    def _show(self, constructor: griffe.Function, options: griffe.Module) -> None:
        """Replace ``**options`` by the options, whose defaults and types a module has."""
        *own, _ = constructor.parameters
        common = [
            griffe.Parameter(
                name,
                annotation=options["TableOptions"][name].annotation,
                kind=griffe.ParameterKind.keyword_only,
                default=repr(default),
            )
            for name, default in ast.literal_eval(str(options["DEFAULTS"].value)).items()
        ]
        kind = griffe.ParameterKind.var_keyword
        rest = griffe.Parameter("options", annotation="Unpack[UpdaterOptions]", kind=kind)
        constructor.parameters = griffe.Parameters(*own, *common, rest)
