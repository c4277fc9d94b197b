"""The program of each rank of a job of faults.py: meets a fault and records what the rank gets.

``fault_ranks.py FUNCTION FOLDER`` calls that function of this file on every rank. The ranks and
faults.py communicate through files in the folder:

    pid-RANK    from each rank: its process id
    ready-RANK  from each rank: the fault may occur
    go          from faults.py: all ranks are ready, and the signal of the case, if any, was sent
    fault       from the rank that causes the fault itself: the time of the fault
    seen-RANK   from each rank that a case observes: the exception and times, as JSON
    over        from faults.py: all observations are read, so the ranks end

Times are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import multiverso as mv

if TYPE_CHECKING:
    from collections.abc import Callable

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
NUM_RANKS = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
LAST = NUM_RANKS - 1

#: Seconds after which a process ends, even if the process that started it is dead.
PROCESS_TIMEOUT = 90

#: Deadlines of a session in seconds, instead of the defaults 1800 and 30.
TIMEOUT = 1.0
PEER_TIMEOUT = 1.0

#: Elements of the table that ranks add to: several stripes, each with its own lock.
TABLE_ELEMENTS = 100_000
#: Elements of the float32 table that is saved and loaded: 64 MiB.
CHECKPOINT_ELEMENTS = 1 << 24
#: Bytes that a file may have on the simulated full disk: a quarter of the checkpoint.
FILE_LIMIT = 16 << 20

FOLDER = Path()


def write(name: str, content: object = None) -> None:
    """Write a file of the folder atomically."""
    unfinished = FOLDER / f".{name}"
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.replace(FOLDER / name)


def wait_for(name: str) -> None:
    """Wait for a file of the folder."""
    while not (FOLDER / name).exists():
        time.sleep(0.005)


def cause_fault(call: Callable[[], object]) -> None:
    """Wait until the other ranks are ready; then record the time and make the faulty call."""
    write(f"ready-{RANK}")
    wait_for("go")
    write("fault", time.monotonic())
    repeat_until_error(call)


def repeat_until_error(call: Callable[[], object]) -> None:
    """Repeat a call until it fails, and record the exception and the time."""
    write(f"ready-{RANK}")
    begin = time.monotonic()
    try:
        while True:
            call()
    except (mv.MultiversoError, KeyboardInterrupt) as error:
        end = time.monotonic()
        write(f"seen-{RANK}", {"kind": type(error).__name__, "at": end, "began": begin})


def stay_away() -> None:
    """Make no calls, and stay alive until faults.py has read what the others saw."""
    write(f"ready-{RANK}")
    wait_for("over")


def barrier() -> None:
    """Wait in a barrier for the last rank."""
    mv.init()
    if RANK == LAST:
        return stay_away()
    return repeat_until_error(mv.barrier)


def rounds() -> None:
    """Add and get in lock-step."""
    mv.init(sync=True)
    table = mv.ArrayTable(TABLE_ELEMENTS)
    delta = np.ones(TABLE_ELEMENTS, np.float32)
    repeat_until_error(lambda: table.add_get(delta))


def survive() -> None:
    """Wait in a barrier for the last rank, and continue without it."""
    mv.init(on_peer_lost="continue")
    if RANK == LAST:
        return stay_away()
    write(f"ready-{RANK}")
    mv.barrier()
    write(f"seen-{RANK}", {"kind": "none", "at": time.monotonic()})
    return None


def lock() -> None:
    """Add while the last rank dies during an add."""
    if RANK == LAST:
        child = os.fork()
        if child:  # the parent outlives the fault, so it can record the time
            os.waitpid(child, 0)
            write("fault", time.monotonic())
            wait_for("over")
            return
        signal.alarm(PROCESS_TIMEOUT)  # fork does not pass the alarm on
        os.environ["MULTIVERSO_FAILPOINTS"] = "shard.write@1=kill"
    mv.init()
    table = mv.ArrayTable(TABLE_ELEMENTS)
    delta = np.ones(TABLE_ELEMENTS, np.float32)
    write(f"ready-{RANK}")
    if RANK == LAST:
        wait_for("go")
        table.add(delta)
    longest, adds_after_fault = 0.0, 0
    while adds_after_fault < 3:  # each add takes every lock, so also that of the dead rank
        adds_after_fault += (FOLDER / "fault").exists()
        begin = time.monotonic()
        table.add(delta)
        longest = max(longest, time.monotonic() - begin)
    write(f"seen-{RANK}", {"kind": "none", "took": longest})


def exception() -> None:
    """End the script of the last rank with an exception."""
    mv.init()
    if RANK < LAST:
        return repeat_until_error(mv.barrier)
    write(f"ready-{RANK}")
    wait_for("go")
    write("fault", time.monotonic())
    raise ValueError("bad batch 17")


def different_calls() -> None:
    """Make a different call than the other ranks, which wait in a round."""
    _disagree(lambda: mv.aggregate(np.ones(3)))


def call_fewer() -> None:
    """Shut down while the other ranks wait in a round."""
    _disagree(mv.shutdown)


def _disagree(call: Callable[[], object]) -> None:
    mv.init(sync=True)
    table = mv.ArrayTable(3)
    if RANK == LAST:
        return cause_fault(call)
    return repeat_until_error(lambda: table.add_get([1, 1, 1]))


def different_tables() -> None:
    """Create a different table than the other ranks."""
    mv.init()
    if RANK == LAST:
        return cause_fault(lambda: mv.ArrayTable(4))
    return repeat_until_error(lambda: mv.ArrayTable(3))


def late() -> None:
    """Wait until the deadline for a rank that never arrives."""
    mv.init(timeout=TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return repeat_until_error(mv.barrier)


def no_init() -> None:
    """Wait in MPI_Init, which no exception can end; a child records the end of the process."""
    if RANK == LAST:
        return stay_away()
    begin = time.monotonic()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        with os.fdopen(reader) as errors:
            printed = errors.read()
        # If one rank ends, MPI_Init fails at once on the other ranks of Open MPI.
        has_ended = "OperationTimeout" in printed or "MPI_INIT failed" in printed
        kind = "OperationTimeout" if has_ended else printed
        write(f"seen-{RANK}", {"kind": kind, "at": time.monotonic(), "began": begin})
        os._exit(0)
    os.dup2(writer, sys.stderr.fileno())
    os.close(writer)
    os.close(reader)
    write(f"ready-{RANK}")
    return mv.init(timeout=TIMEOUT)


def no_train() -> None:
    """Train with multiverso.learn; the last rank does not come."""
    from mpi4py import MPI

    from multiverso.learn import Algo, Data, ModelFromJson, MPIManager

    if RANK == LAST:
        return stay_away()
    # The ranks meet before they make models, so this needs no Keras.
    manager = MPIManager(
        MPI.COMM_WORLD,
        Data(1),
        Algo("sgd", loss="mse"),
        ModelFromJson(filename="none"),
        1,
        ["none"],
        timeout=TIMEOUT,
    )
    write(f"ready-{RANK}")
    begin = time.monotonic()
    try:
        manager.train()
    except mv.OperationTimeout as error:
        end = time.monotonic()
        write(f"seen-{RANK}", {"kind": type(error).__name__, "at": end, "began": begin})
    return None


def stopped() -> None:
    """Wait for a rank whose heartbeat has stopped."""
    mv.init(peer_timeout=PEER_TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return repeat_until_error(mv.barrier)


def corrupt_checkpoint() -> None:
    """Load a checkpoint whose data file has one wrong bit in the middle."""
    with mv.session():
        table = mv.ArrayTable(CHECKPOINT_ELEMENTS, name="w")
        table.add(np.ones(CHECKPOINT_ELEMENTS, np.float32))
        mv.save(FOLDER / "saved", step=1)
        data_file = max(FOLDER.glob("saved/*/*"), key=lambda path: path.stat().st_size)
        data = bytearray(data_file.read_bytes())
        data[len(data) // 2] ^= 1
        data_file.write_bytes(data)
        write("fault", time.monotonic())
        repeat_until_error(lambda: mv.load(FOLDER / "saved"))


def full_disk() -> None:
    """Save with space for only a part; a limit on the size of files simulates the full disk."""
    with mv.session():
        table = mv.ArrayTable(CHECKPOINT_ELEMENTS, name="w")
        table.add(np.ones(CHECKPOINT_ELEMENTS, np.float32))
        # The limit also applies to files in memory, so the table is created first. The write fails
        # with an error instead of killing the process, because Python ignores SIGXFSZ.
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, resource.RLIM_INFINITY))
        write("fault", time.monotonic())
        repeat_until_error(lambda: mv.save(FOLDER / "saved"))


if __name__ == "__main__":
    FOLDER = Path(sys.argv[2])
    signal.alarm(PROCESS_TIMEOUT)
    write(f"pid-{RANK}", os.getpid())
    globals()[sys.argv[1]]()
    wait_for("over")
    os._exit(0)  # after a fault MPI cannot be finalized cleanly
