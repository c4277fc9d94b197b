"""Combinations of features that the table refuses: each is a case of all ranks (combinations.py)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import worker  # noqa: E402

from combinations import OF_SEVERAL_RANKS, is_possible, use  # noqa: E402
from multiverso._native.supported import refusals  # noqa: E402


def main():
    """Make the calls of all refusals of the job's layout; report what each rank got."""
    worker.begin()
    spans_nodes = worker.num_nodes() > 1
    for number, refusal in enumerate(refusals(), 1):
        is_here = bool(refusal.features & OF_SEVERAL_RANKS) and (
            ("several nodes" in refusal.features) == spans_nodes
        )
