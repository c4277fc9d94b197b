"""Sync mode, bounded staleness and aggregate: the cases of programs/consistency.py."""

import functools

import consistency
import pytest

import launch

#: What a job with some ranks runs in; the second has its segments in files.
ENVIRONMENTS = {"memory": {}, "files": {"MULTIVERSO_SEGMENTS": "file"}}
JOBS = [*((np, "memory") for np in (1, 2, 3, 4)), (3, "files")]


@functools.cache
def job(np, segments):
    return launch.run("consistency.py", np=np, **ENVIRONMENTS[segments])


@pytest.mark.parametrize("name", consistency.CASES)
@pytest.mark.parametrize(("np", "segments"), JOBS)
def test_case(np, segments, name):
    result = job(np, segments)
    outcomes = {rank: report.get("outcomes", {}) for rank, report in result.reports.items()}
    failed = [
        f"rank {rank} of {np}: {outcomes.get(rank, {}).get(name, 'did not come to it')}"
        for rank in range(np)
        if outcomes.get(rank, {}).get(name) != "ok"
    ]
    seeds = {report["seed"] for report in result.reports.values() if "seed" in report}
    assert not failed, "\n".join([*failed, f"seed {seeds}" if seeds else "", result.output])


@pytest.mark.parametrize(("np", "segments"), JOBS)
def test_job_ends_well_and_leaves_nothing(np, segments):
    job(np, segments).check()
