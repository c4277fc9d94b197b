"""The sum over workers as the documentation defines it."""

import operator


def pairwise_sum(terms, add=operator.add):
    """Return S(0, len(terms)); a term that is None belongs to a worker that adds nothing."""
    if len(terms) == 1:
        return terms[0]
    half = 1 << (len(terms) - 1).bit_length() - 1
    left, right = pairwise_sum(terms[:half], add), pairwise_sum(terms[half:], add)
    if left is None or right is None:
        return right if left is None else left
    return add(left, right)
