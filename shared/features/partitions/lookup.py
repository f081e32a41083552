"""Finds the partition of a task, a batch or a bulk action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from firmq.shared.domain.store_number import store_of_id
from firmq.shared.redis.client import keys_of
from firmq.shared.redis.keys import of_features

if TYPE_CHECKING:
    from redis import Redis

CHUNK = 1000
"""Maximum ids that are looked up in one round trip."""


def locate(task_id: str, partitions: Mapping[int, Redis]) -> int | None:
    """Returns the number of the partition that an id names, or that has its record; None for neither."""
    return locate_all([task_id], partitions)[0][task_id]


def locate_all(ids: Iterable[str], partitions: Mapping[int, Redis]) -> tuple[dict[str, int | None], list[int]]:
    """Returns the same for many ids, and the numbers of the partitions that did not answer.

    An id that names none was made by the first partition, by a schedule, of an RQ job or of a row of an outbox.
    """
    named = {each: store_of_id(each) for each in ids}
    found = {each: number if number in partitions else None for each, number in named.items()}
    lost = list[int]()
    for number, redis in partitions.items():
        left = iter([each for each, place in found.items() if place is None])
        try:
            while chunk := list(islice(left, CHUNK)):
                found.update(dict.fromkeys(_held(redis, chunk), number))
        except (RedisError, OSError):
            lost.append(number)
    return found, lost


def _held(redis: Redis, ids: list[str]) -> list[str]:
    keys = keys_of(redis)
    kinds = (keys.rq_job, keys.deleted, keys.batch)
    features = of_features(keys)
    with redis.pipeline(transaction=False) as pipeline:
        for each in ids:
            pipeline.exists(*(key(each) for key in kinds), *(key for own in features for key in own.of_id(each)))
        return [each for each, count in zip(ids, pipeline.execute(), strict=True) if count]
