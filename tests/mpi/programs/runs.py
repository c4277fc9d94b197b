"""Scripts for ``multiverso run`` and ``python -m multiverso``: ``runs.py FUNCTION ...``."""

import atexit
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import worker

import multiverso as mv


def _sleep():
    """Sleep until the process is killed, for at most `worker.WAIT_TIMEOUT` seconds."""
    deadline = time.monotonic() + worker.WAIT_TIMEOUT
    while time.monotonic() < deadline:
        time.sleep(0.01)


def fails(how):
    """Fail on the last rank while the others sleep, or wait for it in `init`."""
    if how == "early" and worker.RANK == worker.SIZE - 1:
        sys.exit(3)
    mv.init()
    worker.announce("busy")
    if worker.RANK != worker.SIZE - 1:
        _sleep()
    for rank in range(worker.SIZE):
        worker.wait_for("busy", rank)
    if how == "exit":
        sys.exit(3)
    if how == "missing":
        sys.modules["torch"] = None  # With this, Python's import raises ModuleNotFoundError.
        import multiverso.torch_ext  # noqa: F401
    raise ValueError("bad batch 17")


def is_lost(how):
    """Fail on rank 1, whose process ends after those of the ranks that have lost it."""
    worker.begin()

    def outlive():
        for rank in set(range(worker.SIZE)) - {1}:
            worker.wait_for("ends", rank)
        time.sleep(0.5)

    with mv.session(timeout=60):
        mv.barrier()
        if worker.RANK != 1:
            atexit.register(worker.announce, "ends")
            mv.barrier()
        atexit.register(outlive)
        sys.exit(3) if how == "exit" else fails_in_a_function()


def fails_in_a_function():
    raise ValueError("bad batch 17")


def fails_after_shutdown(path):
    """Train once, and fail on all ranks after the session, as in an evaluation."""
    worker.begin()
    mv.init(elastic=True, timeout=20)
    with open(path, "a") as file:
        file.write("trained\n")
    mv.barrier()
    mv.shutdown()
    sys.exit(3)


def starts_programs():
    """Be killed in a session, after a child and another program have ended sessions of theirs."""
    worker.begin()
    is_joiner = "MULTIVERSO_JOIN" in os.environ
    mv.init(elastic=True, timeout=20)
    if is_joiner:
        worker.announce("joined")
    elif worker.RANK == 0:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        program = "import multiverso as mv; mv.init(); mv.shutdown()"
        subprocess.run([sys.executable, "-c", program], check=True, close_fds=False)
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        worker.wait_for("joined", 0)


def is_read(name):
    """Sleep in a session with readers."""
    worker.begin()
    mv.init(name=name)
    table = mv.ArrayTable(4, name="w")
    worker.announce("busy")
    _sleep()
    table.get()


def sleeps():
    """Open a session and sleep until the test ends the job."""
    worker.begin()
    mv.init()
    worker.announce("busy")
    _sleep()


def ignores_sigterm():
    """Sleep as above, despite SIGTERM, with a program in another session that does the same."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker.begin()
    mv.init()
    code = f"import time; time.sleep({worker.WAIT_TIMEOUT})"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    worker.announce("busy")
    _sleep()


def is_without_mpi():
    """Report the variables of launchers, and the error of a call that needs MPI."""
    worker.begin()
    names = ("PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "LOCAL_RANK")
    worker.report(variables=[name for name in names if name in os.environ])
    from mpi4py import MPI

    worker.report_call(lambda: mv.init(comm=MPI.COMM_WORLD), name="comm")
    with mv.session(timeout=60):
        worker.report(size=mv.size())


def has_files():
    """Report the files of MPI in /dev/shm that this rank has mapped, and sleep as above."""
    worker.begin()
    mv.init(on_peer_lost="continue")
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line}
    worker.report(files=sorted(path for path in paths if os.path.exists(path)))
    mv.barrier()
    time.sleep(1)  # until the launcher has seen the files
    worker.announce("busy")
    if worker.RANK == 0:
        worker.wait_for("killed")
        mv.barrier()  # without the rank that was killed
    else:
        _sleep()


def resumes(folder):
    """Resume from the last checkpoint; a rank is killed after each of the first two checkpoints."""
    with mv.session():
        table = mv.ArrayTableHandler(1000, name="w")
        first_step = mv.load(folder, missing_ok=True) or 0
        for step in range(first_step, 3):
            if mv.is_master_worker():
                table.add(np.ones(1000))
            mv.save(folder, step=step + 1)
            if first_step == step < 2 and worker.RANK == worker.SIZE - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            mv.barrier()
        worker.report(first_step=first_step, complete=bool((table.get() == 3).all()))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
