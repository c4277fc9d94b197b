"""ParamSync on any number of ranks: what it does beside the cases of adapter_suite.py."""

import shutil
import tempfile

import numpy as np
import worker
from cases import equal, open_session, registrar, run_all, texts_of_ranks

import multiverso as mv
from multiverso.sync import ParamSync

CASES = {}

case = registrar(CASES)


@case()
def average_of_a_loaded_table_is_that_of_this_job():
    if mv.size() == 1:
        return
    folder = texts_of_ranks(tempfile.mkdtemp() if mv.rank() == 0 else "", length=256)[0]
    sync = ParamSync([np.zeros(3)], average=True)
    mv.save(folder)
    for options in ({}, {"sync": True}):
        mv.shutdown()
        open_session(role="server" if worker.RANK == 0 else "all", **options)  # a worker less
        weights = np.zeros(3)
        sync = ParamSync([weights], average=True)
        for load in (mv.load, sync.tables[0].load):
            load(folder)
            if worker.RANK > 0:
                sync.sync()
                weights += mv.num_workers()
                sync.sync()
            mv.barrier()
            if worker.RANK > 0:
                equal(sync.tables[0].get(), np.full(3, mv.num_workers()))
            mv.barrier()
    if worker.RANK == 0:
        shutil.rmtree(folder)


def check_fragments(wire=None, overlap=False):
    """Train arrays in three fragments, each exchanged once in 6 steps, and check when and what."""
    arrays = [np.zeros(size, np.float32) for size in (1000, 600, 500, 20_000)]
    arrays.append(np.zeros(15_000))
    sync = ParamSync(arrays, fragments=3, sync_every=6, wire=wire, overlap=overlap)
    equal([table.size for table in sync.tables], [2100, 20_000, 15_000])
    names = [table.name for table in sync.tables]
    equal(len(set(names)), 3)
    adds = []
    for step in range(12):
        for array in arrays:
            array += mv.worker_id() + 1
        sync.sync()
        if not overlap or step % 3 == 0:
            sync.wait()
        adds.append([mv.stats()[name]["adds"] for name in names])
    sync.wait()
    if not overlap:
        # The fragments take turns in every second step.
        equal(np.array(adds).sum(axis=1), np.arange(1, 13) // 2)
    equal([mv.stats()[name]["adds"] for name in names], [2, 2, 2])
    sync.sync_all()
    sync.wait()
    mv.barrier()
    for _ in range(4):
        sync.sync_all()
        sync.wait()
    mv.barrier()
    sync.sync_all()
    sync.wait()
    total = 12 * sum(range(1, mv.num_workers() + 1))
    for array in arrays:
        assert np.abs(array - total).max() <= (0.01 if wire is None else 1 + total / 128)
    mv.barrier()


@case()
def fragments_take_turns():
    check_fragments()
    check_fragments(overlap=True)
    check_fragments("int8")


@case(sync=True)
def fragments_take_turns_in_rounds():
    check_fragments()
    check_fragments("int8")


def check_merging(delay, alpha, *, updater="add", is_exact=True):
    """Train two fragments, each exchanged once in 6 steps, and compare them with a model."""
    me, workers = mv.worker_id(), mv.num_workers()
    arrays = [np.zeros(300, np.float32), np.zeros(300, np.float32)]
    options = {} if updater == "add" else {"learning_rate": 0.5}
    sync = ParamSync(
        arrays,
        updater=updater,
        fragments=2,
        sync_every=6,
        fragment_sync_delay=delay,
        fragment_update_alpha=alpha,
        **options,
    )
    rate = 1.0 if updater == "add" else 0.5
    own, table, last = np.zeros((2, workers)), np.zeros(2), np.zeros((2, workers))
    for step in range(1, 16):
        for array in arrays:
            array += me + 1
        own += np.arange(1, workers + 1)
        sync.sync()
        if (step + delay) % 3 == 0:
            fragment = ((step + delay) // 3 - 1) % 2
            table[fragment] += rate * (own[fragment] - last[fragment]).sum()
        if step % 3 == 0:
            fragment = (step // 3 - 1) % 2
            last[fragment] = table[fragment]
            own[fragment] = table[fragment] + alpha * (own[fragment] - table[fragment])
        if is_exact:
            for array, values in zip(arrays, own, strict=True):
                np.testing.assert_allclose(array, np.full(300, values[me]), rtol=1e-6)
    for _ in range(3):
        sync.sync_all()
        mv.barrier()
    if is_exact:
        for _ in range(3):
            table += rate * (own - last).sum(axis=1)
            last[:] = table[:, None]
            own = table[:, None] + alpha * (own - table[:, None])
        for array, values in zip(arrays, own, strict=True):
            np.testing.assert_allclose(array, np.full(300, values[me]), rtol=1e-6)
        values = [t.get(sync=True)[0] for t in sync.tables]
        np.testing.assert_allclose(values, table, rtol=1e-6)
    mv.barrier()


@case(sync=True)
def results_are_merged_as_in_streaming_diloco():
    check_merging(2, 0.0)
    check_merging(0, 0.5)
    check_merging(1, 0.5)
    check_merging(2, 1.0)
    check_merging(1, 0.25, updater="sgd")


@case()
def results_are_merged_without_rounds():
    check_merging(2, 0.0, is_exact=mv.num_workers() == 1)
    check_merging(1, 0.5, is_exact=mv.num_workers() == 1)


@case()
def weights_divide_by_their_mean():
    for average in (False, True):
        array = np.zeros(3000, np.float32)
        sync = ParamSync([array], weight=lambda: 10.0 * (1 + mv.worker_id()), average=average)
        mv.barrier()
        for turn in range(mv.num_workers()):
            # The workers take turns, so that each knows which weights the others have given.
            if turn == mv.worker_id():
                array += 1
                sync.sync()
            mv.barrier()
        weights = np.arange(1, mv.num_workers() + 1)
        scales = weights * weights / np.cumsum(weights)
        expected = scales.sum() / (mv.num_workers() if average else 1)
        values = sync.tables[0].get(sync=True)
        assert np.abs(values - expected).max() <= 1e-5, (values[0], expected)
        mv.barrier()


@case()
def elastic_averaging_of_workers_taking_turns():
    arrays = [np.full(30_000, 0.0)]
    sync = ParamSync(arrays, updater="easgd", elastic_force=0.25)
    arrays[0] += mv.worker_id() + 1
    center = 0.0
    for who in range(mv.num_workers()):
        center += 0.25 * (who + 1 - center)
        if who == mv.worker_id():
            sync.sync()
            equal(arrays[0], np.full(30_000, who + 1 + 0.25 * (center - (who + 1))))
        mv.barrier()
    equal(sync.tables[0].get(), np.full(30_000, center))


if __name__ == "__main__":
    run_all(CASES)
