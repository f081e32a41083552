"""What a list that somebody deleted or cut short led to: the tasks of a queue that have no ticket, found together."""

from __future__ import annotations

from collections.abc import Iterator

from redis import Redis

from shared.redis import keys
from shared.redis.client import text

PAGE = 1000
MOST = 200_000
"""How far from its front a queue is looked at in one round: some 20 MB here, and 400 short reads of Redis."""


def without_entry(redis: Redis, queue: str, whole: bool = False) -> Iterator[list[str]]:
    """Pages of waiting tasks that nothing in the queue's list leads to, each in order, the last page first.

    Nothing where the list is as long as the index, unless the `whole` is asked for. Both are in the same order, so the
    front of one holds the tickets of the front of the other. Workers take from them meanwhile, and others add: what is
    wrongly found gets a second ticket, which leads nowhere when its turn comes.
    """
    index, entries = keys.pending(queue), keys.rq_queue(queue)
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zcard(index)
        pipeline.llen(entries)
        waiting, length = pipeline.execute()
    if length >= waiting and not whole:
        return
    reach = waiting if length <= MOST else MOST // 2  # tickets that lead nowhere may have moved the others back
    listed = {each for start in _from_the_back(min(length, MOST)) for each in _entries(redis, entries, start)}
    for start in _from_the_back(min(waiting, reach, MOST)):
        page = list(map(text, redis.zrange(index, start, start + PAGE - 1)))
        if lost := [each for each in page if each not in listed]:
            yield lost
            listed.update(lost)


def _from_the_back(length: int) -> Iterator[int]:
    """Where pages begin. What is taken from the front meanwhile moves the rest into pages that are still to come."""
    return reversed(range(0, length, PAGE))


def _entries(redis: Redis, entries: str, start: int) -> Iterator[str]:
    return map(text, redis.lrange(entries, start, start + PAGE - 1))
