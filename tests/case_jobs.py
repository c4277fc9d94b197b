"""Tests of one kind: the cases of a program, in jobs of several sizes, each of which runs once.

A module of tests names the program and the jobs, and gets a class of tests::

    TestOptimizers = CaseJobs(optimizers, on_ranks(1, 2) | on_nodes((4, 2))).tests()
"""

import functools
from types import ModuleType

import pytest

import launch

#: What `launch.run` takes: ``np``, environment variables, and ``arguments`` of the program.
Options = dict[str, object]


def on_ranks(*counts: int, **options: object) -> dict[str, Options]:
    """Return jobs with so many ranks, all on one node, by what they are called."""
    return {f"{np}_ranks": {"np": np, **options} for np in counts}


def on_nodes(*sizes: tuple[int, int], **options: object) -> dict[str, Options]:
    """Return jobs for pairs of ranks and ranks per node, by what they are called."""
    return {
        f"{np}_ranks_{per_node}_per_node": {"np": np, **launch.on_nodes(np, per_node), **options}
        for np, per_node in sizes
    }


class CaseJobs:
    """Jobs that run all cases of a program, each job when its result is first asked for.

    Parameters
    ----------
    program : module
        One of `launch.PROGRAMS` whose ``CASES`` are run by `cases.run_all`.
    jobs : dict of str to dict
        What each job is started with, by the name that its tests shall bear.

    """

    def __init__(self, program: ModuleType, jobs: dict[str, Options]) -> None:
        self.program = program
        self.jobs = jobs
        self.result = functools.cache(self._run)

    def _run(self, job: str) -> launch.Result:
        options = dict(self.jobs[job])
        arguments = options.pop("arguments", ())
        return launch.run(self.program.__file__, *arguments, **options)

    def tests(self) -> type:
        """Return a class with a test for each case in each job, and for the end of each job."""
        runs = self

        class Tests:
            @pytest.mark.parametrize("name", runs.program.CASES)
            @pytest.mark.parametrize("job", runs.jobs)
            def test_case(self, job: str, name: str) -> None:
                runs.result(job).check_case(name, runs.jobs[job]["np"])

            @pytest.mark.parametrize("job", runs.jobs)
            def test_job_ends_well_and_leaves_nothing(self, job: str) -> None:
                runs.result(job).check()

        return Tests
