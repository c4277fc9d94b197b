"""Programs that a rank starts are no ranks, on both MPIs and without MPI."""

import pytest

import launch

LAUNCHERS = [
    pytest.param(None, id="mpi", marks=launch.needs_mpi),
    pytest.param(launch.WITHOUT_MPI, id="no_mpi", marks=pytest.mark.one_mpi),
]


@pytest.fixture(params=LAUNCHERS)
def run(request):
    return lambda function: launch.run("started.py", function, np=2, mpirun=request.param)


def test_program_that_a_rank_starts_is_a_session_of_its_own(run):
    for rank, report in run("starts_programs").check().reports.items():
        before, after = report["before"], report["after"]
        assert before["of_a_program"] == [1, 1, 1, 1]
        assert before["forked"] == after["multiprocessing"] == 1
        others = [before["first"], before["without_environment"]]
        others += [after[name] for name in ("first", "shell", "other_session", "all_descriptors")]
        assert others == 6 * [[1, 1]]
        assert (report["size"], report["total"]) == (2, 2)
        assert report["local_ranks"] == [rank, rank]


def test_processes_of_a_pool_may_open_a_session_while_they_import_the_script(run):
    for report in run("opens_at_its_top").check().reports.values():
        assert report == {"size": 2, "sizes": [1]}


def test_rank_that_executes_another_program_stays_the_rank(run):
    assert all(report["size"] == 2 for report in run("replaces_itself").check().reports.values())


def test_rank_may_be_a_child_of_a_program_without_the_package(run):
    assert all(r["sizes"] == [2] for r in run("starts_ranks_as_children").check().reports.values())


def test_two_processes_with_one_rank_are_an_error_that_names_both(run):
    # An MPI may fail the job, since a process ends without MPI_Finalize.
    report = run("is_one_of_two").check_clean().reports[0]
    assert report["error"].count("StateError") == 1  # in the command that explains it
    assert "are the same rank of a job" in report["error"]
    for pid in report["pids"]:
        assert str(pid) in report["error"]
