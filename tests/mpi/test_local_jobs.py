"""Jobs on one machine without MPI: the same sessions, tables, modes and errors."""

import pytest
from requirements import needs

import launch

# The jobs are the same in the environments of both MPIs, except for torchrun's.
pytestmark = pytest.mark.one_mpi


def run(*function, np, **options):
    return launch.run("local_jobs.py", *function, np=np, mpirun=launch.WITHOUT_MPI, **options)


@pytest.mark.parametrize("np", [1, 2, 4])
def test_sessions_follow_each_other_and_load_no_mpi(np):
    for rank, report in run("several_sessions", np=np).check().reports.items():
        assert report == {"has_mpi": False, "ranks": [rank] * 3}


@pytest.mark.parametrize("how", ["waits", "dies"])
def test_rank_that_does_not_call_init_is_named(how):
    result = run("one_never_calls_init", how, np=3).check_clean()
    result.check_errors("OperationTimeout", "rank 2", ranks=range(2))


def test_several_nodes_need_mpi():
    result = run("spans_nodes", np=2, MULTIVERSO_RANKS_PER_NODE="1").check_clean()
    result.check_errors("UnsupportedError", "mpirun", ranks=range(2))


@needs("cloudpickle", "nbclient", "ipykernel")
@pytest.mark.slow
def test_notebook_spawns_ranks_and_shows_their_lines_while_they_run(tmp_path, monkeypatch):
    import nbclient
    import nbformat

    class Client(nbclient.NotebookClient):
        """Announces to the ranks that a line has arrived."""

        def output(self, outs, msg, display_id, cell_index):
            if "rank 0 runs" in msg["content"].get("text", ""):
                (tmp_path / "read").touch()
            return super().output(outs, msg, display_id, cell_index)

    sources = [
        "import os, time\n"
        "import multiverso as mv\n"
        "def total(start, path):\n"
        "    with mv.session(timeout=60):\n"
        "        table = mv.ArrayTableHandler(1)\n"
        "        table.add([start + mv.rank()])\n"
        "        mv.barrier()\n"
        "        print('rank', mv.rank(), 'runs')\n"
        "        while not os.path.exists(path):\n"
        "            time.sleep(0.01)\n"
        "        return float(table.get()[0])",
        f"mv.spawn(total, nprocs=3, args=(1, {str(tmp_path / 'read')!r}), timeout=60)",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    # A kernel does not show what its children print if pytest has started it.
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    Client(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[1].outputs
    assert outputs[-1]["data"]["text/plain"] == "[6.0, 6.0, 6.0]"
    printed = "".join(output.get("text", "") for output in outputs)
    assert sorted(printed.splitlines()) == [f"rank {rank} runs" for rank in range(3)]


@needs("torch")
@pytest.mark.frameworks
def test_ranks_of_torchrun_meet_without_mpi(tmp_path):
    mpirun = launch.torchrun_command(tmp_path)
    result = launch.run("local_jobs.py", "several_sessions", np=2, mpirun=mpirun).check()
    assert all(not report["has_mpi"] for report in result.reports.values())
