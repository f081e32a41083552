"""Tasks that Redis has forgotten are found in the history, in the same form: by id, in lists, and on their pages."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.dashboard.app import create_app as create_dashboard
from firmq.dashboard.auth.users import Users
from firmq.gateway.app import create_app as create_gateway
from firmq.shared.config.settings import Settings
from firmq.shared.domain import task_data
from firmq.shared.domain.search import parse_data
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import HistoryUnavailable, TaskNotFound
from firmq.shared.features.history import reading
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.reading import History, has_data
from firmq.shared.features.history.records import LATEST, AllRecords
from firmq.shared.redis.client import connect
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import purge
from firmq.shared.stores.tasks import Filter, filter_of
from tests.features.history.conftest import Archive
from tests.support.attempt_ends import ended, report
from tests.support.data_fields import CASES
from tests.support.keys import keys

COMPLETED = Filter(state=TaskState.COMPLETED)


@pytest.fixture
def history(archive: Archive) -> Iterator[History]:
    archive.feed()
    archive.feeder.store([])
    made = History(Database(archive.url, 10))
    yield made
    made.database.engine.dispose()


@pytest.fixture
def records(archive: Archive, history: History) -> AllRecords:
    return AllRecords(archive.store.records, history)


def end_in_turn(archive: Archive, count: int, **options: Any) -> list[str]:
    """Tasks that ended one second after the other; their ids, the last one first."""
    ids = []
    for _ in range(count):
        ids += archive.end(**options)
        archive.store.clock.advance(timedelta(seconds=1))
    return ids[::-1]


def forget(archive: Archive, count: int) -> None:
    archive.feed()
    assert maintenance.prune(archive.store.scripts, "completed", 0, count).removed == count


def all_pages(records: AllRecords, wanted: Filter, limit: int) -> list[str]:
    ids, cursor = [], None
    while True:
        page = records.page(wanted, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        ids += [each.id for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


@pytest.mark.parametrize("wanted", [{"deleted": True}, {"bulk": "b1"}])
def test_filters_that_the_history_cannot_apply_end_with_redis(
    archive: Archive, records: AllRecords, wanted: dict[str, Any]
) -> None:
    end_in_turn(archive, 2)
    forget(archive, 2)
    assert all_pages(records, COMPLETED, 5)
    assert all_pages(records, replace(COMPLETED, **wanted), 5) == []


def test_a_forgotten_task_is_shown_as_it_was(archive: Archive, records: AllRecords) -> None:
    [task] = archive.end(tags=("red",), meta={"traceparent": "x"})
    before = records.get(task)
    assert not before.summary.archived
    forget(archive, 1)
    assert records.get(task) == replace(before, summary=replace(before.summary, archived=True))
    assert records.state(task) is TaskState.COMPLETED
    assert records.read_many([task, "unknown"])[task].detail.summary.archived
    with pytest.raises(TaskNotFound):
        records.get("unknown")


def test_a_list_holds_few_records_in_memory(archive: Archive, records: AllRecords) -> None:
    for _ in range(24):
        archive.end(meta={"traceparent": "x" * 1_000_000})
    forget(archive, 24)
    for wanted in (COMPLETED, replace(COMPLETED, error="none has one"), replace(COMPLETED, submitted_by="ann")):
        tracemalloc.start()
        all_pages(records, wanted, 50)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 << 20, "the records have 24 MB"


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_a_list_of_a_final_state_goes_on_into_the_history(archive: Archive, records: AllRecords, limit: int) -> None:
    ids = end_in_turn(archive, 5)
    forget(archive, 2)
    archive.end("failed")
    assert all_pages(records, COMPLETED, limit) == ids
    assert [each.archived for each in records.page(COMPLETED, limit=9).items] == [False] * 3 + [True] * 2


def test_tasks_that_ended_in_the_same_instant_are_each_listed_once(archive: Archive, records: AllRecords) -> None:
    ids = sorted(archive.end(count=7), reverse=True)
    forget(archive, 7)
    assert all_pages(records, COMPLETED, 2) == ids


def test_filters_hold_in_the_history(archive: Archive, records: AllRecords) -> None:
    tagged = end_in_turn(archive, 2, tags=("red", "big"))
    high = end_in_turn(archive, 3, queue="high", score=0.5)
    plain = end_in_turn(archive, 2)
    forget(archive, 7)
    detail = records.get(high[1]).summary
    for wanted, expected in (
        (replace(COMPLETED, tag="red"), tagged),
        (replace(COMPLETED, queue="high"), high),
        (replace(COMPLETED, type="noop"), plain + high + tagged),
        (replace(COMPLETED, type="other"), []),
        (replace(COMPLETED, max_score=1), high),
        (replace(COMPLETED, min_score=0.5, max_score=0.5), high),
        (replace(COMPLETED, max_score=0), []),
        (replace(COMPLETED, min_score=1), plain + tagged),
        (replace(COMPLETED, tag="red", type="other"), []),
        (replace(COMPLETED, since=detail.ended_at), plain + high[:2]),
        (replace(COMPLETED, until=detail.ended_at), high[1:] + tagged),
        (replace(COMPLETED, type="a\0b"), []),
        (Filter(state=TaskState.FAILED), []),
    ):
        assert all_pages(records, wanted, 2) == expected, wanted


def test_lists_of_waiting_tasks_and_of_dead_letters_of_a_cause_do_not_go_on(
    archive: Archive, records: AllRecords
) -> None:
    archive.end("failed")
    archive.feed()
    purge(archive.store.scripts, "failed", [each.id for each in records.page(Filter(), limit=9).items])
    assert records.page(Filter(), limit=9).items == ()
    assert records.page(Filter(state=TaskState.FAILED, cause="x"), limit=9).items == ()
    assert len(records.page(Filter(state=TaskState.FAILED), limit=9).items) == 1
    with pytest.raises(ValueError, match="cursor"):
        records.page(Filter(), limit=9, cursor="h1_")


@pytest.mark.parametrize("cursor", ["h", "hx_y", "h1", "h1_a b", "h99999999999999999999_a"])
def test_a_bad_cursor_is_refused(records: AllRecords, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        records.page(COMPLETED, limit=9, cursor=cursor)


def test_what_redis_has_is_shown_while_the_database_is_away(archive: Archive) -> None:
    away = AllRecords(archive.store.records, History(Database("sqlite:////nowhere/history.db", 1)))
    [task] = archive.end()
    page = away.page(COMPLETED, limit=9)
    assert [each.id for each in page.items] == [task]
    assert page.next_cursor is not None
    with pytest.raises(HistoryUnavailable):
        away.page(COMPLETED, limit=9, cursor=page.next_cursor)
    with pytest.raises(HistoryUnavailable):
        away.get("unknown")


def test_a_database_that_hangs_costs_a_bounded_time_and_number_of_threads(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/history.db", 0.05)
    for _ in range(6):
        with pytest.raises(HistoryUnavailable):
            database.run(lambda connection: time.sleep(1))


@pytest.fixture
def settings(archive: Archive) -> Settings:
    return Settings.model_validate({"history_url": archive.url, "queues": {"high": 4, "normal": 3}})


def test_the_api_shows_forgotten_tasks(archive: Archive, settings: Settings, redis_url: str) -> None:
    ids = end_in_turn(archive, 3)
    forget(archive, 2)
    with connect(redis_url) as redis:
        http = create_gateway(settings, redis).test_client()
        task = http.get(f"/tasks/{ids[2]}").json
        assert task is not None
        assert (task["task_id"], task["status"], task["archived"]) == (ids[2], "completed", True)
        assert http.get(f"/tasks/{ids[0]}").json["archived"] is False  # type: ignore[index]  # it is JSON
        assert http.get(f"/tasks/{ids[2]}/result").json == {
            "task_id": ids[2],
            "status": "completed",
            "result": None,
            "error": None,
        }
        assert http.get("/tasks/unknown").status_code == 404
        first = http.get("/tasks?status=completed&limit=2").json
        assert first is not None
        rest = http.get(f"/tasks?status=completed&limit=2&cursor={first['next_cursor']}").json
        assert rest is not None
        assert [each["task_id"] for each in (*first["items"], *rest["items"])] == ids


def test_the_api_says_that_the_history_is_away(archive: Archive, redis_url: str) -> None:
    archive.end()
    with connect(redis_url) as redis:
        http = create_gateway(
            Settings.model_validate({"history_url": "sqlite:////nowhere/history.db"}), redis
        ).test_client()
        assert len(http.get("/tasks?status=completed").json["items"]) == 1  # type: ignore[index]  # it is JSON
        answer = http.get("/tasks/unknown")
        assert answer.status_code == 503
        assert "history" in answer.json["detail"]  # type: ignore[index]  # it is JSON


def test_the_dashboard_shows_forgotten_tasks(
    archive: Archive, settings: Settings, redis_client: Redis, redis_url: str
) -> None:
    [task] = archive.end("failed")
    archive.feed()
    purge(archive.store.scripts, "failed", [task])
    with connect(redis_url) as redis:
        http = create_dashboard(settings, redis, Users.load_or_exit(settings)).test_client()
        page = http.get(f"/tasks/{task}").text
        assert "archived" in page
        assert "Edit and retry" not in page
        assert task in http.get("/tasks?status=failed").text
        assert http.get("/dead-letters").status_code == 200


def test_a_list_by_tag_reads_no_more_of_the_tables_than_it_examines() -> None:
    """PostgreSQL misjudges the join of ten million rows, and would read all of them first."""
    query = str(reading._indexed(Filter(state=TaskState.COMPLETED, tag="eu"), (LATEST, ""), 2000))
    assert query.index("LIMIT") < query.index(") AS ") < query.index(" ON ")


def test_searches_hold_in_the_history(archive: Archive, records: AllRecords) -> None:
    [failed] = archive.end("failed", submitted_by="alice")
    archive.store.clock.advance(timedelta(hours=2))
    [late] = archive.end("failed")
    store = archive.store
    [other] = store.submit()
    store.claim(token="t2")
    attempt = '{"worker":"w-2","outcome":"failed","app_version":"1.42"}'
    error = '{"type":"Declined","message":"Card 7"}'
    report(store.scripts, ended(other, "t2", "failed", attempt, error=error), worker="w-2")
    cause = store.redis.hget(keys.FAILURE_GROUP_OF, other).decode()  # type: ignore[union-attr]
    archive.feed()
    assert maintenance.prune(store.scripts, "failed", 0, 9).removed == 3
    for search, expected in (
        ("", [other, late, failed]),
        ("age>1h", [failed]),
        ("age<1h", [other, late]),
        ('error:"CARD 7"', [other]),
        ("worker:w-2 version:1.42", [other]),
        ("worker:w-3", []),
        (f"cause:{cause}", [other]),
        (f"cause:{cause[::-1]}", []),
        (failed[:-1], [failed]),
        (failed[-9:], [failed]),
        ("by:alice", [failed]),
    ):
        wanted = replace(filter_of({}, search), state=TaskState.FAILED)
        assert sorted(all_pages(records, wanted, 2)) == sorted(expected), search


@pytest.mark.parametrize(("data", "word", "matches"), CASES)
def test_data_compares_in_the_history_as_in_redis(data: str, word: str, matches: bool) -> None:
    stored = task_data.encode("noop", data).encode()
    assert has_data("noop", {"data": stored}, Filter(data=parse_data(word))) is matches


def test_data_that_cannot_be_read_matches_nothing() -> None:
    wanted = Filter(data=parse_data("n:1"))
    for stored in (b"", b"x", b'["firmq.rq.refuse",null,["noop",{"n"],{}]'):
        assert not has_data("noop", {"data": stored}, wanted)
    assert not has_data("noop", {}, wanted)
