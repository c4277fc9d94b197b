"""The last rank makes a call of the other ranks fail: ``blame.py HOW CALL FOLDER``.

HOW is ``lost`` (the rank is killed), ``late`` (it never makes the call) or ``aborts`` (it raises an
exception in the call). The other ranks announce "begins" before the call, and "gave-up" after they
have reported the error and its attributes. A rank that aborts announces "aborted" before that.
"""

import os
import signal
import socket
import sys
import threading

import numpy as np
import worker

import multiverso as mv

LAST = worker.SIZE - 1
OTHERS = range(LAST)


def main(how, call, folder):
    """Complete two rounds and a checkpoint; then the last rank fails in the call of the others."""
    worker.await_start()
    mv.init(sync=True, timeout=worker.SHORT_TIMEOUT if how == "late" else 60.0)
    table = mv.ArrayTableHandler(5, name="weights")
    calls = {"add_get": lambda: table.add_get(np.ones(5)), "barrier": mv.barrier}
    for _ in range(2):
        table.add_get(np.ones(5))
    mv.save(folder, step=7)
    mv.barrier()
    worker.report(host=socket.gethostname())
    if worker.RANK == LAST:
        _fail(how, calls[call])
    else:
        if how == "aborts":
            worker.wait_for("aborted", LAST)
        worker.announce("begins")
        worker.report_call(_repeat, calls[call])
        worker.announce("gave-up")
    # MPI can no longer be shut down cleanly.
    sys.stdout.flush()
    os._exit(0)


def _repeat(call):
    """Repeat the call until it raises: the first may only need what the failed rank did before."""
    while True:
        call()


def _fail(how, call):
    """Fail as HOW says, and wait until the other ranks have reported their errors."""
    if how == "aborts":
        signal.signal(signal.SIGALRM, _raise_error)
        threading.Thread(target=_interrupt_when_waiting, daemon=True).start()
        worker.report_call(call)
        worker.announce("aborted")
    for rank in OTHERS:
        worker.wait_for("begins", rank)
    if how == "lost":
        os.kill(os.getpid(), signal.SIGKILL)
    for rank in OTHERS:
        worker.wait_for("gave-up", rank)


def _interrupt_when_waiting():
    worker.wait_for_library_call()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)


def _raise_error(signum, frame):
    raise ValueError("bad batch 17")


if __name__ == "__main__":
    worker.shield()
    worker.begin()
    main(*sys.argv[1:])
