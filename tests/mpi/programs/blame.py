"""One rank makes the others fail; ``blame.py HOW CALL FOLDER`` selects how, and in which call.

Every rank but the last reports its error and all attributes that describe the failed rank.
"""

import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import worker

import multiverso as mv

LAST = worker.SIZE - 1
OTHERS = range(LAST)


def main(how, call, folder):
    """Complete two rounds and a checkpoint; then the last rank fails instead of the third round."""
    mv.init(sync=True, timeout=2.0 if how == "late" else 60.0)
    table = mv.ArrayTableHandler(5, name="weights")
    calls = {"add_get": lambda: table.add_get(np.ones(5)), "barrier": mv.barrier}
    for _ in range(2):
        table.add_get(np.ones(5))
    mv.save(folder, step=7)
    mv.barrier()
    worker.report(host=socket.gethostname())
    if worker.RANK == LAST:
        _go_wrong(how, calls[call])
    else:
        if how == "aborts":
            worker.wait_for("wrong", LAST)
        worker.announce("begins")
        worker.report_call(_until_it_fails, calls[call])
        worker.announce("gave-up")
    # MPI can no longer be shut down cleanly.
    sys.stdout.flush()
    os._exit(0)


def _until_it_fails(call):
    """Make the call, repeatedly if the earlier calls of a rank on another node let it succeed."""
    while True:
        call()


def _go_wrong(how, call):
    if how == "aborts":
        signal.signal(signal.SIGALRM, _give_up)
        threading.Thread(target=_interrupt_when_waiting, daemon=True).start()
        worker.report_call(call)
        worker.announce("wrong")
    for rank in OTHERS:
        worker.wait_for("begins", rank)
    if how == "lost":
        os.kill(os.getpid(), signal.SIGKILL)
    for rank in OTHERS:
        worker.wait_for("gave-up", rank)


def _interrupt_when_waiting():
    main_thread = threading.main_thread().ident
    while sys._current_frames()[main_thread].f_code.co_name != "call":
        time.sleep(0.01)
    time.sleep(0.5)  # past the first slice of the wait
    signal.pthread_kill(main_thread, signal.SIGALRM)


def _give_up(signum, frame):
    raise ValueError("bad batch 17")


if __name__ == "__main__":
    worker.shield()
    worker.begin()
    main(*sys.argv[1:])
