"""A task that is submitted while a key that it goes into is damaged: it stands in line when it is answered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from redis import Redis

from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.idempotency import Idempotency, Request
from firmq.shared.stores.queues import Queues
from tests.support.keys import keys

LISTS = (keys.TASKS, keys.tasks_of_type("noop"), keys.tasks_with_tag("a"))
NOW = (*LISTS, keys.DEADLINES, keys.pending("normal"))
LATER = (*LISTS, keys.scheduled("normal"))
COUNTS = "the counts of this minute"


def damage(redis: Redis, key: str) -> None:
    seconds, _ = redis.time()
    for place in [keys.throughput(seconds // 60 + each) for each in range(2)] if key == COUNTS else [key]:
        redis.set(place, "not what belongs here")


def submit(redis: Redis, task: NewTask, once: bool) -> None:
    scripts = Scripts(redis)
    if once:
        Idempotency(scripts, timedelta(hours=1)).submit(Request.of("", "k", "/tasks", b"{}"), task)
    else:
        Queues(scripts, {"normal": 1}).submit([task])


@pytest.mark.parametrize("once", [False, True], ids=["plainly", "with an Idempotency-Key"])
@pytest.mark.parametrize(
    "key", [*NOW, keys.RQ_QUEUES, keys.rq_queue("normal"), keys.WAKEUP, keys.PARKED_CLAIMS, COUNTS]
)
def test_a_task_stands_in_line_when_it_is_answered(redis_client: Redis, key: str, once: bool) -> None:
    damage(redis_client, key)
    task = NewTask(
        id=new_task_id(), type="noop", data="null", queue="normal", tags=("a",), expires_in=timedelta(hours=1)
    )
    submit(redis_client, task, once)
    assert [each for each in NOW if not redis_client.zscore(each, task.id)] == []
    assert set(redis_client.lrange(keys.rq_queue("normal"), 0, -1)) == {task.id.encode()}


@pytest.mark.parametrize("key", [*LATER, keys.rq_scheduled("normal"), COUNTS])
def test_a_task_for_later_is_known_to_housekeeping_when_it_is_answered(redis_client: Redis, key: str) -> None:
    damage(redis_client, key)
    task = NewTask(id=new_task_id(), type="noop", data="null", queue="normal", tags=("a",), delay=timedelta(hours=1))
    submit(redis_client, task, once=False)
    assert [each for each in LATER if not redis_client.zscore(each, task.id)] == []
