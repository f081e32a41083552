"""Partitions: the Redis servers of one system, and the partition of a task.

Every partition holds a complete store. The number of a partition is its place in REDIS_PARTITIONS, and the ids that are
made in it end with its mark: none for the first one, so that a system which grows from one server keeps all of its ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from firmq.shared.domain.task import ALPHABET, in_base32

MOST_PARTITIONS = 1024
_MARKED = re.compile(rf"(?:[{ALPHABET}]{{26}}|[0-9a-f]{{16}})([{ALPHABET}]{{2}})(?=-|$)")
"""A ULID or the id of a bulk action, followed by a mark; ids derived from it continue after a hyphen."""


def mark_of_partition(number: int) -> str:
    """Returns the id suffix of a partition: two characters, or nothing for the first one."""
    return in_base32(number, 10) if number else ""


def partition_of_id(said: str) -> int | None:
    """Returns the number of the partition that an id names, or None for one that names none.

    Such a task was made by the first partition, by a schedule, or of an RQ job.
    """
    found = _MARKED.match(said)
    if found is None:
        return None
    return ALPHABET.index(found[1][0]) << 5 | ALPHABET.index(found[1][1])


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
