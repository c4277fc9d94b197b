"""The stochastic rounding of tables of 16-bit parameters in NumPy.

The random bits are hashes: of each block of 256 elements and the number of its update with the
64-bit finalizer of MurmurHash3, and of each element in the block with the 32-bit finalizer
(Appleby, 2011).
"""

import ml_dtypes
import numpy as np

HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}

_SHIFT = np.uint64(33)


def _mix64(bits):
    bits = (bits ^ bits >> _SHIFT) * np.uint64(0xFF51AFD7ED558CCD)
    bits = (bits ^ bits >> _SHIFT) * np.uint64(0xC4CEB9FE1A85EC53)
    return bits ^ bits >> _SHIFT


def _random_bits(elements, steps):
    """Return 16 random bits for each element of a table, by its number, in an update."""
    key = _mix64(_mix64(elements >> np.uint64(8)) + steps.astype(np.uint64))
    place = (elements & np.uint64(255)).astype(np.uint32)
    bits = key.astype(np.uint32) + place * np.uint32(0x9E3779B9)
    bits = (bits ^ bits >> 16) * np.uint32(0x85EBCA6B)
    bits = (bits ^ bits >> 13) * np.uint32(0xC2B2AE35)
    return (bits ^ bits >> 16 ^ (key >> np.uint64(32)).astype(np.uint32)) >> 16


def round_stochastically(values, firsts, steps, name):
    """Return rows of float32 values as a table stores them, as float32.

    `firsts` has the number of the first element of each row, and `steps` that of its update.
    """
    values = np.ascontiguousarray(values, np.float32)
    dropped = {"bfloat16": 16, "float16": 13}[name]
    elements = firsts.astype(np.uint64)[:, None] + np.arange(values.shape[1], dtype=np.uint64)
    random = _random_bits(elements, steps[:, None])
    bits = values.view(np.uint32)
    sign, magnitude = bits & np.uint32(1 << 31), bits & np.uint32(2**31 - 1)
    rounded = (magnitude + (random >> (16 - dropped))) >> dropped << dropped
    result = rounded.view(np.float32)
    if name == "float16":
        small = magnitude.view(np.float32) * np.float32(2**24)
        small = np.minimum(small, 2048) + random.astype(np.float32) * np.float32(2**-16)
        small = np.floor(np.nan_to_num(small)) * np.float32(2**-24)
        result = np.where(magnitude < np.float32(2**-14).view(np.uint32), small, result)
        result = np.where(result >= 65536, np.float32(np.inf), result)
    result = np.where(magnitude >= np.float32(np.inf).view(np.uint32), np.abs(values), result)
    return (result.view(np.uint32) | sign).view(np.float32)
