"""The ranks' side of faults.py: ``fault_ranks.py CASE FOLDER`` lets something go wrong.

What happened when stands in the folder afterwards: when the fault was (``fault``), and what each
rank saw of it (``seen-RANK``). Times are those of the monotonic clock, which all processes of a
machine share.
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

#: Seconds after which a process ends, whatever has become of the one that started it.
LIMIT = 90

#: Seconds: of a call that shall pass its deadline, and without a sign of life; in place of 120
#: and 30.
TIMEOUT = 1.0
PEER_TIMEOUT = 1.0

#: Elements of the table to which ranks add: several stripes, each under a lock of its own.
SIZE_OF_TABLE = 100_000
#: Of the table that is saved and loaded: 64 MiB.
SIZE_OF_CHECKPOINT = 1 << 24

FOLDER = Path()


def write(name: str, content: object = None) -> None:
    """Write a file of the folder, whole at any moment."""
    unfinished = FOLDER / f".{name}"
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.replace(FOLDER / name)


def wait_for(name: str) -> None:
    """Wait for a file of the folder."""
    while not (FOLDER / name).exists():
        time.sleep(0.005)


def go_wrong(call: Callable[[], object]) -> None:
    """Note when, and make the call that is the fault."""
    wait_for("go")
    write("fault", time.monotonic())
    see(call)


def see(call: Callable[[], object]) -> None:
    """Make a call again and again until it fails, and note how and when."""
    write(f"ready-{RANK}")
    begin = time.monotonic()
    try:
        while True:
            call()
    except (mv.MultiversoError, KeyboardInterrupt) as error:
        at = time.monotonic()
        write(f"seen-{RANK}", {"kind": type(error).__name__, "at": at, "began": begin})


def stay_away() -> None:
    """Be there, and in no call, until the others have seen it."""
    write(f"ready-{RANK}")
    wait_for("over")


def barrier() -> None:
    """All ranks wait in a barrier for the last one."""
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


def goes_on() -> None:
    """Wait in a barrier for the last one, and go on without it."""
    mv.init(on_peer_lost="continue")
    if RANK == LAST:
        return stay_away()
    write(f"ready-{RANK}")
    mv.barrier()
    write(f"seen-{RANK}", {"kind": "none", "at": time.monotonic()})
    return None


def lock() -> None:
    """Add, while the last one dies in the middle of an add."""
    if RANK == LAST:
        child = os.fork()
        if child:  # a launcher that sees its own process die ends the others
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
    while after < 3:  # its lock has been wanted by then
        after += (FOLDER / "fault").exists()
        begin = time.monotonic()
        table.add(delta)
        longest = max(longest, time.monotonic() - begin)
    write(f"seen-{RANK}", {"kind": "none", "took": longest})


def exception() -> None:
    """End the script of the last one with an exception."""
    mv.init()
    if RANK < LAST:
        return see(mv.barrier)
    write(f"ready-{RANK}")
    wait_for("go")
    write("fault", time.monotonic())
    raise ValueError("bad batch 17")


def different_calls() -> None:
    """Make another call than the others, who wait in a round."""
    _disagree(lambda: mv.aggregate(np.ones(3)))


def call_fewer() -> None:
    """Shut down while the others wait in a round."""
    _disagree(mv.shutdown)


def _disagree(call: Callable[[], object]) -> None:
    mv.init(sync=True)
    table = mv.ArrayTableHandler(3)
    if RANK == LAST:
        write(f"ready-{RANK}")
        return go_wrong(call)
    return see(lambda: table.add_get([1, 1, 1]))


def different_tables() -> None:
    """Create another table than the others."""
    mv.init()
    if RANK == LAST:
        write(f"ready-{RANK}")
        return go_wrong(lambda: mv.ArrayTableHandler(4))
    return see(lambda: mv.ArrayTableHandler(3))


def late() -> None:
    """Wait for one that does not come, until the deadline."""
    mv.init(timeout=TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return see(mv.barrier)


def stopped() -> None:
    """Wait for one that gives no sign of life."""
    mv.init(peer_timeout=PEER_TIMEOUT)
    if RANK == LAST:
        return stay_away()
    return see(mv.barrier)


def hostile_checkpoint() -> None:
    """Load a checkpoint in the middle of which one bit is wrong."""
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
    """Save where there is room for a part; a limit on the size of files stands for the disk."""
    with mv.session():
        table = mv.ArrayTableHandler(SIZE_OF_CHECKPOINT, name="w")
        table.add(np.ones(SIZE_OF_CHECKPOINT, np.float32))  # zeros would take no room
        # Of memory, too, which the table has by now. Python ignores the signal that comes of it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_OF_CHECKPOINT, resource.RLIM_INFINITY))
        write("fault", time.monotonic())
        see(lambda: mv.save(FOLDER / "saved"))


if __name__ == "__main__":
    FOLDER = Path(sys.argv[2])
    signal.alarm(LIMIT)
    write(f"pid-{RANK}", os.getpid())
    globals()[sys.argv[1]]()
    wait_for("over")
    os._exit(0)  # MPI cannot be ended in good order any more
