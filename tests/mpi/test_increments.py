"""Increments restore what full checkpoints of the same moments restore, in jobs of any size."""

import os
import random

import numpy as np
import pytest

import launch
from multiverso import checkpoint as checkpoints
from multiverso._native import capi

# What differs from a full checkpoint is in the files, which no MPI writes.
pytestmark = pytest.mark.one_mpi


def contents(path):
    """Return everything that a checkpoint holds."""
    with checkpoints.Checkpoint(path) as opened:
        opened.verify()
        arrays = {}
        for index, table in enumerate(opened.tables):
            if table.is_hash_table:
                shape = (table.shape[0], 2)
                arrays[table.name, "uses"] = opened._read(
                    index, capi.MV_AREA_KEYS, shape, np.dtype(np.int64)
                )
            arrays[table.name, "values"] = opened.read(table.name)
            for slot in range(table.slots):
                arrays[table.name, slot] = opened.read(table.name, slot)
            arrays[table.name, "steps"] = opened.read_steps(table.name)
            arrays[table.name, "row state"] = opened.read_row_state(table.name)
            arrays[table.name, "keys"] = opened.read_keys(table.name)
        is_increment = any(path.glob("shard-*-of-*.mv"))
        return opened.tables, arrays, opened.step, is_increment


def check_same(left, right):
    assert left[0] == right[0]
    assert left[2] == right[2]
    assert left[1].keys() == right[1].keys()
    for name, values in left[1].items():
        assert (values is None) == (right[1][name] is None), name
        if values is not None:
            assert values.tobytes() == right[1][name].tobytes(), name


@pytest.mark.parametrize("mode", ["async", "sync", "stale"])
def test_random_programs_restore_what_full_checkpoints_restore(mode, tmp_path):
    seed = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    increments = 0
    for _ in range(3):
        np_, per_node = rng.choice([(1, None), (2, 1), (3, 2), (4, 2), (4, None)])
        nodes = {} if per_node is None else {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
        result = launch.run(
            "increments.py", str(tmp_path), str(rng.getrandbits(32)), mode, "6", np=np_, **nodes
        ).check()
        details = f"MULTIVERSO_TEST_SEED={seed}\n{result.output}"
        assert all(result.reports[rank]["agrees"] for rank in range(np_)), details
        full = {path.name.split("-")[-1]: path for path in checkpoints.saved_in(tmp_path / "full")}
        for path in checkpoints.saved_in(tmp_path / "increments"):
            saved = contents(path)
            increments += saved[3]
            try:
                check_same(saved, contents(full[path.name.split("-")[-1]]))
            except AssertionError as error:
                raise AssertionError(f"{path.name}: {error}\n{details}") from error
        names = {path.name[0] for path in (tmp_path / "increments").iterdir()}
        assert names == {"0"}  # no remains of saves and of removals
    assert increments > 0
