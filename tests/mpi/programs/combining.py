"""Combinations that several ranks try, which the table refuses: each is a case of all ranks."""

import sys
import tempfile

import numpy as np
import worker
from cases import raises

import multiverso as mv
from combinations import OF_SEVERAL_RANKS, is_possible, use
from multiverso._native.supported import refusals


def publish_as(*roles):
    """Publish rows to a folder with a role for each rank; report what each rank got and uses."""
    with mv.session(role=roles[worker.RANK], name="roles", timeout=20.0) as session:
        table = mv.MatrixTable(100, 4, mv.initializers.Constant(1))
        if session.worker_id >= 0:
            table.add(np.ones((1, 4)), [3])
        mv.barrier()
        with tempfile.TemporaryDirectory() as folder:
            worker.report_call(lambda: mv.publish(1, to=folder), name="publish")
        worker.report(features=sorted(session.features()))
        worker.meet("all have published")


def main():
    """Use the features of each refusal that needs this job's ranks; report what each rank got."""
    worker.begin()
    spans_nodes = sys.argv[1] == "nodes"
    tried = []
    for number, refusal in enumerate(refusals(), 1):
        is_here = ("several nodes" in refusal.features) == spans_nodes
        if is_here and refusal.features & OF_SEVERAL_RANKS and is_possible(refusal.features):
            raises(
                refusal.error,
                lambda used=refusal.features: use(used, worker.RANK),
                refusal.sentence,
            )
            worker.meet(f"end of {number}")  # The next session begins when all have left this one.
            tried.append(number)
            worker.report(tried=tried)


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else publish_as(*sys.argv[1:])
