"""Partitions: the Redis servers of one system, and to which of them a task belongs.

Every partition holds a complete store. The number of a partition is its place in REDIS_PARTITIONS, and the ids that are
made in it end with its mark: none for the first one, so that a system which grows from one server keeps all of its ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from firmq.shared.domain.task import ALPHABET, in_base32

MOST_PARTITIONS = 1024
_MARKED = re.compile(rf"(?:[{ALPHABET}]{{26}}|[0-9a-f]{{16}})([{ALPHABET}]{{2}})(?=-|$)")
"""A ULID or the id of a bulk action with a mark behind it; ids that are derived from it continue after a hyphen."""
_BULK_ACTION = re.compile(rf"([0-9a-f]{{16}})(?:[{ALPHABET}]{{2}})?")


def mark_of_partition(number: int) -> str:
    """Returns what the ids of a partition end with: two characters, or nothing for the first one."""
    return in_base32(number, 10) if number else ""


def partition_of_id(said: str) -> int | None:
    """Returns the number of the partition that an id names, or None for one that names none.

    Such a task was made by the first partition, by a schedule, or of an RQ job.
    """
    found = _MARKED.match(said)
    if found is None:
        return None
    return ALPHABET.index(found[1][0]) << 5 | ALPHABET.index(found[1][1])


def sibling(action_id: str, mark: str) -> str:
    """Returns the id that a bulk action over several partitions has in the one with this mark.

    The ids of one action differ in their marks only. What is not the id of a bulk action is returned as it is.
    """
    found = _BULK_ACTION.fullmatch(action_id)
    return found[1] + mark if found else action_id


def split(amount: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Returns the share of each partition of a rate or a number of tasks, by its weight and at least 1.

    The shares add up to `amount`, or to one for each partition when that is more.
    """
    total, left, shares = sum(weights.values()), amount, dict[int, int]()
    for at, number in enumerate(sorted(weights, key=weights.__getitem__), 1):
        others = len(weights) - at
        share = round(left * weights[number] / total) if total else left // (others + 1)
        shares[number] = max(1, min(share, left - others))
        left, total = left - shares[number], total - weights[number]
    return shares


def not_answering(numbers: Iterable[int]) -> str:
    """Returns a clause that says which partitions do not answer."""
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
