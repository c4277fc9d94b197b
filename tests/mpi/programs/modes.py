"""The registry of the cases that consistency.py runs, and helpers to write them."""

import time

import numpy as np
from cases import equal, registrar

CASES = {}

case = registrar(CASES)


def same_bits(actual, expected):
    """Check that two arrays are bitwise equal, including the signs of zeros."""
    actual = np.asarray(actual)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        equal(actual, expected)
    if actual.tobytes() != expected.tobytes():
        equal(actual, expected)
        raise AssertionError("equal, but not the same bits")


def dawdle(rng):
    """Sleep at random, so that other ranks get ahead: in a tenth of the calls, for up to 3 ms."""
    if rng.random() < 0.1:
        time.sleep(rng.random() * 3e-3)
