"""Readers of a running job: they see published states, and the job does not notice them."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from requirements import needs_found_sessions

import launch
import multiverso as mv

pytestmark = needs_found_sessions

#: A reader that reads until it is killed.
READER = """
import sys, multiverso as mv
view = mv.attach(sys.argv[1], timeout=60)
view.wait(1)
print("attached", flush=True)
while True:
    view.tables["array"].get() if view.tables["array"].is_live else view.cut()
"""


def name_of(test):
    return f"{test}-{os.getpid()}"


def check(cut, ranks):
    """Check that all tables of a cut are of its step, at which each rank had made as many adds."""
    assert cut.step == 5 * cut.version
    assert (cut["array"] == ranks * cut.step).all()
    assert (cut["matrix"] == ranks * cut.step).all()
    if "keyed" in cut:
        assert (cut["keyed"][1] == ranks).all()


def check_kept(view, expected, end):
    """Check that a view keeps the last cut when its job has ended, and has nothing else."""
    with pytest.raises(mv.errors.StateError, match=end):
        view.wait(timeout=60)
    cut = view.cut(list(expected))
    assert (cut.version, cut.step) == (expected.version, expected.step)
    for name, values in expected.items():
        np.testing.assert_equal(cut[name], values)
    assert view.wait(cut.version) == view.wait(1) == view.version == cut.version
    assert view.step == cut.step
    for table in view.tables.values():
        if table.is_live:
            with pytest.raises(mv.errors.StateError, match=end):
                table.get([1] if table.is_hash else None)
        elif table.name in cut and not table.is_hash:
            np.testing.assert_equal(table.get(), cut[table.name])
    with pytest.raises(mv.errors.StateError, match=end):
        view.wait(cut.version + 1, timeout=60)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(
    ("np_", "per_node"),
    [
        pytest.param(1, 1, marks=pytest.mark.one_mpi),
        pytest.param(2, 2, marks=pytest.mark.one_mpi),
        (3, 1),
        (4, 2),
    ],
)
def test_every_cut_is_a_published_state(mode, np_, per_node):
    name = name_of(f"cut-{mode}-{np_}-{per_node}")
    nodes = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    has_keys = mode != "sync" or np_ == per_node
    names = ["array", "matrix", "keyed"] if has_keys else ["array", "matrix"]
    with (
        launch.Job("publishing.py", "publishes", name, mode, "60", np=np_, **nodes) as job,
        mv.attach(name, timeout=60) as view,
    ):
        version = 0
        while version < 12:
            version = view.wait(version + 1, timeout=60)
            check(view.cut(names, timeout=60), np_)
        job.wait_for("published", 0)
        cut = view.cut(names)
        assert cut.version == view.version == 12
        check(cut, np_)
        live = view.tables["array"]
        assert live.is_live == (mode == "async" and np_ == per_node)
        assert (live.get() == 60 * np_).all()
        assert (view.tables["matrix"].get([7, 2999, 7]) == 60 * np_).all()
        # A node shows its own rows of such tables, and the view may be of any node.
        if np_ == per_node:
            lazy = view.tables["lazy"].get([60, 1000, 0])
            assert (lazy == [[3], [3], [3 + np_]]).all()
            assert sorted(cut["keyed"][0]) == list(range(1, 61))
            assert (view.tables["keyed"].get([1, 60, 99]) == [[np_], [np_], [0]]).all()
        job.announce("seen")
        job.finish().check_clean()
        check_kept(view, cut, f"'{name}' has ended: it was shut down")
    with pytest.raises(mv.errors.StateError, match="not open"):
        view.cut()


@pytest.mark.one_mpi
def test_readers_that_die_or_hang_do_not_disturb_the_job():
    name = name_of("readers")
    with launch.Job("publishing.py", "publishes", name, "async", "400", np=2) as job:
        readers = [
            subprocess.Popen([sys.executable, "-c", READER, name], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        try:
            for reader in readers:
                assert reader.stdout.readline() == b"attached\n"
            os.kill(readers[0].pid, signal.SIGSTOP)
            readers[1].kill()
            job.wait_for("published", 0)
            job.announce("seen")
            job.finish().check_clean()
        finally:
            for reader in readers:
                reader.kill()
                reader.wait()
                reader.stdout.close()


def test_reader_is_told_that_the_job_was_killed():
    name = name_of("killed")
    with launch.Job("publishing.py", "waits_to_be_killed", name, np=2) as job:
        job.wait_for("published", 0)
        with mv.attach(job.pid(1)) as view:
            assert view.name == name
            cut = view.cut()
            assert (cut["array"] == 2).all()
            with pytest.raises(mv.errors.StateError, match=f"'mistyped'; there are: .*'{name}'"):
                mv.attach("mistyped")
            for rank in (0, 1):
                job.signal(rank, signal.SIGKILL)
            check_kept(view, cut, "has ended: rank 0 .*died")
    with pytest.raises(mv.errors.StateError, match=f"session named '{name}'"):
        mv.attach(name)


@pytest.mark.parametrize("per_node", [1, pytest.param(2, marks=pytest.mark.one_mpi)])
def test_cuts_stay_complete_when_a_publishing_rank_is_killed(per_node):
    name = name_of(f"publisher-{per_node}")
    nodes = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    with launch.Job("publishing.py", "publishes", name, "async", "4000", np=2, **nodes) as job:
        with mv.attach(name, timeout=60) as view:
            for _ in range(5):
                check(view.cut(["array", "matrix", "keyed"], timeout=60), 2)
            job.signal(1, signal.SIGKILL)
            ends = []
            while not ends:
                try:
                    view.wait(view.version + 1, timeout=60)
                except mv.errors.StateError as error:
                    ends.append(str(error))
                check(view.cut(["array", "matrix", "keyed"], timeout=60), 2)
        assert "has ended" in ends[0]
        job.finish()


@pytest.mark.one_mpi
def test_a_view_that_waits_keeps_tables_created_meanwhile():
    with mv.session(name=name_of("late")):
        tables = [mv.ArrayTable(10, 1, name="first")]
        waiting, idle = (mv.attach(os.getpid()) for _ in range(2))
        assert list(waiting.tables) == ["first"]
        tables.append(mv.ArrayTable(10, 2, name="second"))
        mv.publish(1)
        assert waiting.wait(1) == 1
        cut = waiting.cut()
        assert {table: values[0] for table, values in cut.items()} == {"first": 1, "second": 2}
        assert idle.wait(1) == 1
        tables.append(mv.ArrayTable(10, 3, name="third"))
        mv.publish(2)
    # Nothing can find the third table any more, and a part of a version is not a cut.
    for view in (waiting, idle):
        for names in (None, ["first"]):
            with pytest.raises(mv.errors.StateError, match="last call of this view.*shut down"):
                view.cut(names)
        assert view.wait(2) == 2
        view.close()


@pytest.mark.one_mpi
def test_attach_logs_what_it_waits_for(monkeypatch, caplog):
    monkeypatch.setattr("multiverso.readers._memory._LOG_SECONDS", 0)
    with pytest.raises(mv.errors.StateError):
        mv.attach("missing", timeout=2)
    assert [record.getMessage() for record in caplog.records] == [
        "attach: waits for multiverso.init(name='missing') in another process of this user"
    ]
