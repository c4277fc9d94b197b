"""Ranks that start other programs: ``started.py FUNCTION``. The programs use Multiverso as well."""

import multiprocessing
import os
import subprocess
import sys
import time

import worker

#: Opens a session, adds to a table, and prints the number of ranks and the sum.
ALONE = """
import multiverso as mv
with mv.session(timeout=20) as session:
    table = mv.ArrayTableHandler(1)
    table.add([1])
    mv.barrier()
    print(session.size, int(table.get()[0]))
"""

#: Starts such a program before it has a session itself, and prints what that printed too.
STARTS_ALONE = (
    f"""
import subprocess, sys
import multiverso as mv
print(subprocess.run([sys.executable, "-c", {ALONE!r}], capture_output=True, text=True).stdout)
"""
    + ALONE
)


def printed_by(*command, **options):
    """Run a command; return the numbers that it prints, or its errors."""
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **options}
    done = subprocess.run(command, check=False, **options)
    return [*map(int, done.stdout.split())] if done.returncode == 0 else done.stderr


def opens_in_child(queue):
    """Open a session in a process of multiprocessing."""
    import multiverso as mv

    with mv.session(timeout=20) as session:
        queue.put(session.size)


def opens_at_its_top():
    """Open a session where a script is also imported by its processes, and start a pool."""
    import multiverso as mv

    mv.init(timeout=60)
    worker.begin()
    sizes = None
    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            sizes = pool.map(size_of_session, [None])
        mv.barrier()
        worker.report(size=mv.size(), sizes=sizes)


def size_of_session(_):
    """Return the size of the session of this process."""
    import multiverso as mv

    return mv.size()


def starts_programs():
    """Start programs before and after the session begins; report what they print."""
    import multiverso as mv

    alone = (sys.executable, "-c", ALONE)
    shell = ("sh", "-c", '"$@"; exit', "sh", *alone)
    before = {
        "first": printed_by(*alone),
        "of_a_program": printed_by(sys.executable, "-c", STARTS_ALONE),
        "without_environment": printed_by(
            *alone, env={name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
        ),
    }
    child = os.fork()
    if child == 0:
        os._exit(mv.init(timeout=20).size)
    before["forked"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with mv.session(timeout=60) as session:
        after = {
            "first": printed_by(*alone),
            "shell": printed_by(*shell),
            "other_session": printed_by(*alone, start_new_session=True),
            "all_descriptors": printed_by(*alone, close_fds=False),
        }
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=opens_in_child, args=(queue,))
        process.start()
        after["multiprocessing"] = queue.get(timeout=worker.WAIT_TIMEOUT)
        process.join()
        table = mv.ArrayTableHandler(1)
        table.add([1])
        mv.barrier()
        total = int(table.get()[0])
        worker.report(before=before, after=after, size=session.size, total=total)
        worker.report(local_ranks=[mv.local_rank(), printed_local_rank()])


def printed_local_rank():
    """Return the local rank that a program sees: that of its rank, whose GPU it can use."""
    code = "import multiverso as mv; print(mv.local_rank())"
    return printed_by(sys.executable, "-c", code)[0]


def replaces_itself():
    """Execute this program again as the same process, after importing the package."""
    import multiverso as mv

    if "again" not in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
    with mv.session(timeout=60) as session:
        worker.report(size=session.size)


def starts_ranks_as_children():
    """Start the rank itself as a child, and do nothing else, as a wrapper in Python does."""
    code = "import multiverso as mv\nwith mv.session(timeout=60): print(mv.size())"
    # MPICH needs a descriptor that the launcher has opened.
    worker.report(sizes=printed_by(sys.executable, "-c", code, close_fds=False))


def is_one_of_two():
    """Start two processes with the variables of this rank at the same time."""
    code = """
import os, sys, time
import multiverso as mv
try:
    mv.init(timeout=60)
    print(f"{os.getpid()} opened", flush=True)
    time.sleep(float(sys.argv[1]))
except mv.errors.StateError as error:
    print(f"{os.getpid()} {error}", flush=True)
"""
    command = [sys.executable, "-c", code, str(worker.WAIT_TIMEOUT)]
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            close_fds=False,  # MPICH needs a descriptor that the launcher has opened.
        )
        for _ in range(2 if worker.RANK == 0 else 1)
    ]
    if worker.RANK == 0:
        deadline = time.monotonic() + worker.WAIT_TIMEOUT
        while all(process.poll() is None for process in processes):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        refused = next(process for process in processes if process.poll() is not None)
        worker.report(pids=[process.pid for process in processes], error=refused.stdout.read())
    worker.meet("over")
    for process in processes:
        process.kill()
        process.wait()


if __name__ == "__mp_main__" and "opens_at_its_top" in sys.argv:
    opens_at_its_top()

if __name__ == "__main__":
    if sys.argv[1] != "opens_at_its_top":
        worker.begin()
    globals()[sys.argv[1]]()
