"""Make the pages of the Python reference: one per module, and one per class of a long module."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: The page of the Python reference, and the folder of its modules. Modules that the page does not
#: name are added.
REFERENCE = "python.md"
MODULES = "python"

#: The modules whose classes have pages of their own, because one page would be too long to read.
SPLIT = ("multiverso.api", "multiverso.tables")

#: The heading of a class carries its anchor; that of a module would repeat the title of its page.
CLASS_OPTIONS = """    options:
      show_root_heading: true
      show_root_full_path: false
"""

MODULE = re.compile(r"^::: (\S+)\n+", re.MULTILINE)
MODULES_TOGETHER = re.compile(r"(?:^::: \S+\n+)+", re.MULTILINE)


def navigation() -> list[dict[str, str | list[str | dict[str, str]]]]:
    """Return the pages of the modules, and of the classes below their modules."""
    found: list[dict[str, str | list[str | dict[str, str]]]] = []
    for name in modules():
        page, title = uri_of(name), name.split(".", 1)[1]
        if name in SPLIT:
            classes = [{cls: uri_of(f"{name}.{cls}")} for cls in _classes(name)]
            found.append({title: [page, *classes]})
        else:
            found.append({title: page})
    return found


def pages() -> dict[str, str]:
    """Return the Markdown of each page of the reference, by its path."""
    found = {}
    for name in modules():
        found[uri_of(name)] = f"# {name}\n\n::: {name}\n"
        if name in SPLIT:
            classes = _classes(name)
            found[uri_of(name)] = _overview(name, classes)
            for cls in classes:
                found[uri_of(f"{name}.{cls}")] = f"# {cls}\n\n::: {name}.{cls}\n{CLASS_OPTIONS}"
    return found


def complete(markdown: str) -> str:
    """Return the page of the reference with tables of modules, also of those it does not name."""
    beside = "".join(f"::: {name}\n\n" for name in _modules_beside(markdown))
    markdown += f"\n## Other modules\n\n{beside}" if beside else ""
    return MODULES_TOGETHER.sub(_module_table, markdown)


def modules() -> list[str]:
    """Return the modules of the Python reference in its order."""
    markdown = (ROOT / "docs" / REFERENCE).read_text("utf-8")
    return MODULE.findall(markdown) + _modules_beside(markdown)


def uri_of(name: str) -> str:
    """Return the path of the page of a module or a class."""
    return f"{MODULES}/{name.removeprefix('multiverso.')}.md"


def _overview(name: str, classes: dict[str, ast.ClassDef]) -> str:
    """Return the page of a module: a table of its classes, and all its other names in full."""
    rows = ["| class | what it is |", "|---|---|"]
    for cls, node in classes.items():
        page = uri_of(f"{name}.{cls}").removeprefix(f"{MODULES}/")
        rows.append(f"| [{cls}]({page}) | {_summary(ast.get_docstring(node) or '')} |")
    others = [f"        - {other}" for other in _exports(name) if other not in classes]
    options = "\n".join(["    options:", "      members:", *others])
    table = "\n".join(rows)
    return f"# {name}\n\nEach class has a page:\n\n{table}\n\n::: {name}\n{options}\n"


def _classes(name: str) -> dict[str, ast.ClassDef]:
    """Return the classes that a module exports from private modules, by name."""
    found = {each: _definition(name, each) for each in sorted(_exports(name))}
    return {each: node for each, node in found.items() if node is not None}


def _definition(module: str, name: str) -> ast.ClassDef | None:
    """Return the class of a name in a module, which may import it from another one."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("multiverso."):
            if name in (alias.name for alias in node.names):
                return _definition(str(node.module), name)
    return None


def _exports(name: str) -> list[str]:
    """Return the names in ``__all__`` of a module."""
    for node in _tree(name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _module_table(match: re.Match[str]) -> str:
    """Return a table of modules: a link to the page of each, and what it contains."""
    rows = ["| module | contents |", "|---|---|"]
    rows += [
        f"| [{name}]({uri_of(name)}) | {_summary(_docstring(name))} |"
        for name in MODULE.findall(match[0])
    ]
    return "\n".join(rows) + "\n\n"


def _summary(docstring: str) -> str:
    return docstring.split("\n\n", 1)[0].replace("\n", " ")


def _docstring(name: str) -> str:
    """Return the docstring of a module, or of a function in a private module of its name."""
    if _file(name) is not None:
        return ast.get_docstring(_tree(name)) or ""
    base = ROOT.joinpath(*name.split("."))
    for path in base.parent.glob(f"_*/{base.name}.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == base.name:
                return ast.get_docstring(node) or ""
    msg = f"docs/{REFERENCE}: there is no {name}"
    raise FileNotFoundError(msg)


def _file(name: str) -> Path | None:
    base = ROOT.joinpath(*name.split("."))
    paths = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in paths if path.is_file()), None)


def _tree(name: str) -> ast.Module:
    path = _file(name)
    return ast.parse(path.read_text("utf-8") if path else "")


def _modules_beside(markdown: str) -> list[str]:
    """Return the public modules that a page does not name, sorted."""
    named = set(MODULE.findall(markdown))
    found = []
    for path in sorted((ROOT / "multiverso").rglob("*.py")):
        inside = path.relative_to(ROOT).with_suffix("")
        name = ".".join(inside.parts).removesuffix(".__init__")
        if name in named or name == "multiverso" or "._" in name or not _has_members(path):
            continue
        found.append(name)
    return found


def _has_members(path: Path) -> bool:
    """Return whether a module defines a public name."""
    body = ast.parse(path.read_text("utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef)
    return any(isinstance(node, kinds) and not node.name.startswith("_") for node in body)
