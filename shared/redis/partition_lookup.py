"""Finds the partition of a task, a batch or a bulk action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from taskqueue.shared.domain.partition import partition_of_id
from taskqueue.shared.redis.client import keys_of

if TYPE_CHECKING:
    from redis import Redis


def locate(task_id: str, partitions: Mapping[int, Redis]) -> int | None:
    """Returns the number of the partition that an id names, or that has its record; None for neither.

    An id that names none was made by the first partition, by a schedule, of an RQ job or of a row of an outbox. A
    partition that does not answer is left out.
    """
    number = partition_of_id(task_id)
    if number in partitions:
        return number
    for each, redis in partitions.items():
        keys = keys_of(redis)
        try:
            if redis.exists(keys.rq_job(task_id), keys.deleted(task_id), keys.batch(task_id), keys.bulk(task_id)):
                return each
        except (RedisError, OSError):
            continue
    return None
