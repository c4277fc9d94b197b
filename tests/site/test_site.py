"""The site that `make docs` built is complete, without dead links or resources of other sites."""

import json
import re
import shutil
import subprocess
import unittest
from functools import cache
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))

#: The attributes of each element whose addresses a browser fetches without a click, except CSS.
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
OTHER_SITE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_FETCH = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:[a-z]+:)?//[^"')\s]+)""", re.IGNORECASE)

#: The questions of the first page, and the page with each answer.
QUESTIONS = {
    "My job hangs": "faults.html",
    "How do I use two machines?": "cluster.html",
    "How do I use my GPUs?": "faq.html",
    "Which mode do I need?": "consistency.html",
    "How do I resume?": "faq.html",
    "How fast should it be?": "performance.html",
}


#: Words that a user may search for, and the page that must be the first result.
ANSWERS = {
    "staleness": "consistency.html",
    "PeerLostError": "errors.html",
    "elastic": "elastic.html",
    "learning rate": "faq.html",
    "resume": "faq.html",
    "my job hangs": "faults.html",
    "ArrayTable": "python/tables.ArrayTable.html",
    "DistributedOptimizer": "python/torch_ext.optimizer.html",
    "Theano": "python-code.html",
    "torch.distributed": "torch-distributed.html",
    # The parts of names that contain dots, parentheses and underscores:
    "mv.attach(name)": "live.html",
    "hash_keys": "embeddings.html",
    # Words of people who know other libraries:
    "allreduce": "consistency.html",
    "broadcast": "torch-distributed.html",
    "sklearn": "numpy.html",
    "Jupyter": "installation.html",
    "early stopping": "adapters.html",
    "k-means": "shared-arrays.html",
    "DistributedSampler": "adapters.html",
    # Questions:
    "checkpoint": "checkpoints.html",
    "publish": "live.html",
    "save a model": "checkpoints.html",
    "serve model": "serving.html",
    "two tower": "serving.html",
    "progress bar": "faq.html",
}

#: A row of a table in Markdown, and the line below the first one.
ROW = re.compile(r"^ *\|.*\|$", re.MULTILINE)
RULE = re.compile(r"^ *\|(?: ?:?-+:? ?\|)+$", re.MULTILINE)
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1$", re.DOTALL | re.MULTILINE)


class PageReader(HTMLParser):
    """Collects the ids, links, classes and fetched addresses of a page."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.fetched, self.classes = set(), [], [], set()

    def handle_starttag(self, tag, attrs):
        """Record the ids, links, classes and addresses of an element."""
        attributes = {name: value or "" for name, value in attrs}
        self.ids |= {attributes[name] for name in ("id", "name") if name in attributes}
        self.classes |= set(attributes.get("class", "").split())
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        self.fetched += [attributes[name] for name in FETCHED.get(tag, ()) if name in attributes]
        self.fetched += CSS_FETCH.findall(attributes.get("style", ""))


@cache
def read(page):
    """Return a reader that has read this page."""
    reader = PageReader()
    reader.feed((SITE / page).read_text("utf-8"))
    return reader


def inner_links(page):
    """Return (file, anchor) of every link of a page to the site itself."""
    found = []
    for link in read(page).links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            here = PurePosixPath("/", page)
            path = here.parent / unquote(parts.path) if parts.path else here
            found.append((_file_of(path), unquote(parts.fragment)))
    return found


def _file_of(path):
    """Return the file of a path, relative to the site and without `..`; of a folder, its index."""
    parts = []
    for part in path.parts[1:]:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    name = "/".join(parts)
    return name if PurePosixPath(name).suffix else f"{name}/index.html".lstrip("/")


def fetched_from_other_sites(html):
    """Return the addresses of other sites that a browser fetches to show this HTML."""
    reader = PageReader()
    reader.feed(html)
    styles = "".join(re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL))
    return [url for url in reader.fetched if OTHER_SITE.match(url)] + CSS_FETCH.findall(styles)


class TestSite(unittest.TestCase):
    def test_every_document_is_reachable_from_the_first_page(self):
        reached, unread = set(), ["index.html"]
        while unread:
            page = unread.pop()
            if page not in reached:
                reached.add(page)
                unread += [target for target, _ in inner_links(page) if target.endswith(".html")]
        documents = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
        self.assertGreater(len(documents), 10)
        self.assertEqual(documents - reached, set())

    def test_every_link_has_a_target(self):
        for page in PAGES:
            for target, anchor in inner_links(page):
                with self.subTest(f"{page}: {target}#{anchor}"):
                    self.assertTrue((SITE / target).is_file())
                    if anchor and target.endswith(".html"):
                        self.assertIn(anchor, read(target).ids)

    def test_error_page_works_from_the_file_system(self):
        html = (SITE / "404.html").read_text("utf-8")
        self.assertEqual(
            re.findall(r'(?:href|src)="/[^"]*"', html.replace('<base href="/">', "")), []
        )
        for name in re.findall(r'(?:href|src)="(assets/[^"]+)"', html):
            with self.subTest(name):
                self.assertTrue((SITE / name).is_file())

    def test_every_row_of_a_table_is_rendered(self):
        seen = 0
        for document in sorted((ROOT / "docs").glob("*.md")):
            if document.name == "python.md":  # the hook adds the tables of modules
                continue
            text = FENCED.sub("", document.read_text("utf-8"))
            rows = len(ROW.findall(text)) - len(RULE.findall(text))
            seen += rows
            html = (SITE / f"{document.stem}.html").read_text("utf-8")
            with self.subTest(document.name):
                self.assertEqual(html.count("<tr>"), rows)
        self.assertGreater(seen, 500)

    def test_no_page_fetches_from_another_site(self):
        for page in PAGES:
            with self.subTest(page):
                self.assertEqual(fetched_from_other_sites((SITE / page).read_text("utf-8")), [])
        for sheet in SITE.rglob("*.css"):
            with self.subTest(sheet.name):
                self.assertEqual(CSS_FETCH.findall(sheet.read_text("utf-8")), [])

    def test_no_page_makes_the_script_of_the_theme_fetch(self):
        for page in PAGES:
            with self.subTest(page):
                # The theme fetches diagrams from a CDN, and stars from the host of the repository.
                self.assertEqual(read(page).classes & {"mermaid", "md-source__facts"}, set())
                self.assertNotIn('data-md-component="source"', (SITE / page).read_text("utf-8"))

    def test_first_page_answers_these_questions(self):
        html = (SITE / "index.html").read_text("utf-8")
        for question, page in QUESTIONS.items():
            with self.subTest(question):
                self.assertIn(question, html)
                answer = html[html.index(question) : html.index(question) + 1000].split("</tr>")[0]
                self.assertRegex(answer, rf'href="{re.escape(page)}[#"]')

    def test_reference_documents_the_package(self):
        pages = {target for target, _ in inner_links("python.html")}
        for module in ("api", "tables"):
            pages |= {target for target, _ in inner_links(f"python/{module}.html")}
        for page, names in {
            "api": ("api.init", "api.save"),
            "tables": ("tables.attach", "tables.hash_keys"),
            "tables.ArrayTable": ("tables.ArrayTable",),
            "tables.MatrixTable": ("tables.MatrixTable", "tables.MatrixTable.add_get"),
            "tables.View": ("tables.View.cut",),
            "api.Session": ("api.Session", "api.Session.leave"),
            "errors": ("errors.PeerLostError",),
        }.items():
            self.assertIn(f"python/{page}.html", pages)
            for name in names:
                self.assertIn(f"multiverso.{name}", read(f"python/{page}.html").ids)

    def test_no_page_of_the_reference_has_more_than_6000_words(self):
        for page in (SITE / "python").glob("*.html"):
            article = page.read_text("utf-8").split("<article", 1)[1].split("</article>")[0]
            with self.subTest(page.name):
                self.assertLess(len(re.sub(r"<[^>]+>", " ", article).split()), 6000)

    def test_reference_shows_constructors_and_tables_of_methods(self):
        html = (SITE / "python" / "tables.ArrayTable.html").read_text("utf-8")
        start = html.index('id="multiverso.tables.ArrayTable"')
        text = re.sub(r"<[^>]+>", "", html[start:].split('id="multiverso.tables.ArrayTable.')[0])
        self.assertRegex(text, r"ArrayTable\(\s*size: int,\s*init_value: ArrayLike")
        self.assertRegex(
            text, r"Methods:\s*Name\s*Description\s[\s\S]*\sget\s*Return the whole table"
        )
        self.assertRegex(text, r"variance_control \(0.04")


@unittest.skipUnless(shutil.which("node"), "needs node, which runs the search script of the theme")
class TestSearch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Query the script and the index of the site, as a browser does."""
        worker = next((SITE / "assets" / "javascripts" / "workers").glob("search.*.min.js"))
        arguments = [worker, SITE / "search" / "search_index.json", *ANSWERS]
        process = subprocess.run(
            ["node", Path(__file__).with_name("search.js"), *arguments],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        cls.found = json.loads(process.stdout)

    def test_finds_the_page_with_the_answer_first(self):
        for query, page in ANSWERS.items():
            with self.subTest(query):
                pages = [location.partition("#")[0] for location in self.found[query]]
                self.assertEqual(pages[:1], [page])

    def test_finds_nothing_outside_the_documentation(self):
        for query, locations in self.found.items():
            with self.subTest(query):
                self.assertEqual([each for each in locations if each.startswith("source/")], [])


class TestOffline(unittest.TestCase):
    def test_pages_of_the_file_system_can_search(self):
        html = (SITE / "index.html").read_text("utf-8")
        self.assertIn("assets/iframe-worker.js", html)
        index = (SITE / "search" / "search_index.js").read_text("utf-8")
        self.assertTrue(index.startswith("var __index = {"))


class TestHelpers(unittest.TestCase):
    def test_finds_addresses_of_other_sites(self):
        for html in (
            '<script src="https://cdn.example/x.js"></script>',
            '<link rel="stylesheet" href="//fonts.example/css">',
            '<img srcset="http://a.example/x.png 2x">',
            '<p style="background: url(http://a.example/x.png)">',
            "<style>@import 'https://a.example/x.css';</style>",
        ):
            with self.subTest(html):
                self.assertEqual(len(fetched_from_other_sites(html)), 1)

    def test_ignores_links_and_files_of_the_site(self):
        html = '<a href="https://a.example">x</a><img src="x.svg"><link href="a/b.css">'
        self.assertEqual(fetched_from_other_sites(html), [])

    def test_file_of_resolves_parents_and_folders(self):
        self.assertEqual(_file_of(PurePosixPath("/source/src/../../a.html")), "a.html")
        self.assertEqual(_file_of(PurePosixPath("/source")), "source/index.html")
