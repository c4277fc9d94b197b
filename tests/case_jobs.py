"""Turns the cases of a program into tests: each job runs all selected cases once.

A test module names the program and the jobs::

    TestOptimizers = CaseJobs(optimizers, on_ranks(1, 2) | on_nodes((4, 2))).tests()

``pytest tests/mpi/test_optimizers.py -k "2_ranks and CASE"`` starts one job, which runs one case.
"""

import functools
from types import ModuleType

import pytest

import launch

#: The arguments of `launch.run`: ``np``, environment variables, and ``arguments`` of the program.
Options = dict[str, object]

#: The jobs of `make test`; the other jobs are slow.
CORE_JOBS = {"1_ranks", "2_ranks", "4_ranks", "4_ranks_2_per_node"}


def on_ranks(*counts: int, **options: object) -> dict[str, Options]:
    """Return jobs with these numbers of ranks on one node, by name."""
    return {f"{np}_ranks": {"np": np, **options} for np in counts}


def on_nodes(*sizes: tuple[int, int], **options: object) -> dict[str, Options]:
    """Return jobs for pairs of ranks and ranks per node, by name."""
    return {
        f"{np}_ranks_{per_node}_per_node": {"np": np, **launch.on_nodes(np, per_node), **options}
        for np, per_node in sizes
    }


def in_one(jobs: dict[str, Options]) -> dict[str, Options]:
    """Return the same jobs as layouts of one job, which has the ranks of the largest layout.

    This is for frameworks, which start slowly. While the first ranks run a layout in their own
    session, the other ranks wait; see `programs/cases.py`. The jobs may differ in the numbers of
    ranks and of ranks per node only.

    The largest layout runs first. All ranks of a later session then have run the same cases before,
    so that automatic names, such as those of Keras variables, agree.
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
    """Jobs that run the cases of a program; each starts when its result is first requested.

    Parameters
    ----------
    program : module
        One of `launch.PROGRAMS` whose ``CASES`` are run by `cases.run_all`.
    jobs : dict of str to dict
        The options of each job, by name.

    """

    def __init__(self, program: ModuleType, jobs: dict[str, Options]) -> None:
        self.program = program
        self.jobs = jobs
        self._launched = functools.cache(self._launch)
        self._selected: set[str] = set()

    def result(self, job: str) -> launch.Result:
        """Return the result of a job; the first call runs the job."""
        options = self.jobs[job].items()
        return self._launched(tuple(option for option in options if option[0] != "place"))

    def _launch(self, options: tuple[tuple[str, object], ...]) -> launch.Result:
        given = dict(options)
        arguments = given.pop("arguments", ())
        if self._selected:
            given["MULTIVERSO_TEST_CASES"] = " ".join(self._selected)
        return launch.run(self.program.__file__, *arguments, **given)

    def check_case(self, job: str, name: str) -> None:
        """Raise AssertionError if a case failed on any of its ranks."""
        place = self.jobs[job].get("place")
        if place is None:
            self.result(job).check_case(name, self.jobs[job]["np"])
        else:
            self.result(job).check_case(f"{place}: {name}", int(place.partition("/")[0]))

    def tests(self) -> type:
        """Return a class with a test per case and job, and a test of the end of each job."""
        runs = self
        jobs = [
            pytest.param(job, marks=() if job in CORE_JOBS else pytest.mark.slow)
            for job in self.jobs
        ]

        class Tests:
            @pytest.fixture(autouse=True, scope="class")
            @classmethod
            def select(cls, request: pytest.FixtureRequest) -> None:
                """Let the jobs run the cases whose tests pytest has selected."""
                tests = [item for item in request.session.items if item.parent is request.node]
                if all(item.originalname == "test_case" for item in tests):
                    runs._selected = {item.callspec.params["name"] for item in tests}

            @pytest.mark.parametrize("name", runs.program.CASES)
            @pytest.mark.parametrize("job", jobs)
            def test_case(self, job: str, name: str) -> None:
                runs.check_case(job, name)

            @pytest.mark.parametrize("job", jobs)
            def test_job_ends_cleanly(self, job: str) -> None:
                runs.result(job).check()

        return Tests
