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


def in_one(jobs: dict[str, Options]) -> dict[str, Options]:
    """Return the same jobs as places of one, with the ranks of the largest.

    For frameworks, which start slowly. The others wait while the first ranks are in a session of
    their own, see `programs/cases.py`. The jobs differ in ranks and ranks per node only.

    The largest comes first: ranks that meet have run the same before, and what a framework numbers
    (Keras its variables, for one) has the same number on all.
    """
    in_order = sorted(jobs.items(), key=lambda job: job[1]["np"], reverse=True)
    places = {
        name: f"{options['np']}/{options.get('MULTIVERSO_RANKS_PER_NODE', options['np'])}"
        for name, options in in_order
    }
    whole = {
        **in_order[0][1],
        "limit": 3 * launch.WALL_LIMIT,
        "MULTIVERSO_TEST_PLACES": " ".join(places.values()),
    }
    return {name: {**whole, "place": place} for name, place in places.items()}


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
        self._launched = functools.cache(self._launch)

    def result(self, job: str) -> launch.Result:
        """Return how a job ended; it is run when its result is first asked for."""
        options = self.jobs[job].items()
        return self._launched(tuple(option for option in options if option[0] != "place"))

    def _launch(self, options: tuple[tuple[str, object], ...]) -> launch.Result:
        given = dict(options)
        arguments = given.pop("arguments", ())
        return launch.run(self.program.__file__, *arguments, **given)

    def check_case(self, job: str, name: str) -> None:
        """Raise AssertionError if a case failed on any rank that it ran on."""
        place = self.jobs[job].get("place")
        if place is None:
            self.result(job).check_case(name, self.jobs[job]["np"])
        else:
            self.result(job).check_case(f"{place}: {name}", int(place.partition("/")[0]))

    def tests(self) -> type:
        """Return a class with a test for each case in each job, and for the end of each job."""
        runs = self

        class Tests:
            @pytest.mark.parametrize("name", runs.program.CASES)
            @pytest.mark.parametrize("job", runs.jobs)
            def test_case(self, job: str, name: str) -> None:
                runs.check_case(job, name)

            @pytest.mark.parametrize("job", runs.jobs)
            def test_job_ends_well_and_leaves_nothing(self, job: str) -> None:
                runs.result(job).check()

        return Tests
