"""Large data of direct submissions, and large results that programs read directly."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq import Unavailable, new_task
from tests.integration.submission.conftest import MakeQueue
from tests.support.harness import running_system
from tests.support.keys import keys

LARGE = "x" * 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "payloads"
    made.mkdir()
    return made


@pytest.fixture
def queue(make_queue: MakeQueue, folder: Path) -> Any:
    return make_queue(payload_store=f"file://{folder}", payload_threshold=1024, patience=0.2)


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k"}, {"unique_key": "u"}, {"delay": 60}])
def test_every_kind_of_submission_writes_the_payload(queue: Any, redis_client: Redis, options: Any) -> None:
    task = queue.submit("process", LARGE, **options)
    assert redis_client.hstrlen(keys.rq_job(task.task_id), "data") < 300
    assert queue.get(task.task_id).data == LARGE


def test_many_submissions_write_payloads(queue: Any, folder: Path) -> None:
    tasks = [new_task("process", each) for each in (1, LARGE, [LARGE])]
    found = [queue.get(each.task_id).data for each in queue.submit_many(tasks)]
    assert found == [1, LARGE, [LARGE]]
    assert sum(each.is_file() for each in folder.rglob("*")) == 2


def test_a_store_that_is_away_is_tried_again_and_then_refused(queue: Any, folder: Path, redis_client: Redis) -> None:
    folder.rename(folder.with_name("away"))
    with pytest.raises(Unavailable, match="is mounted") as refused:
        queue.submit("process", LARGE)
    assert refused.value.type == "/problems/payload-store-unavailable"
    [outcome] = queue.submit_many([new_task("process", LARGE)])
    assert isinstance(outcome, Unavailable)
    assert redis_client.zcard(keys.TASKS) == 0
    assert queue.submit("process", "small").status == "pending"


def test_a_submission_waits_for_the_store_to_return(make_queue: MakeQueue, folder: Path) -> None:
    queue = make_queue(payload_store=f"file://{folder}", payload_threshold=1024, patience=20)
    away = folder.rename(folder.with_name("away"))
    threading.Timer(0.3, lambda: away.rename(folder)).start()
    assert queue.get(queue.submit("process", LARGE).task_id).data == LARGE


def test_a_large_result_is_read_directly(queue: Any, redis_client: Redis, redis_url: str, folder: Path) -> None:
    settings = {"PAYLOAD_STORE": f"file://{folder}", "PAYLOAD_THRESHOLD": "1024"}
    with running_system(redis_client, redis_url, folder.parent, **settings) as system:
        system.start_worker()
        task = queue.submit("echo", [LARGE, 1])
        assert queue.result(task.task_id, timeout=60) == [LARGE, 1]
