"""One rank makes the others fail in some way; ``blame.py HOW CALL FOLDER`` says how, and in what.

Every rank but the last reports what it gets, and all that it is told of who is to blame.
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
    """Make two rounds and a checkpoint; then the last rank goes wrong instead of a third."""
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
    # MPI cannot be ended in good order any more.
    sys.stdout.flush()
    os._exit(0)


def _until_it_fails(call):
    """Make the call: again, if what a rank of another node did before it went wrong was enough."""
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
    time.sleep(0.5)  # past the first slice, where the wait goes on in Python
    signal.pthread_kill(main_thread, signal.SIGALRM)


def _give_up(signum, frame):
    raise ValueError("bad batch 17")


if __name__ == "__main__":
    worker.shield()
    worker.begin()
    main(*sys.argv[1:])
