"""The search in Redis: by id, error, worker, version, age and data, in lists and counts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain.search import parse_data
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.tasks import LOOK_AT, filter_of
from tests.support.attempt_ends import ENDS, ended, report
from tests.support.data_fields import CASES
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.store import Store

S = TaskState


def submit(store: Store, data: str = "null", task_type: str = "noop", **options: Any) -> str:
    task = NewTask(id=new_task_id(), type=task_type, data=data, queue="normal", **options)
    store.queues.submit([task])
    return task.id


def end(
    store: Store, task_id: str, outcome: str = "failed", *, worker: str = "w-1", version: str = "1.41", **error: str
) -> str:
    """Ends a pending task as this worker would do it."""
    token = f"of-{task_id}"
    assert store.claim(token=token, worker=worker) == [task_id]
    about_attempt = {"worker": worker, "outcome": ENDS[outcome][0], "app_version": version}
    attempt = json.dumps(about_attempt, separators=(",", ":"))
    about = None if outcome == "completed" else json.dumps({"type": "Declined", "message": "no", **error})
    assert report(store.scripts, ended(task_id, token, outcome, attempt, error=about), worker=worker) == [1]
    return task_id


def found(store: Store, search: str, **fields: Any) -> list[str]:
    wanted, ids, cursor = filter_of(fields, search), [], None
    while True:
        page = store.records.page(wanted, limit=50, cursor=cursor)
        ids += [each.id for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


def counted(store: Store, search: str) -> set[int]:
    """How many tasks each feature that counts them finds."""
    return {count(store, search) for count in rows("COUNTS")}


@pytest.mark.parametrize(("data", "word", "matches"), CASES)
def test_data_compares_as_json(store: Store, data: str, word: str, matches: bool) -> None:
    task = submit(store, data)
    assert found(store, "", data=parse_data(word)) == ([task] if matches else [])
    assert counted(store, f"data.{word}") <= {int(matches)}


def test_data_that_is_no_json_matches_nothing(store: Store) -> None:
    head = '["firmq.rq.refuse",null,["noop",'
    for stored in (
        "",
        "x",
        head,
        *(head + part for part in ("{", '{"n', '{"n"', '{"n":', '{"n":[', '{"n":[1', '{"n":"')),
    ):
        task = submit(store)
        store.redis.hset(keys.rq_job(task), "data", stored)
    assert found(store, "data.n:2") == []


def test_a_task_is_found_by_the_beginning_and_the_end_of_its_id(store: Store) -> None:
    tasks = [submit(store) for _ in range(5)]
    for each in tasks:
        assert each in found(store, each[:6])
        assert found(store, each[-8:]) == [each]
        assert found(store, each) == [each]
    assert found(store, f"id:{tasks[0][3:9]}x") == []


def test_a_task_is_found_by_its_error(store: Store) -> None:
    declined = end(store, submit(store), message="Card 7 declined by the bank")
    waits = end(store, submit(store), "retrying", type="Timeout", message="no answer")
    end(store, submit(store), "completed")
    assert found(store, 'error:"card 7 DECLINED"') == found(store, "error:declined:") == [declined]
    assert found(store, 'error:"timeout: no"') == found(store, "state:retrying error:answer") == [waits]
    assert found(store, "error:other") == []
    cause = text(store.redis.hget(keys.FAILURE_GROUP_OF, declined) or b"")
    assert found(store, f"cause:{cause}") == found(store, f"cause:{cause} error:bank") == [declined]
    assert found(store, f"cause:{cause} error:other") == []


def test_a_task_is_found_by_the_worker_and_version_of_its_last_attempt(store: Store) -> None:
    old, new = end(store, submit(store)), end(store, submit(store), worker="w-2", version="1.42")
    again = end(store, submit(store), "retrying")
    store.clock.advance(timedelta(seconds=1))
    maintenance.promote(store.scripts, "normal", 10)
    assert found(store, "worker:w-1") == [again, old]
    assert found(store, "version:1.42") == found(store, "worker:w-2 version:1.42") == [new]
    assert found(store, "worker:w-1 version:1.42") == found(store, "worker:w") == []


def test_a_running_task_has_the_worker_and_version_that_run_it(store: Store) -> None:
    [task] = [submit(store)]
    store.claim(worker="w-1")
    store.redis.hset(keys.rq_job(task), "worker_name", "w-1")
    assert found(store, "worker:w-1") == [task]
    assert found(store, "version:1.42") == []
    store.redis.set(keys.worker("w-1"), json.dumps({"app_version": "1.42"}))
    assert found(store, "version:1.42") == [task]
    store.redis.delete(keys.worker("w-1"))
    store.redis.sadd(keys.worker("w-1"), "another type")
    assert found(store, "version:1.42") == []


def test_a_task_is_found_by_its_age(store: Store) -> None:
    old = submit(store)
    store.clock.advance(timedelta(hours=2))
    new = submit(store)
    assert found(store, "age>1h") == [old]
    assert found(store, "age<1h") == [new]
    assert found(store, "age>1h age<90m") == []
    assert counted(store, "age>1h") <= {1}


def test_a_page_that_reads_much_data_examines_fewer_tasks(store: Store) -> None:
    large = json.dumps({"text": "x" * 400_000, "n": 1})
    tasks = [submit(store, large) for _ in range(20)]
    page = store.records.page(filter_of({}, "data.n:2"), limit=50)
    assert page.items == ()
    assert page.next_cursor is not None
    assert sorted(found(store, "data.n:1")) == sorted(tasks)
    assert counted(store, "data.n:1") <= {20}


def test_each_name_of_a_path_counts_as_a_scan_of_the_data(store: Store) -> None:
    words = "data.a.a.a.a.a.a.a.a:1 data.a.a.a.a.a.a.a.b:1"
    deep = '{"a":' * 8 + json.dumps("x" * 20_000) + "}" * 8
    for _ in range(10):
        submit(store, deep)
    page = store.records.page(filter_of({}, words), limit=50)
    assert page.items == ()
    assert page.next_cursor is not None
    assert found(store, words) == []


def test_each_page_examines_a_bounded_number_of_tasks(store: Store) -> None:
    store.submit(LOOK_AT)
    page = store.records.page(filter_of({}, "error:x"), limit=50)
    assert page.items == ()
    assert page.next_cursor is not None


def test_corrupt_records_match_no_search(store: Store) -> None:
    [broken, other] = [submit(store), submit(store)]
    store.redis.delete(keys.rq_job(broken), keys.rq_job(other))
    store.redis.set(keys.rq_job(other), "no hash")
    assert len(found(store, "")) == 2
    assert found(store, "age<1h") == []
    assert counted(store, "age<1h") <= {0}


def test_deleted_tasks_are_searched_too(store: Store) -> None:
    task = end(store, submit(store, '{"customer": 42}'))
    DeadLetters(store.scripts, store.records, kept=timedelta(days=1)).purge(task)
    assert found(store, "deleted:yes data.customer:42 error:no") == [task]
    assert found(store, "deleted:yes data.customer:43") == []
    assert found(store, "data.customer:42") == []
    assert counted(store, "deleted:yes data.customer:42") <= {1}
