"""Which partition a name prefers: each name has a home, which every process computes for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def not_answering(numbers: Iterable[int]) -> str:
    """Returns a clause that names the unreachable partitions."""
    *others, last = map(str, numbers)
    return f"partitions {', '.join(others)} and {last} do not answer" if others else f"partition {last} does not answer"


def preferred(name: str, numbers: Iterable[int]) -> list[int]:
    """Returns partitions in the order in which a name prefers them, by rendezvous hashing.

    Where a partition is added, a share of the names that is proportional to it prefers the new one; the others keep
    theirs.
    """

    def weight(number: int) -> bytes:
        return hashlib.sha256(f"{number}:{name}".encode(errors="surrogatepass")).digest()

    return sorted(numbers, key=weight, reverse=True)
