"""Checkpoints load in jobs of any number of ranks, and a killed job leaves a complete one."""

import os
import random
import signal
import time

import pytest

import launch
from multiverso import checkpoint as checkpoints

#: The number of jobs that are killed while they save.
KILLS = int(os.environ.get("MULTIVERSO_TEST_KILLS", "3"))


def run(*arguments, np, per_node=None, **options):
    nodes = {} if per_node is None else {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    return launch.run("checkpoints.py", *map(str, arguments), np=np, **nodes, **options)


def check_loads(folder, mode, saved, jobs):
    # Each worker w added (w + 1) * (1 + 10 + 100) to every element.
    expected = 111 * sum(range(1, saved[0]["workers"] + 1))
    for np, per_node in jobs:
        loaded = run("load", folder, mode, np=np, per_node=per_node).check().reports
        for rank in range(np):
            assert loaded[rank]["step"] == 17
            assert loaded[rank]["sum"] == expected
            assert loaded[rank]["uniform"]
        assert loaded[0].get("digest") == saved[0].get("digest")


@pytest.mark.parametrize(
    ("np", "per_node", "background"),
    [
        pytest.param(4, None, "foreground", marks=pytest.mark.one_mpi),
        pytest.param(1, None, "background", marks=pytest.mark.one_mpi),
        pytest.param(3, None, "address", marks=pytest.mark.one_mpi),
        (3, 2, "background"),
    ],
)
def test_job_of_any_size_resumes_from_a_checkpoint(np, per_node, background, tmp_path):
    is_remote = background == "address"
    place = f"local://{tmp_path}" if is_remote else tmp_path
    saved = run("save", place, "async", background, np=np, per_node=per_node).check().reports
    checkpoints.verify(tmp_path)
    check_loads(place, "async", saved, [(2, None if is_remote else 1), (3, None)])


@pytest.mark.parametrize(
    ("mode", "per_node", "loaded_by"),
    [
        pytest.param("sync", None, (2, None), marks=pytest.mark.one_mpi),
        pytest.param("stale", None, (2, None), marks=pytest.mark.one_mpi),
        ("sync", 2, (2, 1)),  # each node has all rows, and each saves a part of them
        ("sync", 1, (2, None)),
        ("stale", 2, (2, 1)),
    ],
)
def test_checkpoint_contains_only_complete_rounds(mode, per_node, loaded_by, tmp_path):
    saved = run("save", tmp_path, mode, "background", np=3, per_node=per_node).check().reports
    check_loads(tmp_path, mode, saved, [loaded_by])
    with checkpoints.Checkpoint(tmp_path) as opened:
        assert [table.clocks for table in opened.tables] == [(3, 3, 3)] * 5
        steps = [table.steps for table in opened.tables]
        assert steps == [0, 3 if mode == "sync" else 9, 0, 0, 0]
        assert [table.row_slots for table in opened.tables] == [0, 0, 0, 0, 1]
        assert opened.read_steps("rows")[300] == (3 if mode == "sync" else 9)
        assert opened.read_steps("lazy")[25_010] == (3 if mode == "sync" else 9)


def test_kill_during_save_leaves_the_old_or_the_new_checkpoint_complete(tmp_path):
    seed = int(os.environ.get("MULTIVERSO_TEST_SEED", "0")) or random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    last_step = 0
    for attempt in range(KILLS):
        np = 2 + attempt % 2
        with launch.Job("checkpoints.py", "saves_until_killed", str(tmp_path), np=np) as job:
            job.wait_for("busy")
            time.sleep(rng.random() * 0.3)
            job.signal(rng.randrange(np), signal.SIGKILL)
            result = job.finish().check_clean()
        for rank in range(np):
            details = f"MULTIVERSO_TEST_SEED={seed}\n{result.output}"
            assert result.reports[rank]["complete"], details
            assert result.reports[rank]["step"] == last_step, details
        for path in checkpoints.saved_in(tmp_path):
            with checkpoints.Checkpoint(path) as opened:
                opened.verify()
                assert (opened.read("up") == opened.step).all()
                assert (opened.read("down") == -opened.step).all()
                last_step = opened.step


def test_save_failure_of_one_rank_fails_on_every_rank(tmp_path):
    result = run("one_rank_cannot_write", tmp_path, np=3).check()
    result.check_errors("CheckpointIOError", "rank 2", str(tmp_path), ranks=range(3))
    assert all(result.reports[rank]["complete"] for rank in range(3))
    assert [path.name for path in tmp_path.iterdir()] == ["000001-step-2"]
    checkpoints.verify(tmp_path)


def test_saving_to_different_folders_raises_mismatch(tmp_path):
    result = run("saves_to_different_folders", tmp_path, np=2).check()
    result.check_errors("MismatchError", f"{tmp_path}/0", f"{tmp_path}/1", ranks=(0, 1))
