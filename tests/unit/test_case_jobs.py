"""`make test-all` runs each kind of job of the cases of a program."""

from types import SimpleNamespace

from case_jobs import CaseJobs, on_nodes, on_ranks


def jobs_of_test_all(jobs):
    cases = CaseJobs(SimpleNamespace(CASES={}), jobs)
    return {job for job in jobs if "release" not in {mark.name for mark in cases._marks(job)}}


def test_one_rank_files_and_three_nodes_are_kinds_of_their_own():
    jobs = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (3, 1), (3, 2), (4, 1), (4, 2))
    kinds = {"1_ranks", "2_ranks", "3_ranks_1_per_node", "4_ranks_2_per_node"}
    assert jobs_of_test_all(jobs | {"3_ranks_with_files": {"np": 3}}) == {
        *kinds,
        "3_ranks_with_files",
    }


def test_jobs_without_a_similar_one_run():
    for jobs in (on_ranks(4), on_nodes((3, 2)), on_ranks(1, 2) | on_nodes((3, 2))):
        assert jobs_of_test_all(jobs) == {*jobs}
