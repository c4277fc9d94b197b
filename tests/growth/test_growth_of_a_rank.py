"""What a single rank does while one of its sizes is doubled, in counts; `counting.h` says more.

The counts are those of the system and of Python: reads and writes of files (``/proc/self/io``),
descriptors, bytes of files, and lines that run. They are exact on any machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import multiverso as mv
from multiverso._local.processes import find_sessions

IO = Path("/proc/self/io")
pytestmark = pytest.mark.skipif(not IO.exists(), reason="the kernel does not count reads of files")

#: A process with tables, each in a segment of its own, which ends with its standard input.
WITH_TABLES = """
import sys
import multiverso as mv
with mv.session(name="growth"):
    tables = [mv.ArrayTable(4, name=str(each)) for each in range(int(sys.argv[1]))]
    print("created", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def session():
    with mv.session(name=f"growth-{os.getpid()}"):
        yield


def count(read, call):
    """Return by how much `call` increases what `read` returns, without what `read` itself adds."""
    own = -(read() - read())
    before = read()
    call()
    return read() - before - own


def reads():
    return int(IO.read_text("ascii").partition("syscr: ")[2].split()[0])


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def lines(call):
    """Return how many lines of Python a call runs."""
    number = 0

    def trace(frame, event, argument):
        nonlocal number
        number += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return number


def arrays(number):
    return [mv.ArrayTable(4, name=f"{number} {each}") for each in range(number)]


def reads_of_insertions(keys):
    """Return the reads of files during an insertion of new keys."""
    table = mv.HashTable(4, capacity=20_000)
    return count(reads, lambda: table.add(np.ones((keys, 4)), np.arange(keys)))


def test_insertion_looks_up_the_free_memory_as_often_for_more_keys():
    reads_of_insertions(1)  # The first call of a process imports modules.
    assert reads_of_insertions(2000) == reads_of_insertions(4000)


def test_loading_looks_up_the_free_memory_as_often_for_more_keys(tmp_path):
    def load(keys):
        table = mv.HashTable(4, capacity=20_000)
        table.add(np.ones((keys, 4)), np.arange(keys))
        table.save(tmp_path / str(keys))
        empty = mv.HashTable(4, capacity=20_000)
        return count(reads, lambda: empty.load(tmp_path / str(keys)))

    load(1)
    assert load(8000) == load(4000)


def test_creation_runs_as_many_lines_beside_more_tables():
    kept, found = [], []

    def create():
        kept.append(mv.ArrayTable(4, name=f"table {len(kept)}"))

    for tables in (20, 80):
        while len(kept) < tables:
            create()
        found.append(lines(create))
    assert found[0] == found[1]


def test_every_named_table_keeps_a_descriptor():
    # Goal: none, so that 5 000 tables do with a limit of 1 024 descriptors.
    kept = []
    for number in (10, 20):
        assert count(descriptors, lambda number=number: kept.extend(arrays(number))) == number


@pytest.mark.parametrize("publishes", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["adam", "lazy", "hash"])
def test_increment_has_the_changed_rows(tmp_path, kind, dtype, publishes):
    rng = np.random.default_rng([publishes, len(kind), int(dtype[5:])])
    columns = int(rng.integers(16, 257))
    rows = (24 << 20) // (columns * np.dtype(dtype).itemsize)
    if kind == "hash":
        table = mv.HashTable(columns, capacity=2 * rows, dtype=dtype, name="w")
    elif kind == "lazy":
        table = mv.MatrixTable(rows, columns, mv.initializers.Zeros(), dtype=dtype, name="w")
    else:
        table = mv.MatrixTable(rows, columns, dtype=dtype, updater=kind, name="w")

    def bytes_of_increment(changed):
        for part in np.array_split(changed, 4):
            table.add(np.ones((len(part), columns), dtype), part)
            if publishes:
                mv.publish()
        mv.save(tmp_path, incremental=True)
        files = mv.checkpoint.latest(tmp_path).iterdir()
        return sum(file.stat().st_size for file in files if "-of-" not in file.name)

    full = bytes_of_increment(np.arange(rows))
    for share in rng.uniform(0.002, 0.01, 3):
        changed = rng.permutation(rows)[: int(rows * share)]
        assert bytes_of_increment(changed) <= 1.5 * full / rows * len(changed) + 1_000
    assert bytes_of_increment(np.arange(rows)) <= full + 1_000


def reads_of_readers(tables):
    """Return the reads of attaching to a process with tables, and of `multiverso top`."""
    command = [sys.executable, "-c", WITH_TABLES, str(tables)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "created\n"
        opened = []
        attaching = count(reads, lambda: opened.append(mv.attach(process.pid)))
        looking = count(reads, lambda: find_sessions(process.pid))
        opened[0].close()
        process.stdin.close()
    return attaching, looking


def test_only_readers_of_a_job_read_its_tables():
    (ten, look), (twenty, same), (forty, again) = map(reads_of_readers, (10, 20, 40))
    assert (twenty - ten, forty - twenty) == (10, 20)
    assert look == same == again
