"""Files and classes stay small enough to be read at once, or shrink until they are."""

import re
import unittest
from collections.abc import Iterator
from pathlib import Path

from core_files import code_of, core_files

ROOT = Path(__file__).resolve().parents[2]

MOST_LINES = 600
#: Lines of all tests but the simulation and the growth tests. The number may only become smaller.
MOST_TEST_LINES = 51_155
MOST_METHODS = 35

#: Programs copy the header of the C API as one file.
COPIED = "src/include/multiverso/c_api.h"

CLASS = re.compile(
    r"^(?:class|struct)\s+(?:alignas\([^)]*\)\s+)?(?P<name>[\w:]+)[^;{()]*\{", re.MULTILINE
)
TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>")
METHOD = re.compile(r"[^=(]*?(?P<name>~?\w+)\s*\((?!\*)")
NO_METHOD = re.compile(r"\s*(friend|using|static_assert|enum|struct|class|union)\b")


def members(code: str) -> Iterator[str]:
    """Yield the declarations of a class, whose code begins after its brace."""
    depth, begin = 0, 0
    for at, character in enumerate(code):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return
        is_body_over = character == "}" and not re.match(r"\s*[;,]", code[at + 1 :])
        if depth == 0 and (character == ";" or is_body_over):
            yield re.sub(r"^\s*(public|protected|private):", "", code[begin : at + 1])
            begin = at + 1


def methods(name: str, code: str) -> list[str]:
    """Return the methods of a class, without constructors and functions that fit on a line."""
    found = []
    for member in members(code):
        declaration = member
        while TEMPLATE_ARGUMENTS.search(declaration):
            declaration = TEMPLATE_ARGUMENTS.sub("", declaration)
        method = METHOD.match(declaration)
        is_accessor = "{" in declaration and "\n" not in declaration.strip()
        if NO_METHOD.match(declaration) or not method or is_accessor:
            continue
        if method["name"].lstrip("~") != name:
            found.append(method["name"])
    return found


def large_classes(src: Path, most: int) -> dict[str, int]:
    """Return the classes under `src` with more methods than `most`, and how many they have."""
    sizes = {}
    for path in core_files(src):
        code = code_of(path)
        for match in CLASS.finditer(code):
            size = len(methods(match["name"], code[match.end() :]))
            sizes[match["name"]] = max(size, sizes.get(match["name"], 0))
    return {name: size for name, size in sizes.items() if size > most}


def long_files(root: Path, most: int) -> dict[str, int]:
    """Return the source files under `root` with more lines than `most`, and how many they have."""
    paths = [*core_files(root / "src"), *sorted((root / "multiverso").rglob("*.py"))]
    sizes = {str(path.relative_to(root)): path.read_text("utf-8").count("\n") for path in paths}
    return {name: lines for name, lines in sizes.items() if lines > most and name != COPIED}


def lines_of_tests(tests: Path) -> int:
    """Return the number of lines of the tests that are counted."""
    paths = (path for path in tests.rglob("*") if path.is_file() and path.suffix != ".pyc")
    counted = (path for path in paths if path.relative_to(tests).parts[0] not in ("sim", "growth"))
    return sum(path.read_bytes().count(b"\n") for path in counted)


class TestSizes(unittest.TestCase):
    maxDiff = None

    def test_all_tests_together_stay_small(self):
        self.assertLessEqual(lines_of_tests(ROOT / "tests"), MOST_TEST_LINES)

    def test_files_are_short(self):
        self.assertEqual(long_files(ROOT, MOST_LINES), {})

    def test_classes_are_small(self):
        self.assertEqual(large_classes(ROOT / "src", MOST_METHODS), {})


class TestTheCount(unittest.TestCase):
    CODE = """
     public:
      explicit Example(int a) : a_(a) {}
      ~Example();
      int a() const { return a_; }
      static Status Open(int a,
                         std::function<void()> then = nullptr);
      template <class Body>
      Status Each(Body body) const {
        for (int i = 0; i < a_; ++i) body(i);
        return Status::Ok();
      }
      virtual void Stop() = 0;

     private:
      friend class Other;
      struct Part {
        void Begin();
      };
      using Call = void (*)(int);
      int (*call_)(int a, int b);
      enum class Kind { kOne, kTwo };
      std::function<void(int)> then_;
      std::atomic<int> b_{Initial(3)};
      int a_ = First();
    };
    void Outside();
    """

    def test_methods_are_counted(self):
        self.assertEqual(methods("Example", self.CODE), ["Open", "Each", "Stop"])
