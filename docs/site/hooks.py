"""Extend MkDocs: add pages that the navigation does not name, and follow links out of docs/.

The documents are read in two places. In the repository, a link to ``../src/README.md`` or to an
example opens that file; the site has only docs/. So each outside file that a page links to becomes
a page of the site: its content if it is Markdown, otherwise its text.
"""

import ast
import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

#: The folder of outside files on the site.
SOURCES = "source"

#: The page of the Python reference; modules that it does not name are added.
REFERENCE = "python.md"

LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
MODULE = re.compile(r"^::: (\S+)", re.MULTILINE)

LANGUAGES = {".cc": "cpp", ".h": "cpp", ".lua": "lua", ".py": "python", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> None:
    """Add a last section with the pages that the navigation does not name."""
    named = set(_pages(config.nav))
    docs = Path(config.docs_dir)
    more = [path.name for path in sorted(docs.glob("*.md")) if path.name not in named]
    if more:
        config.nav.append({"More": more})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the outside files that pages link to, directly or through other files."""
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
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links to outside files to their pages; complete the Python reference."""
    uri = page.file.src_uri
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
        markdown += _modules_beside(markdown)
    return LINK.sub(rewritten, markdown)


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


def _modules_beside(markdown: str) -> str:
    """Return the reference of the public modules that a page does not name, sorted."""
    named = set(MODULE.findall(markdown))
    parts = []
    for path in sorted((ROOT / "multiverso").rglob("*.py")):
        inside = path.relative_to(ROOT).with_suffix("")
        name = ".".join(inside.parts).removesuffix(".__init__")
        if name in named or name == "multiverso" or "._" in name or not _has_members(path):
            continue
        parts.append(f"\n## {name}\n\n::: {name}\n")
    return "".join(parts)


def _has_members(path: Path) -> bool:
    """Return whether a module defines a public name."""
    body = ast.parse(path.read_text("utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef)
    return any(isinstance(node, kinds) and not node.name.startswith("_") for node in body)
