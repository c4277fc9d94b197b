"""Cases about `multiverso.Work`, whose items the workers share."""

import numpy as np
from cases import case, equal, repeats
from modes import case as mode_case

import multiverso as mv

#: Seconds of a lease that does not end during a case.
LONG = 3600.0


def _counts(size):
    """Return a table in which workers count how often an item is done."""
    return mv.ArrayTableHandler(size, dtype="int32")


def _check_that_each_item_is_done_once():
    size = repeats(300)
    counts = _counts(size)
    mine = 0
    for item in mv.Work(range(size), LONG):
        counts.fetch_add(item)
        mine += 1
    # The loop ends when all items are done, so no barrier is needed.
    equal(counts.get(), np.ones(size))
    total = mv.aggregate(np.array([mine]))
    equal(total, size)


@case
def each_item_is_done_once():
    _check_that_each_item_is_done_once()


@case
def fewer_items_than_workers_are_done_once():
    for size in (0, 1, 2):
        counts = _counts(size + 1)
        for item in mv.Work(range(size), LONG):
            counts.fetch_add(item)
        equal(counts.get(), [1] * size + [0])


@mode_case(staleness=1)
def workers_with_bounded_staleness_share_items():
    _check_that_each_item_is_done_once()
