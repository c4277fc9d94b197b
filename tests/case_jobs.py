"""Turns the cases of a program into tests: each job runs all selected cases once.

A test module names the program and the jobs::

    TestWires = CaseJobs(wires, on_ranks(1, 2) | on_nodes((4, 2))).tests()

``pytest tests/mpi/test_wires.py -k "2_ranks and CASE"`` starts one job, which runs one case.
"""

import functools
from types import ModuleType

import pytest

import drawing
import launch

#: Parameters of `launch.run`, with the program's as ``arguments``, and the ``layout`` of a job from
#: `in_one_job`.
Options = dict[str, object]

#: The end of the names of the jobs that run with each MPI. On one node, ranks use MPI only to start
#: and to end, which other files test with each MPI.
ON_NODES = "_per_node"

#: The jobs that a program draws, of which each case draws one: more would mostly start ranks.
DRAWN_JOBS = 2


def on_ranks(*rank_counts: int, **options: object) -> dict[str, Options]:
    """Return jobs with these numbers of ranks on one node, by name."""
    return {f"{np}_ranks": {"np": np, **options} for np in rank_counts}


def on_nodes(*layouts: tuple[int, int], **options: object) -> dict[str, Options]:
    """Return jobs for pairs of ranks and ranks per node, by name."""
    return {
        f"{np}_ranks_{per_node}_per_node": {"np": np, **launch.on_nodes(np, per_node), **options}
        for np, per_node in layouts
    }


def in_one_job(jobs: dict[str, Options]) -> dict[str, Options]:
    """Return options that run all these jobs as layouts of one job with the ranks of the largest.

    This is for frameworks, which start slowly. While the first ranks run a layout in their own
    session, the other ranks wait; see `programs/cases.py`. The jobs may differ only in the number
    of ranks and of ranks per node.

    The largest layout runs first. All ranks of a later session then have run the same cases before,
    so that automatic names, such as those of Keras variables, agree.
    """
    largest_first = sorted(jobs.items(), key=lambda job: job[1]["np"], reverse=True)
    layouts = {
        name: f"{options['np']}/{options.get('MULTIVERSO_RANKS_PER_NODE', options['np'])}"
        for name, options in largest_first
    }
    shared_options = {
        **largest_first[0][1],
        "timeout": 3 * launch.JOB_TIMEOUT,
        "MULTIVERSO_TEST_LAYOUTS": " ".join(layouts.values()),
    }
    return {name: {**shared_options, "layout": layout} for name, layout in layouts.items()}


class CaseJobs:
    """Jobs that run the cases of a program; each starts when its result is first requested.

    Parameters
    ----------
    program : module
        One of `launch.PROGRAMS` whose ``CASES`` are run by `cases.run_all`.
    jobs : dict of str to dict
        The options of each job, by the name of the job.

    """

    def __init__(self, program: ModuleType, jobs: dict[str, Options]) -> None:
        self.program = program
        self.jobs = jobs
        self._launched = functools.cache(self._launch)
        self._selected: dict[str, set[str]] = {}

    def result(self, job: str) -> launch.Result:
        """Return the result of a job; the first call runs the job."""
        # The layouts of one job run the same cases.
        of_layouts = "layout" in self.jobs[job]
        cases = set().union(*self._selected.values()) if of_layouts else self._selected.get(job)
        if self._selected and not cases:  # A test is about the job itself.
            cases = {next(iter(self.program.CASES))}
        options = self.jobs[job].items()
        return self._launched(
            tuple(option for option in options if option[0] != "layout"), frozenset(cases or ())
        )

    def _launch(
        self, options: tuple[tuple[str, object], ...], cases: frozenset[str]
    ) -> launch.Result:
        parameters = dict(options)
        arguments = parameters.pop("arguments", ())
        # A job runs all cases of a program, one after the other, beside the jobs of other tests.
        parameters.setdefault("timeout", 2 * launch.JOB_TIMEOUT)
        if cases:
            parameters["MULTIVERSO_TEST_CASES"] = "\n".join(sorted(cases))
        return launch.run(self.program.__file__, *arguments, **parameters)

    def drawn(self, case: str) -> set[str]:
        """Return the jobs in which a case runs, except in `make test-release`, which runs all.

        The layouts of one job start together, so none is left out.
        """
        together = {job for job, options in self.jobs.items() if "layout" in options}
        others = [job for job in self.jobs if job not in together | drawing.FIXED_JOBS]
        if drawing.HAS_OPEN_MPI:
            others = [job for job in others if job.endswith(ON_NODES)]
        mine = drawing.draw(case, drawing.draw(self.program.__name__, others, DRAWN_JOBS), 1)
        return {*mine} | together | (drawing.FIXED_JOBS & self.jobs.keys())

    def _marks(self, job: str, *cases: str) -> list[pytest.MarkDecorator]:
        is_drawn = any(job in self.drawn(case) for case in cases)
        marks = [pytest.mark.drawn] if is_drawn else [pytest.mark.slow, pytest.mark.release]
        return marks if job.endswith(ON_NODES) else [*marks, pytest.mark.one_mpi]

    def check_case(self, job: str, name: str) -> None:
        """Raise AssertionError if a case failed on any rank of a job."""
        layout = self.jobs[job].get("layout")
        if layout is None:
            self.result(job).check_case(name, self.jobs[job]["np"])
        else:
            self.result(job).check_case(f"{layout}: {name}", int(layout.partition("/")[0]))

    def tests(self) -> type:
        """Return a class with a test per case and job, and a test of the end of each job."""
        case_jobs = self
        cases = list(case_jobs.program.CASES)
        jobs = [pytest.param(job, marks=self._marks(job, *cases)) for job in self.jobs]
        pairs = [
            pytest.param(job, case, marks=self._marks(job, case), id=f"{job}-{case}")
            for job in self.jobs
            for case in cases
        ]

        class Tests:
            @pytest.fixture(autouse=True, scope="class")
            @classmethod
            def select(cls, request: pytest.FixtureRequest) -> None:
                """Let each job run the selected cases, or all if no case is selected."""
                tests = [item for item in request.session.items if item.parent is request.node]
                for item in tests:
                    if item.originalname == "test_case":
                        params = item.callspec.params
                        case_jobs._selected.setdefault(params["job"], set()).add(params["name"])

            @pytest.mark.parametrize(("job", "name"), pairs)
            def test_case(self, job: str, name: str) -> None:
                case_jobs.check_case(job, name)

            @pytest.mark.parametrize("job", jobs)
            def test_job_ends_cleanly(self, job: str) -> None:
                case_jobs.result(job).check()

        return Tests
