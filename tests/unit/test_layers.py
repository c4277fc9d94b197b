"""Files depend only on lower layers and not in cycles, in the C++ core and the Python package."""

import ast
import functools
import re
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_files import code_of, core_files
from folders import FolderTestCase

ROOT = Path(__file__).resolve().parents[2]

# The folders of src/ from the lowest layer to the highest. A folder that is not listed is a fault.
CORE_LAYERS = (
    *("base", "memory", "numbers", "shard", "transport", "node", "liveness", "group", "sum"),
    *("consistency", "checkpoint", "table", "remote", "calls", "reader", "saves", "session"),
    "c_api",
)
# The folder of the public header, which belongs to the layer that implements it, c_api, and of its
# constants, which all layers use.
PUBLIC = "include"
CONSTANTS = "constants.h"

# The modules and packages of multiverso/ from the lowest layer to the highest. Those on one line
# may import each other, if that makes no cycle. `__init__` is the public interface, which the
# adapters above it use like any other program.
PACKAGE_LAYERS = (
    ("_extras", "_version", "errors"),
    ("_mpi", "_native"),
    ("_local",),
    ("devices", "initializers", "readers", "updaters"),
    ("_session",),
    ("api", "tables"),
    ("checkpoint", "publishing", "sync", "work"),
    ("__init__",),
    ("_commands",),
    ("__main__",),
    ("jax_ext", "keras_ext", "lasagne_ext", "learn", "theano_ext", "torch_ext"),
    ("jax", "keras", "torch"),
)

INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?P<bracket>["<])(?P<path>[^">]+)[">]', re.MULTILINE
)
MPI_NAME = re.compile(r"\bMPI_\w+|\bmpi\.h\b")
CHECK_INTERVAL = re.compile(r"\b(k\w*CheckInterval)\s*=")
# A waiting call checks as often as `WaitLimit` says; these threads check for all calls of a node.
INTERVAL_OWNERS = ("base/clock.h", "consistency/clock_exchange.cc", "group/control_channel.cc")

#: How a rank was lost, and the report of it. Other folders ask `PeerStatus` whether a rank is lost,
#: and get the errors about it from `PeerStatus`, `PeerWatch` and `Group`.
LOSS = re.compile(r"\b(ExitReason|ReportLost)\b")
LOSS_OWNERS = ("liveness", "group")


def core_layer(path: Path, src: Path) -> str:
    """Return the layer of a file of the core."""
    folder = path.relative_to(src).parts[0]
    if folder == PUBLIC:
        return "base" if path.name == CONSTANTS else "c_api"
    return folder


def includes(path: Path, src: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield each path that a file includes, with the file under `src` at this path, or None."""
    for include in INCLUDE.finditer(code_of(path)):
        beside = [path.parent] if include["bracket"] == '"' else []
        targets = ((folder / include["path"]).resolve() for folder in [*beside, src, src / PUBLIC])
        inside = (t for t in targets if t.is_file() and t.is_relative_to(src.resolve()))
        yield include["path"], next(inside, None)


def include_faults(src: Path) -> list[str]:
    """Return a line for each include of a higher layer and each file in a folder without one."""
    faults = []
    for path in core_files(src):
        layer = core_layer(path, src)
        name = path.relative_to(src)
        if layer not in CORE_LAYERS:
            faults.append(f"{name}: expected a folder of {CORE_LAYERS}, received {layer}")
            continue
        for included, target in includes(path, src):
            # The path of a missing file still begins with its layer. A path without a folder, such
            # as <memory>, is in the standard library.
            other_layer = core_layer(target, src.resolve()) if target else included.split("/")[0]
            if "/" in included and other_layer in CORE_LAYERS[CORE_LAYERS.index(layer) + 1 :]:
                faults.append(f"{name}: {layer} includes {included} of {other_layer} above it")
    return faults


def unit_graph(src: Path) -> dict[str, set[str]]:
    """Return the other units that each unit includes; a unit is a header with its source file."""
    graph: dict[str, set[str]] = {}
    for path in core_files(src):
        unit = str(path.relative_to(src).with_suffix(""))
        targets = (target for _, target in includes(path, src) if target)
        others = {str(target.relative_to(src.resolve()).with_suffix("")) for target in targets}
        graph.setdefault(unit, set()).update(others - {unit})
    return graph


def name_faults(src: Path, names: re.Pattern[str], owners: Sequence[str]) -> list[str]:
    """Return a line for each such name in the code of another layer or file than its owners."""
    return [
        f"{path.relative_to(src)}: {name}"
        for path in core_files(src)
        if not {core_layer(path, src), path.relative_to(src).as_posix()} & {*owners}
        for name in sorted(set(names.findall(code_of(path))))
    ]


mpi_faults = functools.partial(name_faults, names=MPI_NAME, owners=("transport",))
interval_faults = functools.partial(name_faults, names=CHECK_INTERVAL, owners=INTERVAL_OWNERS)
loss_faults = functools.partial(name_faults, names=LOSS, owners=LOSS_OWNERS)


def imported_modules(path: Path, package: Path) -> Iterator[str]:
    """Yield the modules of `package` that a file imports, as dotted names without the package's.

    Imports for type checking count, since who reads the file follows them as well.
    """
    # The package of the file, from which a relative import with one dot starts.
    own_package = [package.name, *path.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = own_package[: len(own_package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == package.name:
                yield module_of(target[1:], package)


def module_of(names: list[str], package: Path) -> str:
    """Return the module of an imported name; the last of `names` may be an object in the module."""
    for end in range(len(names), 0, -1):
        path = package.joinpath(*names[:end])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(names[:end])
    return "__init__"


def module_graph(package: Path) -> dict[str, set[str]]:
    """Return the other modules of `package` that each of its modules imports."""
    graph = {}
    for path in sorted(package.rglob("*.py")):
        names = path.relative_to(package).with_suffix("").parts
        module = ".".join(names[:-1] if len(names) > 1 and names[-1] == "__init__" else names)
        graph[module] = set(imported_modules(path, package)) - {module}
    return graph


def import_faults(package: Path) -> list[str]:
    """Return a line for each import of a higher layer, and for each module without a layer."""
    height = {module: index for index, modules in enumerate(PACKAGE_LAYERS) for module in modules}
    faults = []
    for module, imported in module_graph(package).items():
        layer = module.partition(".")[0]
        if layer not in height:
            faults.append(f"{module}: expected a module of {PACKAGE_LAYERS}, received {layer}")
            continue
        for other in sorted(imported):
            other_layer = other.partition(".")[0]
            if other_layer != layer and height.get(other_layer, -1) > height[layer]:
                faults.append(f"{module}: {layer} imports {other} above it")
    return faults


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return a line for each cycle that a depth-first search finds: none only if there is none."""
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

    def test_only_the_transport_layer_names_mpi(self):
        self.assertEqual(mpi_faults(ROOT / "src"), [])

    def test_no_call_has_a_check_interval_of_its_own(self):
        self.assertEqual(interval_faults(ROOT / "src"), [])

    def test_errors_about_lost_ranks_have_their_owners(self):
        self.assertEqual(loss_faults(ROOT / "src"), [])

    def test_no_units_include_each_other_in_a_cycle(self):
        self.assertEqual(cycles(unit_graph(ROOT / "src")), [])

    def test_no_module_imports_one_above_it(self):
        self.assertEqual(import_faults(ROOT / "multiverso"), [])

    def test_no_modules_import_each_other_in_a_cycle(self):
        graph = module_graph(ROOT / "multiverso")
        self.assertEqual(cycles(graph), [])

    def test_no_modules_of_the_session_need_each_other_even_for_types(self):
        for path in (ROOT / "multiverso" / "_session").glob("*.py"):
            self.assertNotIn("TYPE_CHECKING", path.read_text("utf-8"), path.name)

    def test_source_files_are_found(self):
        self.assertGreater(len(list(core_files(ROOT / "src"))), 20)
        self.assertGreater(len(list((ROOT / "multiverso").rglob("*.py"))), 5)


class TestTheChecks(FolderTestCase):
    """The checks find each fault in a tree with that fault, and no fault in a valid tree."""

    def write(self, name, *lines):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def valid_core(self):
        for name, *lines in (
            ("base/status.h", "#include <memory>"),
            ("table/table.h", '#include "base/status.h"', '#include "table/cut.h"'),
            ("include/multiverso/c_api.h", "/* an MPI_Comm */ #define MV_TRANSPORT_MPI 1"),
            ("c_api/c_api.cc", '#include "multiverso/c_api.h"', '#include "table/table.h"'),
            ("transport/mpi_api.cc", 'auto* f = Find("MPI_Init"); MPI_Comm c;'),
        ):
            self.write(f"src/{name}", *lines)
        return self.folder / "src"

    def test_valid_core_passes(self):
        src = self.valid_core()
        self.assertEqual(include_faults(src), [])
        self.assertEqual(mpi_faults(src), [])
        self.assertEqual(cycles(unit_graph(src)), [])

    def test_finds_a_cycle_of_units_through_a_source_file(self):
        src = self.valid_core()
        self.write("src/table/cut.h")
        self.write("src/table/cut.cc", '#include "table/cut.h"', '#include "table/table.h"')
        self.assertEqual(include_faults(src), [])
        self.assertEqual(cycles(unit_graph(src)), ["table/table -> table/cut -> table/table"])

    def test_finds_every_form_of_include_that_points_up(self):
        src = self.valid_core()
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
                self.write("src/base/dtype.cc", include)
                faults = include_faults(src)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("base/dtype.cc: base includes", faults[0])

    def test_ignores_includes_in_comments(self):
        src = self.valid_core()
        comments = ('// #include "table/table.h"', "/*", '#include "c_api/a.h"', "*/")
        self.write("src/base/dtype.cc", *comments)
        self.assertEqual(include_faults(src), [])

    def test_finds_a_folder_and_a_module_without_a_layer(self):
        src, package = self.valid_core(), self.valid_package()
        self.write("src/misc/helper.cc")
        self.write("multiverso/misc.py")
        self.assertIn("misc", "".join(include_faults(src)))
        self.assertIn("misc", "".join(import_faults(package)))

    def test_finds_names_in_the_code_of_others_than_their_owners(self):
        for find, owner, code, expected in (
            (mpi_faults, "transport/channel.cc", "MPI_Comm comm;", "MPI_Comm"),
            (mpi_faults, "transport/channel.cc", 'Find("MPI_Send");', "MPI_Send"),
            (mpi_faults, "transport/channel.cc", "#include <mpi.h>", "mpi.h"),
            (interval_faults, "base/clock.h", "auto kPeerCheckInterval = 2;", "kPeerCheckInterval"),
            (loss_faults, "group/watch.cc", "state->ReportLost(rank);", "ReportLost"),
            (loss_faults, "group/watch.cc", "? peers->ExitReason(rank) : 0;", "ExitReason"),
        ):
            with self.subTest(code):
                src = self.valid_core()
                self.write(f"src/{owner}", code)
                self.write("src/table/call.cc", "// MPI_Barrier is a comment", code)
                self.assertEqual(find(src), [f"table/call.cc: {expected}"])

    def valid_package(self):
        for name, *lines in (
            ("__init__", "from multiverso.api import init", "from . import errors"),
            ("errors",),
            ("_native/__init__",),
            ("_native/capi", "from multiverso.errors import StateError"),
            ("_native/library", "from multiverso._native import capi"),
            ("api", "from multiverso import _native, errors"),
            ("theano_ext/__init__",),
            ("theano_ext/sharedvar", "import multiverso as mv", "from .. import api"),
        ):
            self.write(f"multiverso/{name}.py", *lines)
        return self.folder / "multiverso"

    def test_valid_package_passes(self):
        package = self.valid_package()
        self.assertEqual(import_faults(package), [])
        self.assertEqual(cycles(module_graph(package)), [])

    def test_finds_every_form_of_import_that_points_up(self):
        package = self.valid_package()
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
                self.write("multiverso/errors.py", code)
                faults = import_faults(package)
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("errors: errors imports ", faults[0])

    def test_finds_a_cycle_inside_a_package(self):
        package = self.valid_package()
        self.write("multiverso/_native/capi.py", "def f():", "    from . import library")
        self.assertEqual(import_faults(package), [])
        expected = ["_native.capi -> _native.library -> _native.capi"]
        self.assertEqual(cycles(module_graph(package)), expected)

    def test_finds_a_cycle_of_imports_for_type_checking(self):
        package = self.valid_package()
        code = (
            "from typing import TYPE_CHECKING",
            "if TYPE_CHECKING:",
            "    from . import library",
        )
        self.write("multiverso/_native/capi.py", *code)
        expected = ["_native.capi -> _native.library -> _native.capi"]
        self.assertEqual(cycles(module_graph(package)), expected)
