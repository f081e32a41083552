"""Statistics of a range are the sums of what ended in it, beside those of the range before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis import Redis

from firmq.dashboard.app import create_app as create_dashboard
from firmq.dashboard.auth.users import Users
from firmq.gateway.app import create_app as create_gateway
from firmq.shared.config.settings import Settings
from firmq.shared.domain.histogram import percentiles
from firmq.shared.features.history.analytics import RANGES, Report, Wanted, read_report
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.reading import History
from firmq.shared.redis.client import connect
from firmq.shared.stores import maintenance
from tests.features.history.conftest import Archive
from tests.support import attempt_ends


@pytest.fixture
def history(archive: Archive) -> Iterator[History]:
    archive.feed()
    archive.feeder.store([])
    made = History(Database(archive.url, 10))
    yield made
    made.database.engine.dispose()


def attempt(archive: Archive, ran: float, version: str = "1", queue: str = "normal", state: str = "completed") -> str:
    """One task that waited two seconds and ran so long; its id."""
    [task] = archive.store.submit(queue=queue)
    token = f"of-{task}"
    archive.store.claim(token=token)
    record = (
        f'{{"outcome":"completed","app_version":"{version}","enqueued_at":1000000,"started_at":3000000,'
        f'"ended_at":{3000000 + int(ran * 1e6)}}}'
    )
    error = '{"type":"Boom","message":"at noon","place":"m.f","pattern":"at noon"}' if state == "failed" else None
    attempt_ends.report(archive.store.scripts, attempt_ends.ended(task, token, state, record, error=error))
    return task


def report(archive: Archive, history: History, name: str = "1h", **wanted: str) -> Report:
    archive.feed()
    now = archive.store.scripts.now_us() // 1_000_000
    return read_report(history, Wanted(range=name, until=now, **wanted))


def test_counts_and_percentiles_are_those_of_the_range(archive: Archive, history: History) -> None:
    for _ in range(3):
        attempt(archive, 0.1)
    archive.store.clock.advance(timedelta(minutes=10))
    attempt(archive, 10, "2", "high")
    attempt(archive, 0.5, "2", state="failed")
    found = report(archive, history)
    assert (found.total.counts["completed"], found.total.counts["failed"], found.before.ended) == (4, 1, 0)
    assert found.total.failure_rate == pytest.approx(0.2)
    assert percentiles(found.total.wait) == pytest.approx([2, 2, 2], rel=0.05)
    assert percentiles(found.total.run) == pytest.approx([0.1, 10, 10], rel=0.05)
    assert [point.ended for point in found.points if point.ended] == [3, 2]
    assert {name: each.ended for name, each in found.versions.items()} == {"1": 3, "2": 2}
    assert {name: each.ended for name, each in found.queues.items()} == {"normal": 4, "high": 1}
    assert list(found.types) == ["noop"]
    [cause] = found.causes
    assert (cause.type, cause.error, cause.failed, cause.failed_before) == ("noop", "Boom: at noon", 1, 0)


def test_filters_hold(archive: Archive, history: History) -> None:
    attempt(archive, 1, "1")
    attempt(archive, 1, "2", "high")
    for wanted, ended in (
        ({"version": "2"}, 1),
        ({"queue": "normal"}, 1),
        ({"queue": "normal", "version": "2"}, 0),
        ({"type": "noop"}, 2),
        ({"type": "other"}, 0),
    ):
        assert report(archive, history, **wanted).total.ended == ended, wanted


@pytest.mark.parametrize("name", RANGES)
def test_every_range_compares_with_the_one_before(archive: Archive, history: History, name: str) -> None:
    attempt(archive, 1, state="failed")
    archive.store.clock.advance(timedelta(seconds=RANGES[name].seconds))
    attempt(archive, 1)
    for wanted in ({}, {"type": "noop"}):
        found = report(archive, history, name, **wanted)
        assert (found.total.counts["completed"], found.total.counts["failed"]) == (1, 0)
        assert (found.before.counts["completed"], found.before.counts["failed"]) == (0, 1)
        assert len(found.points) == len(found.points_before)
        assert found.points[-1].ended == found.points_before[-1].ended == 1
        assert found.start_of(len(found.points)) == found.wanted.ends


def test_tasks_that_never_started_have_no_durations(archive: Archive, history: History) -> None:
    archive.store.submit(expires_in=timedelta(seconds=1))
    archive.store.clock.advance(timedelta(seconds=2))
    maintenance.expire(archive.store.scripts, 10)
    found = report(archive, history)
    assert found.total.counts["expired"] == 1
    assert percentiles(found.total.run) == [None] * 3


def test_a_wait_from_an_unknown_time_is_not_counted(archive: Archive, history: History) -> None:
    [task] = archive.store.submit()
    archive.store.claim(token="t")
    record = '{"outcome":"completed","enqueued_at":0,"started_at":1800000000000000,"ended_at":1800000001000000}'
    attempt_ends.report(archive.store.scripts, attempt_ends.ended(task, "t", "completed", record))
    archive.feed()
    found = read_report(history, Wanted(range="1h", until=archive.store.scripts.now_us() // 1_000_000))
    assert percentiles(found.total.wait) == [None] * 3
    assert found.total.counts["completed"] == 1


def test_the_api_answers_with_statistics(archive: Archive, redis_url: str) -> None:
    attempt(archive, 0.5, "1.42")
    attempt(archive, 0.5, "1.42", state="failed")
    archive.feed()
    now = archive.store.scripts.now_us() / 1e6
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    with connect(redis_url) as redis:
        http = create_gateway(Settings.model_validate({"history_url": archive.url}), redis).test_client()
        found = http.get(f"/analytics?range=6h&until={until}&app_version=1.42").json
        assert found is not None
        assert (found["total"]["completed"], found["total"]["failed"], found["step_seconds"]) == (1, 1, 300)
        assert found["total"]["run"]["p95"] == pytest.approx(0.5, rel=0.05)
        assert found["app_versions"][0]["name"] == "1.42"
        assert found["causes"][0]["error"] == "Boom: at noon"
        assert len(found["points"]) == 72
        assert http.get("/analytics?range=2h").status_code == 422
        assert http.get("/analytics?type=a%00b&app_version=%ed%a0%80").json["total"]["failed"] == 0  # type: ignore[index]  # it is JSON
        assert create_gateway(Settings(), redis).test_client().get("/analytics").status_code == 404


def test_the_dashboard_draws_statistics_and_leads_to_the_tasks(
    archive: Archive, redis_client: Redis, redis_url: str
) -> None:
    attempt(archive, 0.5, "1.41")
    failed = attempt(archive, 0.5, "1.42", state="failed")
    archive.feed()
    now = archive.store.scripts.now_us() // 1_000_000
    with connect(redis_url) as redis:
        settings = Settings.model_validate({"history_url": archive.url})
        http = create_dashboard(settings, redis, Users.load_or_exit(settings)).test_client()
        page = http.get(f"/analytics?range=1h&until={now}").text
        assert "Boom: at noon" in page
        assert "1.42" in page
        assert "/tasks?status=failed&amp;since=" in page
        of_type = http.get(f"/types/noop?range=1h&until={now}").text
        assert "type=noop" in of_type
        assert "No worker has registered this type." in of_type
        assert f'id="row-{failed}"' in of_type
        assert http.get("/analytics?range=2h").status_code == 400
        without = create_dashboard(Settings(), redis, Users.load_or_exit(Settings())).test_client()
        assert "HISTORY_URL" in without.get("/analytics").text
