"""The initializers in NumPy, with the operations of the library in the same order.

Tests compare tables with this model bit by bit. The random bits are those of Philox4x32-10 (Salmon
et al., SC 2011), and the normal values those of AS 241 (Wichura, 1988) with a logarithm of basic
operations, because the logarithms of mathematical libraries differ in their last bits.
"""

import numpy as np

from multiverso import initializers


def _numbers(text):
    return [float(number) for number in text.split()]


# The coefficients of AS 241, from the highest power to the constant, above and below the fraction
# line. As texts, they need no line for each number.
_CENTER = (
    _numbers(
        "2509.0809287301227 33430.57558358813 67265.7709270087 45921.95393154987 "
        "13731.69376550946 1971.5909503065513 133.14166789178438 3.3871328727963665"
    ),
    _numbers(
        "5226.495278852854 28729.085735721943 39307.89580009271 21213.794301586597 "
        "5394.196021424751 687.1870074920579 42.31333070160091 1.0"
    ),
)
_TAIL = (
    _numbers(
        "0.0007745450142783414 0.022723844989269184 0.2417807251774506 1.2704582524523684 "
        "3.6478483247632045 5.769497221460691 4.630337846156546 1.4234371107496835"
    ),
    _numbers(
        "1.0507500716444169e-09 0.0005475938084995345 0.015198666563616457 0.14810397642748008 "
        "0.6897673349851 1.6763848301838038 2.053191626637759 1.0"
    ),
)
_FAR = (
    _numbers(
        "2.0103343992922881e-07 2.7115555687434876e-05 0.0012426609473880784 0.026532189526576124 "
        "0.29656057182850487 1.7848265399172913 5.463784911164114 6.657904643501103"
    ),
    _numbers(
        "2.0442631033899397e-15 1.421511758316446e-07 1.8463183175100548e-05 0.0007868691311456133 "
        "0.014875361290850615 0.1369298809227358 0.599832206555888 1.0"
    ),
)

# The distribution function of the normal distribution at -2 and 2.
_BELOW_MINUS_TWO = 0.022750131948179195
_BELOW_TWO = 0.97724986805182079


_LOW = np.uint64(0xFFFFFFFF)  # the bits of a word
_WORD = np.uint64(32)  # its length


def philox4x32(counter, key):
    """Return the four words for four words of a counter and two of a key, arrays of uint64."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> _WORD) ^ c1 ^ k0, b & _LOW, (a >> _WORD) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
    return c0, c1, c2, c3


def _polynomial(coefficients, x):
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _fraction(coefficients, x):
    above, below = coefficients
    return _polynomial(above, x) / _polynomial(below, x)


def _logarithm(x):
    mantissa, exponent = np.frexp(x)
    is_small = mantissa < 0.70710678118654752
    mantissa = np.where(is_small, mantissa * 2, mantissa)
    exponent = np.where(is_small, exponent - 1, exponent)
    s = (mantissa - 1) / (mantissa + 1)
    series = [1.0 / odd for odd in range(21, 0, -2)]
    return exponent.astype(float) * 0.69314718055994531 + 2 * s * _polynomial(series, s * s)


def inverse_normal(p):
    """Return the inverse of the normal distribution function for probabilities between 0 and 1."""
    p = np.asarray(p, float)
    q = p - 0.5
    r = 0.180625 - q * q
    above, below = _CENTER
    center = q * _polynomial(above, r) / _polynomial(below, r)
    r = np.sqrt(-_logarithm(np.where(q < 0, p, 1 - p)))
    near, far = r - 1.6, r - 5
    tail = np.where(r <= 5, _fraction(_TAIL, near), _fraction(_FAR, far))
    return np.where(np.abs(q) <= 0.425, center, np.where(q < 0, -tail, tail))


def _bits(seed, rows, columns, words):
    """Return random words of shape (len(rows), columns, words), `words` for each value."""
    per_block = 4 // words
    blocks = np.arange(-(-columns // per_block), dtype=np.uint64)
    row = np.asarray(rows, np.uint64)[:, None]
    counter = (blocks & _LOW, row & _LOW, row >> _WORD, blocks >> _WORD)
    counter = [np.broadcast_to(word, (len(rows), len(blocks))) for word in counter]
    random = np.stack(philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32)), axis=-1)
    return random.reshape(len(rows), -1, words)[:, :columns]


def seed_of(initializer, table):
    """Return the seed of an initializer for the table with that number."""
    if initializer.seed is not None:
        return initializer.seed
    return (0x9E3779B97F4A7C15 * (table + 1) & (2**64 - 1)) >> 1


def initial_rows(initializer, rows, columns, dtype, table=0):
    """Return the initial values of rows of the table with the number `table`."""
    dtype = np.dtype(dtype)
    if not hasattr(initializer, "seed"):
        value = getattr(initializer, "value", 0)
        return np.full((len(rows), columns), value, dtype)
    wide = dtype.itemsize == 8  # Such a value has two random words.
    words = _bits(seed_of(initializer, table), rows, columns, 2 if wide else 1)
    bits = words[..., 0] | (words[..., 1] << _WORD) if wide else words[..., 0]
    if isinstance(initializer, initializers.RandomUniform):
        keep, scale = (np.uint64(11), 2.0**-53) if wide else (np.uint64(8), 2.0**-24)
        u = (bits >> keep).astype(float) * scale
        least, most = float(initializer.minval), float(initializer.maxval)
        return (least + u * (most - least)).astype(dtype)
    if wide:
        p = ((bits >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    else:
        p = (bits.astype(float) + 0.5) * 2.0**-32
    if isinstance(initializer, initializers.TruncatedNormal):
        p = _BELOW_MINUS_TWO + p * (_BELOW_TWO - _BELOW_MINUS_TWO)
    return (initializer.mean + initializer.stddev * inverse_normal(p)).astype(dtype)


def initial_values(initializer, shape, dtype, table=0):
    """Return the initial values of a whole table, an array or a matrix."""
    rows, columns = (*shape, 1)[:2]
    return initial_rows(initializer, np.arange(rows), columns, dtype, table).reshape(shape)
