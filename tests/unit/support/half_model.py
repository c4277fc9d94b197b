"""The stochastic rounding of tables of 16-bit parameters in NumPy.

Tests compare tables with this model bit by bit. The random bits are hashes: of each block of 256
elements and the number of its update with the 64-bit finalizer of MurmurHash3, and of each element
in the block with the 32-bit finalizer (Appleby, 2011).
"""

import ml_dtypes
import numpy as np

HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}

_BLOCK = 256
_MASK = 2**64 - 1


def _mix64(bits):
    bits = ((bits ^ bits >> 33) * 0xFF51AFD7ED558CCD) & _MASK
    bits = ((bits ^ bits >> 33) * 0xC4CEB9FE1A85EC53) & _MASK
    return bits ^ bits >> 33


def _random_bits(first, count, step):
    """Return 16 random bits for each of `count` elements of a table, from element `first` on."""
    elements = np.arange(first, first + count)
    blocks = range(first // _BLOCK, elements[-1] // _BLOCK + 1) if count else ()
    keys = np.array([_mix64((_mix64(block) + step) & _MASK) for block in blocks], np.uint64)
    key = keys[elements // _BLOCK - first // _BLOCK]
    bits = key.astype(np.uint32) + (elements % _BLOCK).astype(np.uint32) * np.uint32(0x9E3779B9)
    bits = (bits ^ bits >> 16) * np.uint32(0x85EBCA6B)
    bits = (bits ^ bits >> 13) * np.uint32(0xC2B2AE35)
    return (bits ^ bits >> 16 ^ (key >> 32).astype(np.uint32)) >> 16


def round_stochastically(values, first, step, name):
    """Return float32 values as a table stores them in its update number `step`, as float32."""
    values = np.ascontiguousarray(values, np.float32)
    dropped = {"bfloat16": 16, "float16": 13}[name]
    random = _random_bits(first, values.size, step).reshape(values.shape)
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
