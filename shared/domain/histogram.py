"""Histograms of durations that can be added: exponential ones, with the buckets of OpenTelemetry's scale 3.

A bucket is 9 % wide, so a percentile is off by 5 % at most, whatever the duration. Adding loses nothing, so hours and
days are exact sums of minutes. A histogram is one integer, with 40 bits for the count of each bucket: a page adds
thousands of them, and adding integers is the fastest that Python has.
"""

from __future__ import annotations

import math

Histogram = int

EMPTY: Histogram = 0
_SCALE = 8
"""Buckets for each power of two."""
_BITS = 40
_BYTES = _BITS // 8
_SHORTEST = 1e-6
_FIRST = math.ceil(math.log2(_SHORTEST) * _SCALE) - 1
_LAST = 400
SHARES = (0.5, 0.95, 0.99)
"""Shares of the percentiles that are shown."""


def of(seconds: float) -> Histogram:
    """Returns the histogram of one duration."""
    bucket = math.ceil(math.log2(max(seconds, _SHORTEST)) * _SCALE) - 1 - _FIRST
    return 1 << _BITS * min(bucket, _LAST)


def encode(histogram: Histogram) -> bytes:
    """Returns the stored form: the number of the first bucket in two bytes, and the counts from there on."""
    if not histogram:
        return b""
    first = ((histogram & -histogram).bit_length() - 1) // _BITS
    counts = histogram >> _BITS * first
    return first.to_bytes(2, "little") + counts.to_bytes((counts.bit_length() + 7) // 8, "little")


def decode(stored: bytes) -> Histogram:
    """Returns a histogram from its stored form."""
    return int.from_bytes(stored[2:], "little") << _BITS * int.from_bytes(stored[:2], "little")


def percentiles(histogram: Histogram) -> list[float | None]:
    """Returns p50, p95 and p99 in seconds; None where there is none."""
    size = (histogram.bit_length() + _BITS - 1) // _BITS * _BYTES
    text = histogram.to_bytes(size, "little")
    counts = [int.from_bytes(text[at : at + _BYTES], "little") for at in range(0, size, _BYTES)]
    ranks = [share * sum(counts) for share in SHARES]
    found: list[float | None] = []
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        while count and len(found) < len(ranks) and seen >= ranks[len(found)]:
            found.append(float(f"{2 ** ((bucket + _FIRST + 0.5) / _SCALE):.3g}"))
    return found or [None] * len(SHARES)
