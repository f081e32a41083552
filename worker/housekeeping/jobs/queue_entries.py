"""Finds all tasks of a queue without a queue entry, after its list was deleted or cut short."""

from __future__ import annotations

from collections.abc import Iterator

from redis import Redis

from firmq.shared.redis.client import keys_of, text

PAGE = 1000
MOST = 200_000
"""How many tasks from its front a queue is checked in one run: some 20 MB here, and 400 short reads of Redis."""


def without_entry(redis: Redis, queue: str, whole: bool = False) -> Iterator[list[str]]:
    """Yields pages of pending tasks without a queue entry, each in order, the last page first.

    Yields nothing where the list is as long as the index, unless `whole` is set. Both are in the same order, so the
    front of one holds the entries of the front of the other. Workers take from them meanwhile, and clients add: a task
    found wrongly gets a second entry, which is ignored later.
    """
    keys = keys_of(redis)
    index, lists = keys.pending(queue), (keys.rq_queue(queue), keys.rq_queue(f"{queue}+"))
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zcard(index)
        for entries in lists:
            pipeline.llen(entries)
        waiting, *lengths = pipeline.execute()
    if sum(lengths) >= waiting and not whole:
        return
    reach = waiting if max(lengths) <= MOST else MOST // 2  # stale entries may have moved the others back
    listed = {
        each
        for entries, length in zip(lists, lengths, strict=True)
        for start in _from_the_back(min(length, MOST))
        for each in _entries(redis, entries, start)
    }
    for start in _from_the_back(min(waiting, reach, MOST)):
        page = list(map(text, redis.zrange(index, start, start + PAGE - 1)))
        if lost := [each for each in page if each not in listed]:
            yield lost
            listed.update(lost)


def _from_the_back(length: int) -> Iterator[int]:
    """Yields the starts of pages. Tasks taken from the front meanwhile move the rest into later pages."""
    return reversed(range(0, length, PAGE))


def _entries(redis: Redis, entries: str, start: int) -> Iterator[str]:
    return map(text, redis.lrange(entries, start, start + PAGE - 1))
