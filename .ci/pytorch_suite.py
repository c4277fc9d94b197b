"""Runs PyTorch's own tests of torch.distributed on a backend, each in processes of its own.

    python .ci/pytorch_suite.py --backend multiverso --ranks 2

The tests are those of gloo (torch.testing._internal.distributed.distributed_test), whose default
group is of the backend. The program prints the outcome of each test, and ends with an error if one
fails that gloo passes.
"""

import argparse
import contextlib
import functools
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
from collections import Counter
from multiprocessing import Pipe
from pathlib import Path

#: The tests of the name of the backend, which must be "gloo" (see docs/torch-distributed.md).
OF_THE_NAME = re.compile(r"test_(get_backend|monitored_barrier_gloo\w*)$")

#: The outcomes of tests that do not succeed.
BAD = ("failed", "timed out")


def load(ranks):
    """Return the tests and their module, which reads its settings from the environment."""
    folder = tempfile.mkdtemp()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder, INIT_METHOD="env://")
    with contextlib.suppress(ImportError):
        import expecttest  # noqa: F401
    # The tests of groups do not use what this package adds.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stub)
    import torch
    import torch._dynamo  # Each child would take seconds to import it.
    import torch.distributed.tensor
    from torch.testing._internal.distributed import distributed_test as module

    torch.set_num_threads(1)
    bases = (module.TestDistBackend, module.DistributedTest._DistTestBase)
    return types.new_class("TestOnBackend", bases), module


def run_rank(tests, module, backend, name, rank, address):
    """Run a test as a rank, and end the process with the exit code of the suite."""
    from torch import distributed

    made = distributed.init_process_group

    @functools.wraps(made)
    def make_group(*args, **options):
        args = args and ("multiverso" if args[0] == "gloo" else args[0], *args[1:])
        if options.get("backend") == "gloo":
            options["backend"] = backend
        return made(*args, **options)

    if backend != "gloo":
        distributed.init_process_group = make_group
    _, pipe = Pipe()
    code = 1
    try:
        tests._run(rank, name, address, pipe)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def outcome_of(tests, module, backend, name, ranks, seconds, log):
    """Return "ok", "skipped", "failed" or "timed out"."""
    module.initialize_temp_directories()
    module.Barrier.init()
    address = tempfile.mktemp()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
            run_rank(tests, module, backend, name, rank, address)
        children.append(child)
    codes, deadline = [], time.monotonic() + seconds
    while children and time.monotonic() < deadline:
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                codes.append(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if children:
        return "timed out"
    skips = {skip.exit_code for skip in module.TEST_SKIPS.values()}
    if any(code not in skips | {0} for code in codes):
        return "failed"
    return "skipped" if set(codes) & (skips - {0}) else "ok"


def main():
    """Run the tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="multiverso")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="a pattern of the names of the tests")
    parser.add_argument("--seconds", type=float, default=60, help="the limit of a test")
    parser.add_argument("--log", default=os.devnull, help="a file for the output of the tests")
    given = parser.parse_args()
    tests, module = load(given.ranks)
    names = unittest.TestLoader().getTestCaseNames(tests)
    if given.backend != "gloo":
        names = [name for name in names if not OF_THE_NAME.match(name)]
    counts = Counter()
    with Path(given.log).open("a") as log:
        for name in [name for name in names if re.search(given.only, name)]:
            log.write(f"{name}\n")
            log.flush()
            run = functools.partial(
                outcome_of,
                tests,
                module,
                name=name,
                ranks=given.ranks,
                seconds=given.seconds,
                log=log,
            )
            outcome = run(backend=given.backend)
            if outcome in BAD and given.backend != "gloo" and run(backend="gloo") in BAD:
                outcome += ", as with gloo"  # It needs what this machine lacks, such as a GPU.
            counts[outcome] += 1
            sys.stdout.write(f"{name}: {outcome}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(counts)}\n")
    return any(counts[outcome] for outcome in BAD)


if __name__ == "__main__":
    sys.exit(main())
