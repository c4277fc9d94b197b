"""Ranks in a control group with little memory get MemoryError, and the kernel kills none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import launch
from multiverso._mpi.mpirun import find_mpirun

pytestmark = [pytest.mark.slow, pytest.mark.one_mpi]

LIMIT = 1500 << 20
GROUPS = Path("/sys/fs/cgroup/memory")  # of version 1, in which any group may have processes

#: Makes the group the root of what the program sees of its groups, as in a container.
AS_ROOT = (
    'mount --bind "$0" /sys/fs/cgroup/memory && '
    'echo $$ > /sys/fs/cgroup/memory/cgroup.procs && exec "$@"'
)
#: Enters a group below the one with the limit, as in a job of Slurm or a service of systemd.
BELOW = 'echo $$ > "$0/inner/cgroup.procs" && exec "$@"'


@pytest.fixture
def group():
    """Return a control group with a limit, which is removed afterwards."""
    own = next(
        (
            line.split(":", 2)[2]
            for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()
            if line.split(":")[1] == "memory"
        ),
        None,
    )
    path = GROUPS / (own or "").lstrip("/") / f"multiverso-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own: {error}")
    (path / "memory.limit_in_bytes").write_text(str(LIMIT))
    (path / "inner").mkdir()
    yield path
    (path / "inner").rmdir()
    path.rmdir()


def run_in(group, np, enter, *arguments):
    """Run the program, of which the kernel must kill no process; return what it has printed."""
    program = [sys.executable, str(launch.PROGRAMS / "memory_limit.py"), str(LIMIT), *arguments]
    if np > 1:
        program = [str(find_mpirun()), "-np", str(np), *program]
    command = ["unshare", "-m", "sh", "-c", enter, str(group), *program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"needs a mount namespace of its own: {result.stderr}")
    assert result.returncode == 0, result.stderr
    assert "oom_kill 0" in (group / "memory.oom_control").read_text()
    assert int((group / "memory.max_usage_in_bytes").read_text()) > LIMIT // 2
    return result.stdout


@pytest.mark.parametrize(("np", "enter"), [(1, AS_ROOT), (3, AS_ROOT), (1, BELOW), (2, BELOW)])
def test_ranks_without_memory_get_an_error_and_are_not_killed(np, enter, group):
    printed = run_in(group, np, enter)
    assert printed.count("are free on this machine") == np, printed
    assert printed.count("has 1.5 GiB of memory") == np, printed


def test_publication_without_memory_for_another_version_fails_until_a_pin_ends(group):
    printed = run_in(group, 1, AS_ROOT, "pins")
    assert printed.count("are free on this machine") == 2, printed
