"""The arrows between layers point down only, in the C++ core and in the Python package."""

import ast
import re
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# From low to high. A folder of src/ that is not listed here has no place yet and is a fault.
CORE_LAYERS = (
    "base",
    "memory",
    "shard",
    "transport",
    "node",
    "liveness",
    "group",
    "consistency",
    "checkpoint",
    "table",
    "session",
    "c_api",
)
# The public header belongs to the layer that implements it.
PUBLIC = "include"

# From low to high: the modules and packages of multiverso/; those of one line are peers. `__init__`
# is the public face, and the adapters above it use the package like any other program.
PACKAGE_LAYERS = (
    ("_version", "errors"),
    ("_mpi", "_native"),
    ("_session_options", "devices"),
    ("_session",),
    ("api", "tables"),
    ("checkpoint", "sync"),
    ("__init__",),
    ("_commands",),
    ("__main__",),
    ("jax_ext", "keras_ext", "lasagne_ext", "learn", "theano_ext", "torch_ext"),
)

COMMENT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?P<bracket>["<])(?P<path>[^">]+)[">]', re.MULTILINE
)
MPI_NAME = re.compile(r"\bMPI_\w+|\bmpi\.h\b")


def code_of(path: Path) -> str:
    """Return the file without its comments, which may speak of anything; strings stay."""
    return COMMENT.sub(lambda m: " " if m["comment"] else m[0], path.read_text("utf-8"))


def core_files(src: Path) -> Iterator[Path]:
    """Yield every C and C++ file under `src`, in a stable order."""
    suffixes = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc"}
    yield from sorted(path for path in src.rglob("*") if path.suffix in suffixes)


def core_layer(path: Path, src: Path) -> str:
    """Return the layer a file of the core belongs to."""
    folder = path.relative_to(src).parts[0]
    return "c_api" if folder == PUBLIC else folder


def included_files(path: Path, src: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield each include of a file of the core as written, with the file of `src` that it names."""
    for include in INCLUDE.finditer(code_of(path)):
        beside = [path.parent] if include["bracket"] == '"' else []
        for folder in [*beside, src, src / PUBLIC]:
            target = (folder / include["path"]).resolve()
            if target.is_file() and target.is_relative_to(src.resolve()):
                yield include["path"], target.relative_to(src.resolve())
                break
        else:
            yield include["path"], None


def include_faults(src: Path) -> list[str]:
    """Return one line for each include that points up, and for each folder without a rank."""
    faults = []
    for path in core_files(src):
        layer = core_layer(path, src)
        name = path.relative_to(src)
        if layer not in CORE_LAYERS:
            faults.append(f"{name}: expected a folder of {CORE_LAYERS}, received {layer}")
            continue
        for include, target in included_files(path, src):
            # A file that does not exist yet is named by its folder; <memory> has none.
            folder = include.rpartition("/")[0].split("/")[0]
            other = core_layer(src / target, src) if target else folder
            if other in CORE_LAYERS and CORE_LAYERS.index(other) > CORE_LAYERS.index(layer):
                faults.append(f"{name}: {layer} includes {include} of {other} above it")
    return faults


def unit_of(path: Path) -> str:
    """Return the unit of a file: a header and its sources, those of one system included."""
    return str(path.with_name(re.sub(r"_(linux|windows)$", "", path.stem)))


def unit_graph(src: Path) -> dict[str, set[str]]:
    """Return which units each unit of the core includes, from its header or its sources."""
    graph: dict[str, set[str]] = {}
    for path in core_files(src):
        unit = unit_of(path.relative_to(src))
        targets = {unit_of(target) for _, target in included_files(path, src) if target}
        graph.setdefault(unit, set()).update(targets - {unit})
    return graph


def mpi_faults(src: Path) -> list[str]:
    """Return one line for each name of MPI outside the transport layer."""
    return [
        f"{path.relative_to(src)}: {name}"
        for path in core_files(src)
        if core_layer(path, src) != "transport"
        for name in sorted(set(MPI_NAME.findall(code_of(path))))
    ]


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `tree`, but none that only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from runtime_nodes(node)


def imported_modules(path: Path, package: Path) -> Iterator[str]:
    """Yield the modules of `package` that the file at `path` imports, as dotted names within it."""
    # The package that a relative import of one dot starts from.
    here = [package.name, *path.relative_to(package).parent.parts]
    for node in runtime_nodes(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == package.name:
                yield module_of(target[1:], package)


def module_of(names: list[str], package: Path) -> str:
    """Return the module that `names` lead to; the last may be of something in the module."""
    for end in range(len(names), 0, -1):
        path = package.joinpath(*names[:end])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(names[:end])
    return "__init__"


def module_graph(package: Path) -> dict[str, set[str]]:
    """Return what each module of `package` imports from it, itself left out."""
    graph = {}
    for path in sorted(package.rglob("*.py")):
        names = path.relative_to(package).with_suffix("").parts
        module = ".".join(names[:-1] if len(names) > 1 and names[-1] == "__init__" else names)
        graph[module] = set(imported_modules(path, package)) - {module}
    return graph


def import_faults(package: Path) -> list[str]:
    """Return one line for each import that points up, and for each module without a rank."""
    rank = {module: index for index, modules in enumerate(PACKAGE_LAYERS) for module in modules}
    faults = []
    for module, imported in module_graph(package).items():
        layer = module.partition(".")[0]
        if layer not in rank:
            faults.append(f"{module}: expected a module of {PACKAGE_LAYERS}, received {layer}")
            continue
        for other in sorted(imported):
            above = other.partition(".")[0]
            if above != layer and rank.get(above, -1) > rank[layer]:
                faults.append(f"{module}: {layer} imports {other} above it")
    return faults


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return one line for each cycle that a walk through `graph` finds; none if it has none."""
    found, finished, trail = [], set(), []

    def visit(node: str) -> None:
        if node in trail:
            found.append(" -> ".join([*trail[trail.index(node) :], node]))
        elif node not in finished:
            trail.append(node)
            for other in sorted(graph.get(node, ())):
                visit(other)
            finished.add(trail.pop())

    for node in graph:
        visit(node)
    return found


class TestTheTree(unittest.TestCase):
    def test_no_core_layer_includes_one_above_it(self):
        self.assertEqual(include_faults(ROOT / "src"), [])

    def test_no_cycle_between_units_of_the_core(self):
        self.assertEqual(cycles(unit_graph(ROOT / "src")), [])

    def test_only_the_transport_knows_mpi(self):
        self.assertEqual(mpi_faults(ROOT / "src"), [])

    def test_no_module_imports_one_above_it(self):
        self.assertEqual(import_faults(ROOT / "multiverso"), [])

    def test_no_modules_import_each_other_in_a_cycle(self):
        self.assertEqual(cycles(module_graph(ROOT / "multiverso")), [])

    def test_something_was_read(self):
        self.assertGreater(len(list(core_files(ROOT / "src"))), 20)
        self.assertGreater(len(list((ROOT / "multiverso").rglob("*.py"))), 5)


class TestTheChecks(unittest.TestCase):
    """Each fault above is found in a tree that has it, and a sound tree has none."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.top = Path(self.folder.name)

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def sound_core(self):
        self.write("src/base/status.h", "#include <memory>\n")
        self.write("src/table/table.h", '#include "base/status.h"\n#include "table/cut.h"\n')
        self.write(
            "src/include/multiverso/c_api.h", "/* an MPI_Comm */ #define MV_TRANSPORT_MPI 1\n"
        )
        self.write(
            "src/c_api/c_api.cc", '#include "multiverso/c_api.h"\n#include "table/table.h"\n'
        )
        self.write("src/transport/mpi_api.cc", 'auto* f = Find("MPI_Init"); MPI_Comm c;\n')
        return self.top / "src"

    def test_a_sound_core_passes(self):
        src = self.sound_core()
        self.assertEqual(include_faults(src), [])
        self.assertEqual(mpi_faults(src), [])

    def test_an_include_that_points_up_is_found_however_it_is_written(self):
        src = self.sound_core()
        for include in (
            '#include "table/table.h"',
            '#  include "../table/table.h"',
            "#include <table/table.h>",
            '#include "multiverso/c_api.h"',
            "#include <multiverso/c_api.h>",
            '#include "session/not_written_yet.h"',
            '/* here */ int x;\n\t#include "c_api/../table/table.h"',
        ):
            with self.subTest(include):
                self.write("src/base/dtype.cc", include + "\n")
                faults = include_faults(src)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("base/dtype.cc: base includes", faults[0])

    def test_an_include_in_a_comment_is_none(self):
        src = self.sound_core()
        self.write(
            "src/base/dtype.cc", '// #include "table/table.h"\n/*\n#include "c_api/a.h"\n*/\n'
        )
        self.assertEqual(include_faults(src), [])

    def test_a_cycle_between_units_is_found_behind_a_forward_declaration(self):
        src = self.sound_core()
        self.assertEqual(cycles(unit_graph(src)), [])
        self.write("src/table/cut.h", "class Table;\n")
        self.write("src/table/cut_linux.cc", '#include "table/cut.h"\n#include "table/table.h"\n')
        self.assertEqual(include_faults(src), [])
        self.assertEqual(cycles(unit_graph(src)), ["table/table -> table/cut -> table/table"])

    def test_a_folder_without_a_rank_is_found(self):
        src = self.sound_core()
        self.write("src/misc/helper.cc", "")
        self.assertIn("misc", "".join(include_faults(src)))

    def test_a_name_of_mpi_outside_the_transport_is_found(self):
        src = self.sound_core()
        for code in ("MPI_Comm comm;", 'Find("MPI_Send");', "#include <mpi.h>"):
            with self.subTest(code):
                self.write("src/session/session.cc", f"// MPI_Barrier is no code\n{code}\n")
                faults = mpi_faults(src)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("session/session.cc: ", faults[0])

    def sound_package(self):
        self.write(
            "multiverso/__init__.py", "from multiverso.api import init\nfrom . import errors\n"
        )
        self.write("multiverso/errors.py", "")
        self.write("multiverso/_native/__init__.py", "")
        self.write("multiverso/_native/capi.py", "from multiverso.errors import StateError\n")
        self.write("multiverso/_native/library.py", "from multiverso._native import capi\n")
        self.write("multiverso/api.py", "from multiverso import _native, errors\n")
        self.write("multiverso/theano_ext/__init__.py", "")
        self.write(
            "multiverso/theano_ext/sharedvar.py", "import multiverso as mv\nfrom .. import api\n"
        )
        return self.top / "multiverso"

    def test_a_sound_package_passes(self):
        package = self.sound_package()
        self.assertEqual(import_faults(package), [])
        self.assertEqual(cycles(module_graph(package)), [])

    def test_an_import_that_points_up_is_found_however_it_is_written(self):
        package = self.sound_package()
        for code in (
            "import multiverso.api",
            "import multiverso as mv",
            "from multiverso import api",
            "from multiverso import init",
            "from multiverso.theano_ext import sharedvar",
            "from . import api",
            "from .api import init",
            "def f():\n    from multiverso.api import init\n    return init",
        ):
            with self.subTest(code):
                self.write("multiverso/errors.py", code + "\n")
                faults = import_faults(package)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("errors: errors imports ", faults[0])

    def test_a_cycle_inside_a_package_is_found(self):
        package = self.sound_package()
        self.write("multiverso/_native/capi.py", "def f():\n    from . import library\n")
        self.assertEqual(import_faults(package), [])
        expected = ["_native.capi -> _native.library -> _native.capi"]
        self.assertEqual(cycles(module_graph(package)), expected)

    def test_an_import_for_the_type_checker_is_none(self):
        package = self.sound_package()
        code = (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from multiverso import api\n"
        )
        self.write("multiverso/errors.py", code)
        self.assertEqual(import_faults(package), [])

    def test_a_module_without_a_rank_is_found(self):
        package = self.sound_package()
        self.write("multiverso/misc.py", "")
        self.assertIn("misc", "".join(import_faults(package)))


if __name__ == "__main__":
    unittest.main()
