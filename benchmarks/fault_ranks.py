"""The ranks' side of faults.py: ``fault_ranks.py CASE FOLDER`` causes a fault.

The folder receives the time of the fault (``fault``) and what each rank saw (``seen-RANK``). Times
are those of the monotonic clock, which all processes of a machine share.
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
SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
LAST = SIZE - 1

#: Seconds after which a process ends, even if the process that started it is dead.
LIMIT = 90

#: Deadlines in seconds, instead of the defaults 120 and 30.
TIMEOUT = 1.0
PEER_TIMEOUT = 1.0

#: Elements of the table that ranks add to: several stripes, each with its own lock.
SIZE_OF_TABLE = 100_000
#: Elements of the table that is saved and loaded: 64 MiB.
SIZE_OF_CHECKPOINT = 1 << 24

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


def go_wrong(call: Callable[[], object]) -> None:
    """Record the time of the fault and make the faulty call."""
    wait_for("go")
    write("fault", time.monotonic())
    see(call)


def see(call: Callable[[], object]) -> None:
    """Repeat a call until it fails, and record the exception and the time."""
    write(f"ready-{RANK}")
    begin = time.monotonic()
    try:
        while True:
            call()
    except (mv.MultiversoError, KeyboardInterrupt) as error:
        at = time.monotonic()
        write(f"seen-{RANK}", {"kind": type(error).__name__, "at": at, "began": begin})


def stay_away() -> None:
    """Stay alive without making calls until the others have seen the fault."""
    write(f"ready-{RANK}")
    wait_for("over")


def barrier() -> None:
    """Wait in a barrier for the last rank."""
    mv.init()
    if RANK == LAST:
        return stay_away()
    return see(mv.barrier)


def rounds() -> None:
    """Add and get in lock-step."""
    mv.init(sync=True)
    table = mv.ArrayTableHandler(SIZE_OF_TABLE)
    delta = np.ones(SIZE_OF_TABLE, np.float32)
    see(lambda: table.add_get(delta))


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
        if child:  # a launcher whose own child dies ends the other ranks
            os.waitpid(child, 0)
            write("fault", time.monotonic())
            wait_for("over")
            return
        os.environ["MULTIVERSO_FAILPOINTS"] = "shard.write@1=kill"
    mv.init()
    table = mv.ArrayTableHandler(SIZE_OF_TABLE)
    delta = np.ones(SIZE_OF_TABLE, np.float32)
    write(f"ready-{RANK}")
    if RANK == LAST:
        wait_for("go")
        table.add(delta)
    longest, after = 0.0, 0
    while after < 3:  # by then an add has waited for the dead rank's lock
        after += (FOLDER / "fault").exists()
        begin = time.monotonic()
        table.add(delta)
        longest = max(longest, time.monotonic() - begin)
    write(f"seen-{RANK}", {"kind": "none", "took": longest})


def exception() -> None:
    """End the script of the last rank with an exception."""
    mv.init()
    if RANK < LAST:
        return see(mv.barrier)
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
    table = mv.ArrayTableHandler(3)
    if RANK == LAST:
        write(f"ready-{RANK}")
        return go_wrong(call)
    return see(lambda: table.add_get([1, 1, 1]))


def different_tables() -> None:
    """Create a different table than the other ranks."""
    mv.init()
    if RANK == LAST:
        write(f"ready-{RANK}")
        return go_wrong(lambda: mv.ArrayTableHandler(4))
    return see(lambda: mv.ArrayTableHandler(3))


def late() -> None:
    """Wait until the deadline for a rank that never arrives."""
    mv.init(timeout=TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return see(mv.barrier)


def stopped() -> None:
    """Wait for a rank whose heartbeat has stopped."""
    mv.init(peer_timeout=PEER_TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return see(mv.barrier)


def hostile_checkpoint() -> None:
    """Load a checkpoint with one wrong bit in the middle."""
    with mv.session():
        table = mv.ArrayTableHandler(SIZE_OF_CHECKPOINT, name="w")
        table.add(np.ones(SIZE_OF_CHECKPOINT, np.float32))
        mv.save(FOLDER / "saved", step=1)
        shard = max(FOLDER.glob("saved/*/*"), key=lambda path: path.stat().st_size)
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        write("fault", time.monotonic())
        see(lambda: mv.load(FOLDER / "saved"))


def full_disk() -> None:
    """Save with space for only a part; a file size limit simulates the full disk."""
    with mv.session():
        table = mv.ArrayTableHandler(SIZE_OF_CHECKPOINT, name="w")
        table.add(np.ones(SIZE_OF_CHECKPOINT, np.float32))  # zeros would take no space
        # The limit also covers shared memory, which the table has by now. Python ignores SIGXFSZ.
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_OF_CHECKPOINT, resource.RLIM_INFINITY))
        write("fault", time.monotonic())
        see(lambda: mv.save(FOLDER / "saved"))


if __name__ == "__main__":
    FOLDER = Path(sys.argv[2])
    signal.alarm(LIMIT)
    write(f"pid-{RANK}", os.getpid())
    globals()[sys.argv[1]]()
    wait_for("over")
    os._exit(0)  # after a fault MPI cannot be finalized cleanly
