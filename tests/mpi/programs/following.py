"""Cases about publications that the ranks of one or more nodes write to a folder together."""

import tempfile

import numpy as np
from cases import SEED, equal, open_session, raises, registrar, run_all, texts_of_ranks
from modes import same_bits

import multiverso as mv
from multiverso import api

CASES = {}

case = registrar(CASES)

STEPS = 9


def new_folder():
    """Return a new folder that all ranks know. Collective."""
    return texts_of_ranks(tempfile.mkdtemp() if mv.rank() == 0 else "", length=256)[0]


def change_at_random(rng, tables, step):
    """Change tables as one of several writers; each owns some of the keys and of the lazy rows."""
    array, matrix, keyed, lazy = tables
    array.add(rng.integers(-9, 9, array.size) * (rng.random(array.size) < 0.02))
    matrix.add(rng.normal(size=(5, matrix.num_col)), row_ids=rng.integers(0, matrix.num_row, 5))
    keys = mv.num_workers() * rng.integers(0, 30, 8) + mv.worker_id()
    keyed.add(rng.normal(size=(8, keyed.num_col)), keys=keys)
    if step % 3 == 2:
        keyed.remove(keys[:5])
    lazy.add(rng.normal(size=(3, lazy.num_col)), row_ids=rng.integers(0, lazy.num_row, 3))


def check_follower(view, step, tables, folder):
    """Check that a follower has the tables of this step bit for bit."""
    array, matrix, keyed, lazy = tables
    assert view.wait(step + 1, timeout=60) == step + 1, (view.version, step)
    cut = view.cut()
    assert cut.step == step, folder
    same_bits(cut["array"], array.get())
    same_bits(cut["matrix"], matrix.get())
    keys, rows = cut["keyed"]
    equal(np.sort(keys), np.sort(np.concatenate([some for some, _ in keyed.items()])))
    same_bits(rows, keyed.get(keys))
    ids, rows = cut["lazy"]
    same_bits(rows, lazy.get(ids))


def follow(**options):
    """Publish random changes of all ranks, of which a reader on one rank gets each version."""
    folder = new_folder()
    rng = np.random.default_rng([SEED, mv.rank()])
    tables = (
        mv.ArrayTable(150_001, name="array"),
        mv.MatrixTable(1001, 7, name="matrix", dtype="float64"),
        mv.HashTable(3, 1000, name="keyed"),
        mv.MatrixTable(1_000_000, 4, mv.initializers.RandomNormal(seed=3), name="lazy"),
    )
    view = late = None
    for step in range(STEPS):
        change_at_random(rng, tables, step)
        mv.barrier()
        assert mv.publish(step, to=folder, full_every=4, **options) == step + 1
        if mv.is_master_worker():
            view = view or mv.follow(folder, timeout=60)
            check_follower(view, step, tables, folder)
            if step == STEPS - 1:
                late = mv.follow(folder)
                check_follower(late, step, tables, folder)
        mv.barrier()


@case(name="following")
def follower_gets_each_version_bit_for_bit():
    follow()


@case(name="following", sync=True)
def follower_gets_whole_rounds_in_sync_mode():
    folder = new_folder()
    array = mv.ArrayTable(100_000, name="array")
    small = mv.ArrayTable(17, name="small")  # only one node has a part of it
    view = None
    for step in range(5):
        array.add(np.full(100_000, mv.worker_id() + 1.0))
        small.add(np.full(17, mv.worker_id() + 1.0))
        mv.publish(step, to=folder, full_every=3)
        expected = (step + 1) * mv.num_workers() * (mv.num_workers() + 1) / 2
        if mv.is_master_worker():
            view = view or mv.follow(folder, timeout=60)
            view.wait(step + 1, timeout=60)
            equal(view.tables["array"].get(), np.full(100_000, expected))
            equal(view.tables["small"].get(), np.full(17, expected))
        mv.barrier()


@case(name="following")
def sessions_continue_the_numbers_of_a_folder():
    folder = new_folder()
    workers = mv.num_workers()
    for number in (1, 2):
        array = mv.ArrayTable(10, name=f"array of {number}")
        array.add([1] * 10)
        mv.barrier()
        mv.publish(number, to=folder)
        mv.shutdown()
        with mv.follow(folder) as view:
            assert (view.version, view.step) == (number, number)
            equal(view.tables[f"array of {number}"].get(), np.full(10, workers))
        open_session(name="following")


@case(name="following")
def failed_publications_are_errors_of_all_ranks_and_then_go_on():
    array = mv.ArrayTable(1000, name="array")
    error = OSError if mv.is_master_worker() else mv.errors.MismatchError
    if mv.num_workers() == mv.size() and api.current_session().num_nodes == 1:
        for _ in range(2):
            raises(error, lambda: mv.publish(1, to="/dev/null/folder"))
            mv.barrier()
    folder = new_folder()
    for step in range(3):
        array.add(np.ones(1000))
        mv.barrier()
        mv.publish(step, to=folder)
        mv.barrier()
    if mv.is_master_worker():
        view = mv.follow(folder, timeout=60)
        view.wait(3, timeout=60)
        equal(view.tables["array"].get(), np.full(1000, 3 * mv.num_workers()))


if __name__ == "__main__":
    run_all(CASES)
