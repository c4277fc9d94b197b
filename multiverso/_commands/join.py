"""``multiverso join JOB -np N train.py``: adds workers to an elastic job on this machine."""

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

from multiverso._commands import _node_jobs
from multiverso._commands._argument_types import integer
from multiverso._commands._signals import exit_code, noted_signals
from multiverso._local import guard, ranks
from multiverso._local.job import joiner_variables


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "join",
        help="add workers to an elastic job on this machine",
        description="Starts processes that join a job of this user on this machine, and waits for "
        "them. The job must be elastic: multiverso run --elastic, or mv.init(elastic=True). The "
        "processes run the same script as the job. A process that fails ends no other. The exit "
        "code is that of the first one that failed by itself, rather than because it lost another.",
    )
    parser.add_argument(
        "job",
        metavar="JOB",
        help="the name of the session, or the process id of a rank or of its launcher",
    )
    parser.add_argument("-np", "-n", type=integer(1), default=1, metavar="N", help="workers (1)")
    parser.add_argument("script", help="a Python script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start the processes and wait for them; return the exit code."""
    if not Path(options.script).is_file():
        _report(f"{options.script}: no such file")
        return 2
    target = _node_jobs.find_elastic_job(options.job)
    program = [sys.executable, options.script, *options.arguments]
    variables = [joiner_variables(target, index) for index in range(options.np)]
    with noted_signals() as received:
        code = guard.run_guarded(functools.partial(_run_job, program, variables), received)
    return exit_code(code, received)


def _report(sentence: str) -> None:
    sys.stderr.write(f"multiverso join: {sentence}\n")


def _run_job(program: list[str], variables: list[dict[str, str]]) -> int:
    with noted_signals() as received:
        started = ranks.Processes(program, report=_report)
        first = ranks.FirstFailure(started, ends_job=False)
        starts = started.start_all(variables)
        code = ranks.watch(starts, first.react, lambda: bool(received), started)
        code = started.code_when_told(code, is_told=bool(received))
        started.close()
        if received:
            guard.end_descendants()  # what ranks have started and left behind
    return exit_code(code, received)
