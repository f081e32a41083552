"""Many tasks are submitted in few round trips, each accepted or refused by itself."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from redis import Redis

from firmq import Accepted, Problem, new_task
from firmq.shared.redis.client import text
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.integration.submission.conftest import NOWHERE, TYPES, MakeQueue, stored
from tests.support.keys import keys
from tests.support.relay import SpanForwarder


def test_tasks_are_stored_in_their_order(queue: Any, redis_client: Redis) -> None:
    outcomes = queue.submit_many([new_task("process", n, tags=["many"] if n % 2 else []) for n in range(600)])
    assert [type(each) for each in outcomes] == [Accepted] * 600
    assert [queue.get(outcomes[n].task_id).data for n in (0, 251, 599)] == [0, 251, 599]
    listed = map(text, redis_client.lrange(keys.rq_queue("normal"), 0, -1))
    assert [*listed] == [each.task_id for each in outcomes]


def test_each_is_accepted_or_refused_by_itself(make_queue: MakeQueue, redis_client: Redis) -> None:
    queue = make_queue(max_body_bytes=1024)
    first, twice, unknown, invalid, large, missing, last = queue.submit_many(
        [
            new_task("process", 1, unique_key="u"),
            new_task("process", 2, unique_key="u"),
            new_task("proces", 3),
            new_task("resize", {"sizes": ["large"]}, priority="urgent"),
            new_task("process", "x" * 2000),
            new_task("process", 4, depends_on=["0" * 26]),
            new_task("process", 5, limit_key="tenant", delay=60),
        ]
    )
    assert (first.status, last.status) == ("pending", "scheduled")
    refused = [twice, unknown, invalid, large, missing]
    assert [each.status for each in refused] == [409, 422, 422, 413, 422]
    assert twice.document["existing_task"] == first.task_id
    assert [error["field"] for error in invalid.errors] == ["priority"]
    assert stored(redis_client) == 2


def test_a_type_without_a_worker_or_a_usable_schema_holds_up_no_other(
    make_queue: MakeQueue, redis_client: Redis
) -> None:
    away_since = (time.time() - 500) * 1_000_000
    redis_client.zadd(keys.TYPE_SETS, dict.fromkeys(map(text, redis_client.zrange(keys.TYPE_SETS, 0, -1)), away_since))
    broken = TaskType(name="broken", schema={"type": "string", "pattern": "("})
    TaskTypes(redis_client).publish([TYPES[0], broken])
    queue = make_queue(refuse_without_worker=True)
    first, away, unusable, last = queue.submit_many(
        [
            new_task("process", 1),
            new_task("resize", {"url": "u"}),
            new_task("broken", "a"),
            new_task("process", 2),
        ]
    )
    assert (first.status, last.status) == ("pending", "pending")
    assert [away.type, unusable.type] == ["/problems/no-worker", "/problems/no-task-types"]
    assert stored(redis_client) == 2


def test_a_full_queue_refuses_what_does_not_fit(make_queue: MakeQueue, redis_client: Redis) -> None:
    outcomes = make_queue(max_queue_length=3).submit_many([new_task("process", n) for n in range(5)])
    assert [getattr(each, "type", "") for each in outcomes[3:]] == ["/problems/queue-full"] * 2
    assert stored(redis_client) == 3


def test_a_lost_answer_makes_no_task_twice(make_queue: MakeQueue, relay: SpanForwarder, redis_client: Redis) -> None:
    queue = make_queue(relay.url, patience=20)
    queue.submit("process", 0)
    relay.swallow = 1
    threading.Timer(0.3, relay.heal).start()
    outcomes = queue.submit_many([new_task("process", n) for n in range(300)])
    assert relay.swallow == 0, "an answer was lost"
    assert all(isinstance(each, Accepted) for each in outcomes)
    assert stored(redis_client) == 301


def test_without_redis_each_has_the_problem(make_queue: MakeQueue) -> None:
    outcomes = make_queue(NOWHERE, patience=0.1).submit_many([new_task("process", n) for n in range(300)])
    assert len(outcomes) == 300
    assert {isinstance(each, Problem) and each.type for each in outcomes} == {"/problems/store-unavailable"}


@pytest.mark.parametrize(
    ("task", "error"), [("process", TypeError), ({"data": 1}, TypeError), (new_task("process", {1, 2}), TypeError)]
)
def test_what_is_not_a_task_stops_all(queue: Any, redis_client: Redis, task: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        queue.submit_many([new_task("process", 1), task])
    assert stored(redis_client) == 0


def test_a_server_that_lost_its_scripts_gets_them_again(queue: Any, redis_client: Redis) -> None:
    redis_client.script_flush()
    assert len(queue.submit_many([new_task("process", n) for n in range(20)])) == 20
    assert stored(redis_client) == 20
