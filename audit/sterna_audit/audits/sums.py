"""Sums by which two sets of numbers are compared without bringing their rows together.

Each number `n` counts as `f(n) - f(n - 1)`, where `f` is Spark's `xxhash64`. So a run from `first` to `last` counts as
`f(last) - f(first - 1)`: it need not be taken apart. Two sets that differ have different sums, but for a chance of one
in 2⁶⁴: the sum of a difference is one of hashes at the places where it begins and ends, which nothing makes zero.

Hashes are summed in two halves of 32 bits, so that no sum of fewer than two thousand million rows overflows, which
Spark takes for an error.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

_LOW_BITS = 0xFFFFFFFF


def low(value: Column) -> Column:
    """The lower half of a hash."""
    return value.bitwiseAND(F.lit(_LOW_BITS).cast("long"))


def high(value: Column) -> Column:
    """Its upper half, as a number from 0 on."""
    return F.shiftrightunsigned(value, 32)


def run_low(first: Column, last: Column) -> Column:
    """The lower half of what a run counts as."""
    return low(F.xxhash64(last)) - low(F.xxhash64(first - 1))


def run_high(first: Column, last: Column) -> Column:
    """Its upper half."""
    return high(F.xxhash64(last)) - high(F.xxhash64(first - 1))
