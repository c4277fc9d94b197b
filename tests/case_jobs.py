"""Turns the cases of a program into tests: each job runs all selected cases once.

A test module names the program and the jobs::

    TestWires = CaseJobs(wires, on_ranks(1, 2) | on_nodes((4, 2))).tests()

``pytest tests/mpi/test_wires.py -k "2_ranks and CASE"`` starts one job, which runs one case.
"""

import functools
from types import ModuleType

import pytest

import launch

#: Parameters of `launch.run`, with the program's as ``arguments``, and the ``layout`` of a job from
#: `in_one_job`.
Options = dict[str, object]

#: The jobs of `make test`, unless a test module names others.
CORE_JOBS = {"1_ranks", "2_ranks", "4_ranks", "4_ranks_2_per_node"}

#: The jobs that run with each MPI: on two nodes of two ranks, and on three of one. On one node,
#: ranks use MPI only to start and to end, which other files test with each MPI.
JOBS_OF_EACH_MPI = {"3_ranks_1_per_node", "4_ranks_2_per_node"}


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
    core : set of str, optional
        The names of the jobs of `make test`. The other jobs are slow.

    """

    def __init__(
        self, program: ModuleType, jobs: dict[str, Options], core: set[str] = CORE_JOBS
    ) -> None:
        self.program = program
        self.jobs = jobs
        self.core = core
        self._launched = functools.cache(self._launch)
        self._selected: set[str] = set()

    def result(self, job: str) -> launch.Result:
        """Return the result of a job; the first call runs the job."""
        options = self.jobs[job].items()
        return self._launched(tuple(option for option in options if option[0] != "layout"))

    def _launch(self, options: tuple[tuple[str, object], ...]) -> launch.Result:
        parameters = dict(options)
        arguments = parameters.pop("arguments", ())
        # A job runs all cases of a program, one after the other, beside the jobs of other tests.
        parameters.setdefault("timeout", 2 * launch.JOB_TIMEOUT)
        if self._selected:
            parameters["MULTIVERSO_TEST_CASES"] = " ".join(self._selected)
        return launch.run(self.program.__file__, *arguments, **parameters)

    def _marks(self, job: str) -> list[pytest.MarkDecorator]:
        marks = [] if job in self.core else [pytest.mark.slow]
        if self._is_repetition(job):
            marks.append(pytest.mark.release)
        return marks if job in JOBS_OF_EACH_MPI else [*marks, pytest.mark.one_mpi]

    def _is_repetition(self, job: str) -> bool:
        """Tell whether a job differs from another one only in its number of ranks or of nodes.

        Then `make test-all` runs only the other one: the job of two ranks on one node, and the job
        of most ranks on several nodes. One rank is a case of its own, and so are three nodes
        (`conftest.THREE_NODES`). The layouts of one job start together, so none is left out.
        """
        if "layout" in self.jobs[job]:
            return False
        on_nodes = [name for name in self.jobs if name.endswith("_per_node")]
        if job in on_nodes:
            return job not in (max(on_nodes), "3_ranks_1_per_node")
        return job in ("3_ranks", "4_ranks") and "2_ranks" in self.jobs

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
        jobs = [pytest.param(job, marks=self._marks(job)) for job in self.jobs]

        class Tests:
            @pytest.fixture(autouse=True, scope="class")
            @classmethod
            def select(cls, request: pytest.FixtureRequest) -> None:
                """Let the jobs run the selected cases, or all if `test_job_ends_cleanly` is too."""
                tests = [item for item in request.session.items if item.parent is request.node]
                if all(item.originalname == "test_case" for item in tests):
                    case_jobs._selected = {item.callspec.params["name"] for item in tests}

            @pytest.mark.parametrize("name", case_jobs.program.CASES)
            @pytest.mark.parametrize("job", jobs)
            def test_case(self, job: str, name: str) -> None:
                case_jobs.check_case(job, name)

            @pytest.mark.parametrize("job", jobs)
            def test_job_ends_cleanly(self, job: str) -> None:
                case_jobs.result(job).check()

        return Tests
