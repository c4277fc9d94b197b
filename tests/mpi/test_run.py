"""``python -m multiverso SCRIPT`` and ``multiverso run``: how jobs end and restart."""

import functools
import os
import signal
import sys

import pytest

import launch
import multiverso as mv
from multiverso._extras import install_command
from multiverso._local.processes import descendants

SCRIPT = str(launch.PROGRAMS / "runs.py")

pytestmark = pytest.mark.slow


@pytest.fixture(
    params=[
        pytest.param(["--mpi"], id="mpi"),
        pytest.param([], id="no_mpi", marks=pytest.mark.one_mpi),
    ]
)
def run_command(request, tmp_path):
    """Return a function that makes an "mpirun", which executes ``multiverso run``."""
    return functools.partial(launch.run_command, tmp_path, *request.param)


def check_failed(result, how):
    result.check_clean()
    codes = {"exit": 3, "early": 3, "missing": 2, "raise": 1}
    assert result.returncode == codes[how], result.output
    if how == "missing":
        assert install_command("torch") in result.output
        assert "Traceback" not in result.output
    if how == "raise":
        assert "ValueError: bad batch 17" in result.output
        assert 'runs.py", line' in result.output
        assert "runpy" not in result.output


@pytest.mark.parametrize("how", ["raise", "exit", "early", "missing"])
def test_failing_script_ends_the_job(how):
    check_failed(launch.run("module.py", SCRIPT, "fails", how, np=3), how)


@pytest.mark.parametrize("how", ["raise", "exit", "early", "missing"])
def test_run_returns_the_exit_code_of_the_failed_rank(how, run_command):
    check_failed(launch.run("runs.py", "fails", how, np=3, mpirun=run_command()), how)


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_rank_that_failed_first_decides_though_others_end_before_it(how, run_command):
    options, tag = ([], "") if "--mpi" in run_command.args else (["--tag"], "[rank 1] ")
    result = launch.run("runs.py", "is_lost", how, np=4, mpirun=run_command(*options)).check_clean()
    assert result.returncode == {"exit": 3, "raise": 1}[how], result.output
    assert result.output.count("Traceback") == (how == "raise")
    assert (f"{tag}ValueError: bad batch 17" in result.output) == (how == "raise")
    assert "multiverso run: rank 1 (process " in result.output
    assert "3 more: PeerLostError of rank 1" in result.output


@pytest.mark.one_mpi
def test_job_is_not_trained_again_after_failures_that_follow_its_session(tmp_path):
    mpirun = launch.run_command(tmp_path, "--elastic", "1:4", "--respawn")
    program = ("runs.py", "fails_after_shutdown", str(tmp_path / "trained"))
    result = launch.run(*program, np=3, mpirun=mpirun).check_clean()
    assert result.returncode == 3, result.output
    assert (tmp_path / "trained").read_text("utf-8").count("trained") == 3


@pytest.mark.one_mpi
@pytest.mark.skipif(sys.platform != "linux", reason="readers need Linux")
def test_reader_names_the_rank_that_was_killed(tmp_path):
    mpirun, name = launch.run_command(tmp_path), f"read-{os.getpid()}"
    with launch.Job("runs.py", "is_read", name, np=4, mpirun=mpirun) as job:
        job.wait_for("busy")
        view = mv.attach(name, timeout=60)
        table, pid = view.tables["w"], job.pid(2)
        job.signal(2, signal.SIGKILL)
        assert job.finish().check_clean().returncode == 128 + signal.SIGKILL
    with view, pytest.raises(mv.errors.StateError, match=rf"rank 2 \(process {pid}\) died"):
        table.get()


@pytest.mark.one_mpi
def test_programs_that_a_rank_starts_do_not_end_its_session(tmp_path):
    mpirun = launch.run_command(tmp_path, "--elastic", "1:4", "--respawn")
    result = launch.run("runs.py", "starts_programs", np=2, mpirun=mpirun).check()
    assert "replaces it" in result.output


def test_run_restarts_from_the_last_checkpoint(run_command, tmp_path):
    mpirun = run_command("--restarts", "3")
    result = launch.run("runs.py", "resumes", str(tmp_path / "saved"), np=2, mpirun=mpirun)
    result.check()
    assert "restart 2 of 3" in result.output
    assert "restart 3 of 3" not in result.output
    for rank in range(2):
        assert result.reports[rank] == {"first_step": 2, "complete": True}


def test_run_fails_after_the_last_restart(run_command):
    mpirun = run_command("--restarts", "1")
    result = launch.run("runs.py", "fails", "raise", np=2, mpirun=mpirun)
    check_failed(result, "raise")
    assert result.output.count("restart 1 of 1") == 1
    assert "restart 2" not in result.output


@pytest.mark.parametrize("case", ["sleeps SIGINT", "sleeps SIGTERM", "ignores_sigterm SIGTERM"])
def test_interrupted_run_leaves_no_processes(case, run_command):
    program, signum = case.split()[0], signal.Signals[case.split()[1]]
    options = ["--grace", "0.5"] if program == "ignores_sigterm" else ["--restarts", "2"]
    with launch.Job("runs.py", program, np=2, mpirun=run_command(*options)) as job:
        job.wait_for("busy")
        job.signal(launch.RUNNER, signum)
        result = job.finish().check_clean()
    assert result.returncode == 128 + signum, result.output
    assert not {"restart", "SIGTERM"} & set(result.output.split()), result.output


@pytest.mark.parametrize("killed", ["launcher", "guard"])
def test_killed_run_leaves_no_processes(killed, run_command):
    with launch.Job("runs.py", "ignores_sigterm", np=2, mpirun=run_command()) as job:
        job.wait_for("busy")
        launcher, guard, *_ = descendants(job.pid(launch.RUNNER))
        os.kill(launcher if killed == "launcher" else guard, signal.SIGKILL)
        job.finish().check_clean()


@launch.needs_mpi
def test_ranks_have_no_mpi_unless_it_is_asked_for(tmp_path):
    result = launch.run("runs.py", "is_without_mpi", np=2, mpirun=launch.run_command(tmp_path))
    for report in result.check().reports.values():
        assert (report["variables"], report["size"]) == ([], 2)
        kind, message = report["comm"]
        assert kind == "LauncherError"
        assert "multiverso run --mpi" in message


@launch.needs_mpi
@pytest.mark.parametrize("command", ["run", "run --survive", "mpirun"])
def test_killed_rank_leaves_no_memory_of_mpi(command, tmp_path):
    options = command.replace("run", "--mpi", 1).split()
    by_run = {"mpirun": launch.run_command(tmp_path, *options)}
    options = {"survives": True} if command == "mpirun" else by_run
    with launch.Job("runs.py", "has_files", np=2, **options) as job:
        job.wait_for("busy")
        job.signal(1, signal.SIGKILL)
        job.announce("killed")
        result = job.finish().check_clean()
    files = {path for report in result.reports.values() for path in report["files"]}
    assert [path for path in files if os.path.exists(path)] == []
