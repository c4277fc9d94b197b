"""Jobs on one machine whose ranks act as several nodes, of one rank or two."""

import failpoints
import pytest
import semantics

import launch
from case_jobs import CaseJobs, on_nodes

#: Ranks and ranks per node. If two of three ranks share a node, the third is alone on its node.
LAYOUTS = [(3, 1), (3, 2), (4, 2)]


def run(program, *arguments, np, per_node, **options):
    nodes = {"MULTIVERSO_RANKS_PER_NODE": str(per_node)}
    return launch.run(program, *arguments, np=np, **nodes, **options)


CASE_JOBS = CaseJobs(semantics, on_nodes(*LAYOUTS))

TestTables = CASE_JOBS.tests()


@pytest.mark.parametrize(
    ("np", "per_node", "job"),
    [(*layout, job) for layout, job in zip(LAYOUTS, CASE_JOBS.jobs, strict=True)],
)
def test_ranks_report_their_nodes(np, per_node, job):
    for rank, report in CASE_JOBS.result(job).check().reports.items():
        assert report["node"] == rank // per_node
        assert report["num_nodes"] == -(-np // per_node)
        assert report["local"] == min(per_node, np - rank // per_node * per_node)


def test_rejects_invalid_ranks_per_node():
    result = launch.run("nodes.py", "idles", np=2, MULTIVERSO_RANKS_PER_NODE="two")
    assert "ValueError" in result.output
    assert "received 'two'" in result.output


@pytest.mark.slow
def test_released_tables_are_freed_on_all_nodes():
    # This job also shows that Open MPI works with the components that it chooses by default.
    result = run("nodes.py", "tables_are_freed", "8", np=2, per_node=1, OMPI_MCA_btl="")
    reports = result.check().reports
    for rank in (0, 1):
        # Eight tables that are not freed would keep eight halves of 64 MB.
        assert reports[rank]["shared"] < 200 * 2**20


@failpoints.needs_failpoints
def test_late_messages_of_a_session_do_not_reach_the_next_one():
    variables = {"MULTIVERSO_LIBRARY": str(failpoints.LIBRARY)}
    run("nodes.py", "closes_late", np=4, per_node=2, **variables).check()


def test_finalizing_mpi_early_raises_state_error():
    result = run("nodes.py", "finalizes_early", np=2, per_node=1).check_clean()
    result.check_errors("StateError", "MPI was finalized", ranks=(0, 1))


def test_mpi_without_thread_support_is_rejected():
    result = run("nodes.py", "initializes_mpi_without_threads", np=2, per_node=1).check_clean()
    result.check_errors("UnsupportedError", "MPI_THREAD_MULTIPLE", ranks=(0, 1))


@pytest.mark.slow
def test_idle_job_uses_little_processor_time():
    reports = run("nodes.py", "idles", np=4, per_node=2).check().reports
    assert sum(reports[rank]["share"] for rank in range(4)) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("np", [5, 8])
def test_sums_do_not_depend_on_the_placement_of_ranks(np):
    for rank, report in launch.run("placements.py", np=np).check().reports.items():
        for name, nodes, node, num_nodes in report["tried"]:
            per_node = -(-np // nodes)
            assert num_nodes == (-(-np // per_node) if name == "blocks" else nodes)
            assert node == (rank // per_node if name == "blocks" else rank % nodes)
