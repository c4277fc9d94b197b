"""Each case of a program runs on one and on two ranks, and in one job that it draws."""

from types import SimpleNamespace

import drawing
from case_jobs import CaseJobs, on_nodes, on_ranks

CASES = {f"case_{number}": None for number in range(40)}


def jobs_of_cases(monkeypatch, jobs, seed, has_open_mpi=False):
    monkeypatch.setenv(drawing.SEED, str(seed))
    monkeypatch.setattr(drawing, "HAS_OPEN_MPI", has_open_mpi)
    cases = CaseJobs(SimpleNamespace(CASES=CASES, __name__="program"), jobs)
    return [cases.drawn(case) for case in CASES]


def test_each_case_draws_one_of_two_jobs(monkeypatch):
    jobs = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (3, 1), (4, 2))
    runs = jobs_of_cases(monkeypatch, jobs, seed=1)
    assert runs == jobs_of_cases(monkeypatch, jobs, seed=1)
    assert all(len(run) == 3 and drawing.FIXED_JOBS < run for run in runs)
    assert len(set().union(*runs)) == 4


def test_seeds_draw_all_jobs(monkeypatch):
    jobs = on_ranks(1, 2, 3, 4) | on_nodes((2, 1), (3, 1), (4, 2))
    drawn = [set().union(*jobs_of_cases(monkeypatch, jobs, seed)) for seed in range(20)]
    assert set().union(*drawn) == {*jobs}


def test_second_mpi_draws_among_several_nodes(monkeypatch):
    jobs = on_ranks(1, 4) | on_nodes((4, 2))
    runs = jobs_of_cases(monkeypatch, jobs, seed=1, has_open_mpi=True)
    assert runs == [{"1_ranks", "4_ranks_2_per_node"}] * len(CASES)
