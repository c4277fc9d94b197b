"""What `make docs` has built: whole, without a dead link, and with nothing from elsewhere.

Runs in the environment of the site, which has no pytest, by ``python -m unittest``.
"""

import re
import unittest
from functools import cache
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))

#: What a browser fetches by itself for each of these, apart from CSS; an <a> waits to be clicked.
FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href",),
    "video": ("poster", "src"),
}
OUTSIDE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_FETCH = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:[a-z]+:)?//[^"')\s]+)""", re.IGNORECASE)

#: The questions of the first page, and the page of the answer.
QUESTIONS = {
    "My job hangs": "faults.html",
    "How do I use two machines?": "cluster.html",
    "How do I use my GPUs?": "faq.html",
    "Which mode do I need?": "consistency.html",
    "How do I resume?": "faq.html",
    "How fast should it be?": "performance.html",
}


class Reader(HTMLParser):
    """Collects what a page names, fetches and leads to."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.fetched, self.classes = set(), [], [], set()
        self.texts = {}

    def handle_starttag(self, tag, attrs):
        """Note the ids, links, classes and addresses of an element."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        self.classes |= set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.fetched += [given[name] for name in FETCHED.get(tag, ()) if name in given]
        self.fetched += CSS_FETCH.findall(given.get("style", ""))


@cache
def read(page):
    """Return a Reader that has read this page."""
    reader = Reader()
    reader.feed((SITE / page).read_text("utf-8"))
    return reader


def inner_links(page):
    """Return (file, anchor) of every link of a page that stays on the site."""
    found = []
    for link in read(page).links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            here = PurePosixPath("/", page)
            path = here.parent / unquote(parts.path) if parts.path else here
            found.append((_normal(path), unquote(parts.fragment)))
    return found


def _normal(path):
    """Return a path without `..`, relative to the site; a folder stands for its index."""
    parts = []
    for part in path.parts[1:]:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    name = "/".join(parts)
    return name if PurePosixPath(name).suffix else f"{name}/index.html".lstrip("/")


def addresses_outside(html):
    """Return what a browser would fetch from elsewhere to show this HTML."""
    reader = Reader()
    reader.feed(html)
    styles = "".join(re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL))
    return [a for a in reader.fetched if OUTSIDE.match(a)] + CSS_FETCH.findall(styles)


class TestSite(unittest.TestCase):
    def test_every_document_is_a_page_and_the_first_page_leads_to_it(self):
        reached, waiting = set(), ["index.html"]
        while waiting:
            page = waiting.pop()
            if page not in reached:
                reached.add(page)
                waiting += [to for to, _ in inner_links(page) if to.endswith(".html")]
        documents = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
        self.assertGreater(len(documents), 10)
        self.assertEqual(documents - reached, set())

    def test_every_link_on_the_site_leads_somewhere(self):
        for page in PAGES:
            if page == "404.html":  # has addresses from the root of a server
                continue
            for to, anchor in inner_links(page):
                with self.subTest(f"{page}: {to}#{anchor}"):
                    self.assertTrue((SITE / to).is_file())
                    if anchor and to.endswith(".html"):
                        self.assertIn(anchor, read(to).ids)

    def test_nothing_is_fetched_from_elsewhere(self):
        for page in PAGES:
            with self.subTest(page):
                self.assertEqual(addresses_outside((SITE / page).read_text("utf-8")), [])
        for sheet in SITE.rglob("*.css"):
            with self.subTest(sheet.name):
                self.assertEqual(CSS_FETCH.findall(sheet.read_text("utf-8")), [])

    def test_no_page_uses_what_the_theme_s_script_would_fetch(self):
        for page in PAGES:
            with self.subTest(page):
                # Diagrams and the number of stars: from a CDN and from the host of a repository.
                self.assertEqual(read(page).classes & {"mermaid", "md-source__facts"}, set())
                self.assertNotIn('data-md-component="source"', (SITE / page).read_text("utf-8"))

    def test_the_first_page_answers_these_questions(self):
        html = (SITE / "index.html").read_text("utf-8")
        for question, page in QUESTIONS.items():
            with self.subTest(question):
                self.assertIn(question, html)
                answer = html[html.index(question) : html.index(question) + 1000].split("</tr>")[0]
                self.assertRegex(answer, rf'href="{re.escape(page)}[#"]')

    def test_the_reference_has_the_functions_of_the_package(self):
        ids = read("python.html").ids
        for name in ("api.init", "tables.MatrixTableHandler.add_get", "errors.PeerLostError"):
            self.assertIn(f"multiverso.{name}", ids)


class TestTheChecks(unittest.TestCase):
    def test_addresses_outside_are_seen(self):
        for html in (
            '<script src="https://cdn.example/x.js"></script>',
            '<link rel="stylesheet" href="//fonts.example/css">',
            '<img srcset="http://a.example/x.png 2x">',
            '<p style="background: url(http://a.example/x.png)">',
            "<style>@import 'https://a.example/x.css';</style>",
        ):
            with self.subTest(html):
                self.assertEqual(len(addresses_outside(html)), 1)

    def test_links_to_click_and_own_files_are_not(self):
        html = '<a href="https://a.example">x</a><img src="x.svg"><link href="a/b.css">'
        self.assertEqual(addresses_outside(html), [])

    def test_paths_are_made_whole(self):
        self.assertEqual(_normal(PurePosixPath("/source/src/../../a.html")), "a.html")
        self.assertEqual(_normal(PurePosixPath("/source")), "source/index.html")
