"""Extend MkDocs: complete the navigation, follow links out of docs/, and make tabs.

The documents are read in two places. In the repository, a link to ``../src/README.md`` or to an
example opens that file; the site has only docs/. So each outside file that a page links to becomes
a page of the site: its content if it is Markdown, otherwise its text. The parts of a page between
``<!-- tabs -->`` and ``<!-- end of tabs -->``, which begin with a line such as ``**PyTorch**``,
become tabs. Each module in docs/python.md becomes a page.
"""

import ast
import os
import re
import textwrap
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: The folder of outside files on the site.
SOURCES = "source"

#: The page of the Python reference, and the folder of its modules. Modules that the page does not
#: name are added.
REFERENCE = "python.md"
MODULES = "python"

#: The rank of pages in search results, in comparison with other pages; 0 excludes them.
BOOSTS = {"performance-notes.md": 0.3, "scaling.md": 0.5, "errors.md": 2, "glossary.md": 2}

LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
MODULE = re.compile(r"^::: (\S+)\n+", re.MULTILINE)
MODULES_TOGETHER = re.compile(r"(?:^::: \S+\n+)+", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.png)\)")
TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- end of tabs -->$", re.DOTALL | re.MULTILINE)
TAB = re.compile(r"^\*\*([^*\n]+)\*\*$", re.MULTILINE)

LANGUAGES = {".cc": "cpp", ".h": "cpp", ".lua": "lua", ".py": "python", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> None:
    """Add the modules after the Python reference, and the other missing pages in a last section."""
    for section in config.nav:
        if isinstance(section, dict) and REFERENCE in (pages := next(iter(section.values()))):
            pages += ({name.split(".", 1)[1]: _module_uri(name)} for name in _modules(config))
    named = set(_pages(config.nav))
    docs = Path(config.docs_dir)
    more = [path.name for path in sorted(docs.glob("*.md")) if path.name not in named]
    if more:
        config.nav.append({"More": more})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the modules, and the outside files that pages link to, also through other files."""
    waiting = [(file.src_uri, ROOT / "docs" / file.src_uri) for file in files.documentation_pages()]
    while waiting:
        _, path = waiting.pop()
        for link in LINK.finditer(path.read_text("utf-8")):
            target = _target(path, link["path"])
            if target is None or not target.is_file() or _in_docs(target):
                continue
            uri = _uri(target)
            if files.get_file_from_path(uri) is None:
                file = File.generated(config, uri, content=_as_page(target))
                file.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(file)
                if target.suffix == ".md":
                    waiting.append((uri, target))
    for name in _modules(config):
        content = f"# {name}\n\n::: {name}\n"
        files.append(File.generated(config, _module_uri(name), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links to outside files to their pages; make tabs and the list of modules."""
    uri = page.file.src_uri
    boost = 0 if uri.startswith(SOURCES) else BOOSTS.get(uri, 1)
    page.meta["search"] = {"boost": boost} if boost else {"exclude": True}
    if uri == "index.md":
        page.meta["hide"] = ["toc"]
    if uri.startswith(f"{MODULES}/"):
        return markdown
    origin = ROOT / uri.removeprefix(f"{SOURCES}/") if uri.startswith(SOURCES) else None
    if origin is not None and not origin.exists():
        return markdown  # a file shown as text contains no links
    path = origin or ROOT / "docs" / uri

    def rewritten(link: re.Match[str]) -> str:
        target = _target(path, link["path"])
        if target is None:
            return link[0]
        if not target.is_file():  # the site has no page for a folder
            return link["text"][1:-1] if target.is_dir() else link[0]
        to = target.relative_to(ROOT / "docs").as_posix() if _in_docs(target) else _uri(target)
        return f"{link['text']}({_relative(to, uri)}{link['anchor'] or ''})"

    if uri == REFERENCE:
        beside = "".join(f"::: {name}\n\n" for name in _modules_beside(markdown))
        markdown += f"\n## Other modules\n\n{beside}" if beside else ""
        markdown = MODULES_TOGETHER.sub(_module_table, markdown)
    markdown = PICTURE.sub(r"[\g<0>](\1)", LINK.sub(rewritten, markdown))  # a click enlarges it
    return TABS.sub(_as_tabs, markdown)


def _pages(nav: object) -> list[str]:
    """Return the pages in a part of the navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages(part)]


def _target(page: Path, link: str) -> Path | None:
    """Return the target of a link, if it is in this repository."""
    target = Path(os.path.normpath(page.parent / link))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _in_docs(path: Path) -> bool:
    return path.is_relative_to(ROOT / "docs")


def _uri(path: Path) -> str:
    """Return the source path of the page of an outside file."""
    inside = PurePosixPath(SOURCES, path.relative_to(ROOT).as_posix())
    return str(inside if path.suffix == ".md" else inside.with_name(f"{inside.name}.md"))


def _relative(to: str, origin: str) -> str:
    return Path(os.path.relpath(to, PurePosixPath(origin).parent)).as_posix()


def _as_page(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n`````{LANGUAGES.get(path.suffix, 'text')}\n{text}`````\n"


def _as_tabs(match: re.Match[str]) -> str:
    """Return the Markdown of tabs, each of which is indented below its name."""
    _, *parts = TAB.split(match[1])
    names, contents = parts[::2], parts[1::2]
    return "".join(
        f'=== "{name}"\n{textwrap.indent(content, " " * 4)}'
        for name, content in zip(names, contents, strict=True)
    )


def _modules(config: MkDocsConfig) -> list[str]:
    """Return the modules of the Python reference in its order."""
    markdown = Path(config.docs_dir, REFERENCE).read_text("utf-8")
    return MODULE.findall(markdown) + _modules_beside(markdown)


def _module_uri(name: str) -> str:
    return f"{MODULES}/{name.removeprefix('multiverso.')}.md"


def _module_table(match: re.Match[str]) -> str:
    """Return a table of modules: a link to the page of each, and what it contains."""
    rows = ["| module | contents |", "|---|---|"]
    for name in MODULE.findall(match[0]):
        summary = _docstring(name).split("\n\n", 1)[0].replace("\n", " ")
        rows.append(f"| [{name}]({_module_uri(name)}) | {summary} |")
    return "\n".join(rows) + "\n\n"


def _docstring(name: str) -> str:
    """Return the docstring of a module, or of a function in a private module of its name."""
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    for path in base.parent.glob(f"_*/{base.name}.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == base.name:
                return ast.get_docstring(node) or ""
    msg = f"docs/{REFERENCE}: there is no {name}"
    raise FileNotFoundError(msg)


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
