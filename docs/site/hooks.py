"""Extend MkDocs: complete the navigation, follow links out of docs/, and make tabs.

The documents are read in two places. In the repository, a link to ``../src/README.md`` or to an
example opens that file; the site has only docs/. So each outside file that a page links to becomes
a page of the site: its content if it is Markdown, otherwise its text. The parts of a page between
``<!-- tabs -->`` and ``<!-- end of tabs -->``, which begin with a line such as ``**PyTorch**``,
become tabs. GitHub's alerts, such as ``> [!NOTE]``, become admonitions; a bold first line is the
title. Each module in docs/python.md becomes a page, and pages get further words for searches.
"""

import os
import re
import textwrap
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from reference import MODULES, REFERENCE, complete, navigation, pages
from search_words import SEARCH_WORDS

ROOT = Path(__file__).resolve().parents[2]

#: The folder of outside files on the site.
SOURCES = "source"

#: The rank of pages and folders in search results, in comparison with others; 0 excludes them.
BOOSTS = {
    MODULES: 0.5,
    "performance-notes.md": 0.3,
    "scaling.md": 0.5,
    "errors.md": 2,
    "glossary.md": 2,
}

LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.png)\)")
TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- end of tabs -->$", re.DOTALL | re.MULTILINE)
ALERT = re.compile(r"^> \[!(\w+)\]\n(?:> \*\*(.+)\*\*\n)?((?:>.*\n)+)", re.MULTILINE)
TAB = re.compile(r"^\*\*([^*\n]+)\*\*$", re.MULTILINE)

LANGUAGES = {".cc": "cpp", ".h": "cpp", ".lua": "lua", ".py": "python", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> None:
    """Add the modules after the Python reference, and the other missing pages in a last section."""
    for section in config.nav:
        if isinstance(section, dict) and REFERENCE in (listed := next(iter(section.values()))):
            listed += navigation()
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
    for uri, content in pages().items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Check that the pages of the table of words exist, since a wrong name would have no effect."""
    for uri in SEARCH_WORDS:
        if files.get_file_from_path(uri) is None:
            msg = f"docs/site/search_words.py: there is no page {uri}"
            raise PluginError(msg)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links to outside files to their pages; make tabs and the list of modules."""
    uri = page.file.src_uri
    boost = 0 if uri.startswith(SOURCES) else BOOSTS.get(uri, BOOSTS.get(uri.split("/")[0], 1))
    page.meta["search"] = {"boost": boost} if boost else {"exclude": True}
    if uri == "index.md":
        page.meta["hide"] = ["toc"]
    # The search matches the tags of a page; without the plugin of that name none is shown on it.
    page.meta["tags"] = list(SEARCH_WORDS.get(uri, ()))
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
        markdown = complete(markdown)
    markdown = PICTURE.sub(r"[\g<0>](\1)", LINK.sub(rewritten, markdown))  # a click enlarges it
    return TABS.sub(_as_tabs, ALERT.sub(_as_admonition, markdown))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Make the addresses of the error page relative, so that it works from the file system too.

    A server shows the page in place of one in any folder, so there they begin at the root.
    """
    if template_name != "404.html":
        return output_content
    base = "<script>location.protocol==='file:'||document.write('<base href=\"/\">')</script>"
    text = re.sub(r'\b(href|src)="/(?!/)', r'\1="', output_content).replace('href=""', 'href="."')
    text = text.replace('new URL("/",location)', 'new URL(".",document.baseURI)')
    text = re.sub(r'"(base|search)": ?"/', r'"\1":"./', text)
    return text.replace("<head>", f"<head>{base}", 1)


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


def _as_admonition(match: re.Match[str]) -> str:
    """Return the Markdown of an admonition with the kind, the title and the text of an alert."""
    kind, title, text = match[1].lower(), match[2], re.sub(r"^> ?", "", match[3], flags=re.M)
    heading = f'!!! {kind} "{title}"' if title else f"!!! {kind}"
    return f"{heading}\n{textwrap.indent(text, ' ' * 4)}"


def _as_tabs(match: re.Match[str]) -> str:
    """Return the Markdown of tabs, each of which is indented below its name."""
    _, *parts = TAB.split(match[1])
    names, contents = parts[::2], parts[1::2]
    return "".join(
        f'=== "{name}"\n{textwrap.indent(content, " " * 4)}'
        for name, content in zip(names, contents, strict=True)
    )
