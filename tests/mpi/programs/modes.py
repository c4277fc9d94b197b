"""Cases in sessions with a mode, and the helpers to write them."""

import os
import time

import numpy as np
import worker
from cases import SEED, equal, registrar

#: Random programs per case; use some hundreds for a long run.
PROGRAMS = int(os.environ.get("MULTIVERSO_TEST_PROGRAMS", "6"))

CASES = {}

case = registrar(CASES)


def same_bits(actual, expected):
    """Compare arrays bitwise, including the signs of zeros."""
    equal(actual, expected)
    assert np.asarray(actual).tobytes() == expected.tobytes(), "equal, but not the same bits"


def dawdle(rng):
    """Let the other ranks advance for a random time, or not."""
    if rng.random() < 0.1:
        time.sleep(rng.random() * 3e-3)


def for_seeds(function, *arguments):
    """Call a function with one seed after the other; report the seed that fails."""
    for seed in range(SEED, SEED + PROGRAMS):
        try:
            function(seed, *arguments)
        except BaseException:
            worker.report(seed=seed)
            raise
