"""Direct submission on a real Redis that fails, beside threads and forks, and with workers that run the tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq import AsyncQueue, Conflict, NotFound, NotInTime, Queue, TaskFailed, Unavailable
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.keys import with_prefix
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.task_types import TaskTypes
from firmq.worker.handlers import default_client
from tests.integration.submission.conftest import NOWHERE, TYPES, MakeQueue, stored
from tests.support.figures import judge_since
from tests.support.harness import running_system, wait_until
from tests.support.relay import SpanForwarder


def test_a_lost_answer_makes_no_second_task(make_queue: MakeQueue, relay: SpanForwarder, redis_client: Redis) -> None:
    queue = make_queue(relay.url)
    first = queue.submit("process", 0)
    for options in ({}, {"idempotency_key": "k"}, {"unique_key": "u"}, {"tags": ["t"], "limit_key": "l"}):
        before = stored(redis_client)
        relay.swallow = 1
        again = queue.submit("process", 1, **options)
        assert relay.swallow == 0, "an answer was lost"
        assert again.status == "pending"
        assert not again.existing
        assert stored(redis_client) == before + 1
        relay.heal()
    assert queue.get(first.task_id).data == 0


def test_redis_that_does_not_answer_is_unavailable(make_queue: MakeQueue) -> None:
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="Redis does not answer") as refused:
        make_queue(NOWHERE, patience=0.2).submit("process", 1)
    assert refused.value.type == "/problems/store-unavailable"
    judge_since("a submission without Redis", begun, 5)


def test_a_submission_waits_for_redis_to_return(
    make_queue: MakeQueue, relay: SpanForwarder, redis_client: Redis
) -> None:
    queue = make_queue(relay.url, patience=20)
    queue.submit("process", 1)
    relay.refusing = True
    threading.Timer(0.3, relay.heal).start()
    assert queue.submit("process", 2).status == "pending"
    assert stored(redis_client) == 2


def test_a_bound_of_connections_is_enough_for_every_call(make_queue: MakeQueue, redis_client: Redis) -> None:
    queue = make_queue(redis_max_connections=1, type_cache_time=0, patience=20)
    ids = [queue.submit("process", number).task_id for number in range(3)]
    assert [queue.get(each).data for each in ids] == [0, 1, 2]
    assert queue.cancel(ids[0]).status == "cancelled"


def test_connections_that_were_cut_while_idle_cost_one_try_together(submitter_url: str, redis_client: Redis) -> None:
    pauses: list[float] = []
    with Queue(submitter_url, sleep=pauses.append) as queue:
        submission = queue.submissions.free()
        held = [submission.redis.connection_pool.get_connection() for _ in range(10)]
        submission.scripts._idle.extend(held)
        task = queue.submit("process", 1)
        for act in (lambda: queue.submit("process", 2), lambda: queue.cancel(task.task_id)):
            redis_client.client_kill_filter(_type="normal", skipme=True)
            act()
    assert len(pauses) == 2
    assert stored(redis_client) == 2


def test_a_server_that_lost_its_scripts_gets_them_again(queue: Any, redis_client: Redis) -> None:
    queue.submit("process", 1)
    redis_client.script_flush()
    assert queue.submit("process", 2).status == "pending"
    assert stored(redis_client) == 2


def test_a_wait_ends_in_time(queue: Any) -> None:
    task = queue.submit("process", 1)
    with pytest.raises(NotInTime, match=r"has not ended within 0\.05 s: it is pending"):
        queue.result(task.task_id, timeout=0.05)
    with pytest.raises(NotFound):
        queue.get("none-such")


def test_a_cancellation_is_on_record(queue: Any, redis_client: Redis) -> None:
    task = queue.submit("process", 1)
    assert queue.cancel(task.task_id, "not needed").status == "cancelled"
    with pytest.raises(NotFound):
        queue.cancel("none-such")
    [entry], _ = Audit(redis_client).page(10)
    assert (entry.who, entry.what, entry.about, entry.detail) == (
        "direct submission",
        "cancelled",
        task.task_id,
        "not needed",
    )


def test_threads_share_a_queue(submitter_url: str, redis_client: Redis) -> None:
    with Queue(submitter_url) as queue, ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(lambda number: queue.submit("process", number).task_id, range(400)))
        shown = [queue.get(task_id).data for task_id in ids]
    assert shown == list(range(400)), "no thread got the answer of another"
    assert stored(redis_client) == 400


def test_a_fork_has_connections_of_its_own(submitter_url: str, redis_client: Redis) -> None:
    with Queue(submitter_url) as queue:
        queue.submit("process", -1)
        children = [_fork(queue, number) for number in range(3)]
        for number in range(100):
            queue.submit("process", number)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert stored(redis_client) == 1 + 4 * 100


def _fork(queue: Queue, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        ids = {queue.submit("process", [number, each]).task_id for each in range(100)}
        os._exit(0 if len(ids) == 100 else 1)
    except BaseException:
        os._exit(2)


async def _submit_many(queue: AsyncQueue, count: int) -> Counter[str]:
    import asyncio

    answers = await asyncio.gather(*(queue.submit("process", number) for number in range(count)))
    cancelled = asyncio.ensure_future(queue.submit("process", "cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await queue.submit("process", "the next")).status == "pending"
    return Counter(answer.task_id for answer in answers)


def test_submissions_in_flight_share_round_trips(submitter_url: str, redis_client: Redis) -> None:
    import asyncio

    async def run() -> Counter[str]:
        async with AsyncQueue(submitter_url) as queue:
            await queue.submit("process", 0)
            redis_client.config_resetstat()
            return await _submit_many(queue, 500)

    ids = asyncio.run(run())
    assert set(ids.values()) == {1}
    assert len(ids) == 500
    assert redis_client.info("stats")["total_reads_processed"] < 100


def test_event_loops_that_end_leave_no_threads_and_connections(
    submitter_url: str, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setenv("FIRMQ_URL", submitter_url)
    monkeypatch.setattr(default_client, "_of_loop", {})

    async def submit(number: int) -> None:
        await default_client.client_for_asyncio(None).submit("process", number)

    def used() -> tuple[int, int]:
        return threading.active_count(), len(redis_client.client_list())

    asyncio.run(submit(0))
    before = used()
    for number in range(5):
        asyncio.run(submit(number))
    wait_until(lambda: all(now <= then for now, then in zip(used(), before, strict=True)), "all have ended")
    assert stored(redis_client) == 6
    [[queue]] = [clients.values() for clients in default_client._of_loop.values()]
    assert isinstance(queue, AsyncQueue)
    asyncio.run(queue.close())


def test_a_prefix_separates_systems(redis_server: EmbeddedRedis, redis_client: Redis, make_queue: MakeQueue) -> None:
    shop = with_prefix("shop")
    with connect(f"{redis_server.url}?key_prefix=shop") as client:
        TaskTypes(client).publish(TYPES)
    task = make_queue(redis_server.url, key_prefix="shop").submit("process", 1)
    assert redis_client.zrange(shop.TASKS, 0, -1) == [task.task_id.encode()]
    assert stored(redis_client) == 0


def test_tasks_run_and_their_results_arrive(
    redis_server: EmbeddedRedis, redis_client: Redis, redis_url: str, make_queue: MakeQueue, tmp_path: Path
) -> None:
    with running_system(redis_client, redis_url, tmp_path) as system:
        system.start_worker()
        queue = make_queue()
        task = queue.submit("echo", {"a": [1]}, priority="high")
        assert queue.result(task.task_id, timeout=120) == {"a": [1]}
        detail = queue.get(task.task_id)
        assert (detail.status, detail.attempt, detail.max_retries) == ("completed", 1, 3)
        assert [each.outcome for each in detail.attempts] == ["completed"]
        with pytest.raises(Conflict, match="only a task that has not ended can be cancelled"):
            queue.cancel(task.task_id)
        failing = queue.submit("fail", {"message": "no luck today"}, max_retries=0)
        with pytest.raises(TaskFailed, match="no luck today"):
            queue.result(failing.task_id, timeout=120)


def test_direct_submission_needs_neither_flask_nor_rq_nor_opentelemetry(submitter_url: str) -> None:
    code = f"""
import sys
for name in ("flask", "rq", "opentelemetry", "prometheus_client", "croniter", "yaml"):
    sys.modules[name] = None
from firmq import Queue
with Queue({submitter_url!r}) as queue:
    print(queue.submit("process", 1, delay=5, tags=["a"]).status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "scheduled\n", done.stderr


@pytest.mark.parametrize("settings", [{"redis_urls": "x"}, {"max_queue_length": -1}], ids=str)
def test_an_invalid_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Queue("redis://127.0.0.1", **settings)


def test_an_invalid_setting_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_BODY_BYTES", "many")
    with pytest.raises(ValueError, match="invalid settings in the environment: MAX_BODY_BYTES"):
        Queue("redis://127.0.0.1")


def test_an_invalid_address_is_an_error() -> None:
    with pytest.raises(ValueError, match="must start with redis://"):
        Queue("http://localhost:8000")
