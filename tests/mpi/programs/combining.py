"""Combinations that several ranks try, which the table refuses: each is a case of all ranks."""

import sys

import worker
from cases import raises

from combinations import OF_SEVERAL_RANKS, is_possible, use
from multiverso._native.supported import refusals


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
    main()
