"""The features of Multiverso, the words by which code knows them, and what each of them costs.

`python tests/unit/support/features.py` prints the price of each feature: the lines of its own
files, and how many other files know it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core_files import code_of, core_files

ROOT = Path(__file__).resolve().parents[3]


class Feature(NamedTuple):
    """A feature: its words as a regular expression, globs of its own files, and its parts.

    The parts are the names in the table of what goes with what (`src/base/supported.cc`).
    """

    name: str
    words: str
    files: str
    parts: str = ""


#: What a table or a session may have. A function that knows several of these changes with each.
CROSSING = (
    Feature(
        "rows",
        r"\brow_ids\b|IndexedRows|k(Get|Add)Rows|has_rows|row_slots",
        "src/shard/row_* src/shard/shard_rows.h",
    ),
    Feature(
        "keys",
        r"is_hash|\bkey(s|ed)\b|Keyed|KeyIndex|KeyPolicy|hash_table|HashTable",
        "src/shard/key* multiverso/tables/_hash_table.py",
        "keys, evict",
    ),
    Feature(
        "lazy",
        r"[Ll]azy|initializer|k(Touch|Fill)Rows",
        "src/shard/lazy* src/numbers/initializer* multiverso/initializers.py",
        "lazy, lazy rows, max_bytes, random",
    ),
    Feature(
        "on disk",
        r"on_disk|backing|TableFile|DiskRows",
        "src/table/table_file* src/shard/disk_rows*",
        "on disk",
    ),
    Feature("16 bit", r"[Hh]alf\b|b?float16|Float16", "src/numbers/half*", "16 bit"),
    Feature(
        "updaters",
        r"[Uu]pdater|[Dd]casgda?\b|[Hh]yper(s|Of\w+)?\b",
        "src/numbers/*updater* src/numbers/optimizer* src/numbers/hyper* multiverso/updaters.py",
        "updater, counting updater, row-wise updater, dcasgd, easgd, clipnorm",
    ),
    Feature(
        "sync",
        r"sums_in_rounds|\bis_sync\b|\bsync\b|NodeRounds|\brounds\b|RoundSum",
        "src/consistency/*round* src/consistency/*sum* src/consistency/staging*",
        "sync",
    ),
    Feature("staleness", r"[Ss]taleness|WorkerClocks", "src/consistency/staleness*", "staleness"),
    Feature(
        "several nodes",
        r"spans_nodes|num_nodes|node_of|[Ss]everal nodes|\bis_local\b",
        "src/transport/* src/*/spanning* src/remote/* multiverso/_mpi/*",
        "several nodes",
    ),
    Feature(
        "elastic",
        r"elastic|[Jj]oiner|JoinRequest",
        "src/session/joining* multiverso/_local/elastic.py multiverso/_commands/join.py",
        "elastic, membership, leave",
    ),
    Feature("continue", r"survives_losses|on_loss|on_peer_lost|lost_ranks", "", "continue"),
    Feature(
        "publish",
        r"[Pp]ublish|[Pp]ublication",
        "src/session/publishing* src/calls/publication* src/reader/* multiverso/readers/*",
        "publish, attach, current values",
    ),
    Feature(
        "publish to a folder",
        r"PublicationWriter|\bfollow\b|kPublishTo",
        "multiverso/publishing/*",
        "publish to a folder",
    ),
    Feature(
        "wire", r"\bwire\b|[Ww]ire_?[Ff]ormat", "src/numbers/wire_format*", "wire, wire of calls"
    ),
    Feature(
        "ParamSync",
        r"ParamSync|TensorSync|param_sync",
        "src/*/param_sync* src/*/tensor_* multiverso/sync/*",
        "ParamSync, average, weight, fragment_sync_delay, overlap",
    ),
    Feature(
        "background",
        r"[Bb]ackground|\bFuture\b|_async\b",
        "src/c_api/background* src/c_api/waiting*",
        "fresh",
    ),
    Feature(
        "notice",
        r"\bnotice\b|on_term|SIGTERM|[Ll]eaving",
        "multiverso/_session/leaving.py multiverso/_session/notice.py",
        "leave on SIGTERM, checkpoints",
    ),
)

#: What else the package consists of.
OTHER = (
    Feature(
        "checkpoints",
        r"[Cc]heckpoint|SaveJob",
        "src/checkpoint/* src/saves/* multiverso/checkpoint/* multiverso/_session/remote_saves.py",
        "checkpoints at an address",
    ),
    Feature(
        "collectives", r"[Aa]ggregat(e|ion)|Collective", "src/sum/*aggregation*", "sent arrays"
    ),
    Feature("changed values", r"get_changed|ChangedExchange|LastGet", "src/calls/*change*"),
    Feature("interleaved memory", r"numa|NumaPolicy|Interleave", ""),
    Feature("work", r"\bWork\b", "multiverso/work.py", "Work"),
    Feature("spawn", r"\bspawn\b", "multiverso/_session/spawn.py"),
    Feature("run", r"_local\b|multiverso run", "multiverso/_local/* multiverso/_commands/run.py"),
    Feature("doctor", r"doctor", "multiverso/_commands/doctor.py multiverso/_commands/_trial.py"),
    Feature("info", r"\b_system_info\b|multiverso info", "multiverso/_commands/*info.py"),
    Feature(
        "top",
        r"\bprometheus|multiverso top|MV_SessionState",
        "multiverso/_commands/*top.py multiverso/_commands/_prometheus.py",
    ),
    Feature("verify", r"multiverso verify", "multiverso/_commands/verify.py"),
    Feature("torch.distributed", r"torch_ext\.distributed", "multiverso/torch_ext/distributed/*"),
    Feature("PyTorch", r"torch_ext|\btorch\b", "multiverso/torch_ext/*.py multiverso/torch.py"),
    Feature("JAX", r"jax_ext|\bjax\b", "multiverso/jax_ext/* multiverso/jax.py"),
    Feature("Keras", r"keras_ext|\bkeras\b", "multiverso/keras_ext/* multiverso/keras.py", "shard"),
    Feature("Theano", r"theano_ext|\btheano\b|pytensor", "multiverso/theano_ext/*"),
    Feature("Lasagne", r"lasagne", "multiverso/lasagne_ext/*"),
    Feature("learn", r"multiverso\.learn|\blearn\b", "multiverso/learn/*", "learn"),
    Feature("Lua", r"\blua\b", "lua/multiverso/*"),
    Feature(
        "other systems",
        r"_WIN32|win32|Windows|__APPLE__|darwin|CanBeFound",
        "src/*/*_windows.* src/*/*_other.*",
        "not Linux",
    ),
    Feature("roles", r"\bRole::|\brole\b", "", "roles"),
    Feature(
        "parts",
        r"IsPart|_parts\b|part_of",
        "src/calls/table_part.cc multiverso/tables/_parts.py",
        "add to a part of rows, add to a part of an array",
    ),
    Feature(
        "atomic calls",
        r"fetch_add|compare_swap|kIsAtomic|Atomics",
        "multiverso/tables/_atomics.py",
        "fetch_add",
    ),
    Feature(
        "live views", r"LiveView|view.live|\blive=", "multiverso/tables/_in_place.py", "live view"
    ),
    Feature(
        "layers",
        r"_layer\b|\bEmbedding",
        "multiverso/*_ext/_layer.py multiverso/*_ext/embedding.py multiverso/*_ext/_rows.py "
        "multiverso/*_ext/layers.py",
        "layers, prefetch, layers of a view, training rows, export",
    ),
)

#: What each session, table or call has one of if it has no feature. These cost nothing.
PLAIN = {
    *("async", "fail", "end on SIGTERM", "array", "matrix", "dense", "add"),
    *("integers", "float64"),
}

# The core is formatted, so a function begins with its name or type, and its brace ends a line. A
# line that ends in another way is a declaration or a statement, or a function on one line.
HEAD = re.compile(r"(?P<indent> {0,4})(?P<text>[A-Za-z~].*?[;{}]) *$", re.MULTILINE | re.DOTALL)
NO_FUNCTION = re.compile(
    r"(namespace|class|struct|enum|union|using|static_assert|extern|friend|template|public|private"
    r"|protected|return|if|for|while|switch|do)\b"
)
NAME = re.compile(r"([\w:~]+|operator *[^\w\s(]+)\s*\(")


def core_functions(code: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each function of a file in the core's format."""
    at = 0
    while at < len(code):
        head = HEAD.match(code, at)
        name = NAME.search(head["text"]) if head else None
        is_function = head and name and head["text"].endswith("{")
        if is_function and not NO_FUNCTION.match(head["text"]):
            end = re.compile(rf"^{head['indent']}\}}", re.MULTILINE).search(code, head.end())
            stop = end.end() if end else len(code)
            yield name[1], code[at:stop]
        else:
            stop = head.end() if head and head["text"].endswith(";") else at
        at = code.find("\n", stop) + 1 or len(code)


def package_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the text of each function, without its docstring."""
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            yield f"{prefix}{node.name}", ast.unparse(node)
        yield from package_functions(node, inner)


def functions(root: Path) -> Iterator[tuple[str, str]]:
    """Yield "FILE: NAME" and the text of each function of the core and the package."""
    for path in core_files(root / "src"):
        for name, text in core_functions(code_of(path)):
            yield f"{path.relative_to(root)}: {name}", text
    for path in sorted((root / "multiverso").rglob("*.py")):
        for name, text in package_functions(ast.parse(path.read_text("utf-8"))):
            yield f"{path.relative_to(root)}: {name}", text


def known_features(text: str) -> list[str]:
    """Return the names of the crossing features whose words are in a text."""
    return [feature.name for feature in CROSSING if re.search(feature.words, text)]


def sources(root: Path) -> list[Path]:
    """Return all source files of the core, the package and the binding for Lua."""
    package = [*(root / "multiverso").rglob("*.py"), *(root / "lua").rglob("*.lua")]
    return sorted([*core_files(root / "src"), *package])


class Price(NamedTuple):
    """What a feature costs: the files of its own, their lines, and the other files that know it."""

    name: str
    files: int
    lines: int
    asked: int


def price(feature: Feature, texts: dict[Path, str], root: Path) -> Price:
    """Return the price of a feature, given the text without comments of each file."""
    own = {path for glob in feature.files.split() for path in root.glob(glob) if path in texts}
    others = [p for p, text in texts.items() if p not in own and re.search(feature.words, text)]
    lines = sum(path.read_text("utf-8").count("\n") for path in own)
    return Price(feature.name, len(own), lines, len(others))


def prices(root: Path = ROOT) -> list[Price]:
    """Return the prices of all features."""
    texts = {p: p.read_text("utf-8") if p.suffix == ".py" else code_of(p) for p in sources(root)}
    return [price(feature, texts, root) for feature in CROSSING + OTHER]


if __name__ == "__main__":
    write = sys.stdout.write
    write(f"{'feature':24}{'own files':>10}{'lines':>8}{'other files':>13}\n")
    for row in prices():
        write(f"{row.name:24}{row.files:10}{row.lines:8}{row.asked:13}\n")
