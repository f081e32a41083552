"""Tasks that come, start and end one by one under limits."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from firmq.shared.domain.task import NewTask, new_task_id
from firmq.shared.redis.client import text
from tests.support.keys import keys
from tests.support.store import Store

_CLAIMS = itertools.count()


def submit(store: Store, task_type: str = "noop", count: int = 1, queue: str = "normal", **options: Any) -> list[str]:
    tasks = [NewTask(id=new_task_id(), type=task_type, data="null", queue=queue, **options) for _ in range(count)]
    store.queues.submit(tasks)
    store.clock.advance(timedelta(milliseconds=1))
    return [task.id for task in tasks]


def claim(store: Store, want: int = 10) -> list[str]:
    store.clock.advance(timedelta(milliseconds=1))
    return store.claim(want, token=f"c{next(_CLAIMS)}")


def token_of(store: Store, task_id: str) -> str:
    return text(store.redis.hget(keys.rq_job(task_id), "token"))


def end(store: Store, task_id: str, kind: str = "completed", delay: int = 0) -> None:
    assert store.report(task_id, kind, token_of(store, task_id), delay) == 1


def running_under(store: Store, limit: str) -> set[str]:
    return {text(each) for each in store.redis.smembers(keys.slots(limit))}


def waits_aside(store: Store, queue: str = "normal") -> int:
    return int(store.redis.zcard(keys.throttled(queue)))
