"""Every end of a task is stored once: whatever happens to the task, and however often it is sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from firmq.shared.domain.histogram import encode, of
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IncompatibleSchema
from firmq.shared.features.history import tables, unarchived
from firmq.shared.features.history.database import Database
from firmq.shared.features.history.feeding import Feeder
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import purge, requeue
from tests.features.history.conftest import Archive
from tests.support.attempt_ends import ended, report
from tests.support.keys import keys


def nothing_waits(archive: Archive) -> bool:
    return not list(archive.store.redis.scan_iter(f"{keys.HISTORY}:*"))


def test_each_way_of_ending_is_stored(archive: Archive) -> None:
    store = archive.store
    [completed], [failed] = archive.end("completed"), archive.end("failed")
    [cancelled] = store.submit()
    store.queues.cancel(cancelled, "no")
    [expired] = store.submit(expires_in=timedelta(seconds=1))
    store.clock.advance(timedelta(seconds=2))
    assert maintenance.expire(store.scripts, 10) == 1
    [lost] = store.submit()
    store.claim()
    store.clock.advance(timedelta(minutes=1))
    [reaped] = maintenance.reap(store.scripts, 10, 0)
    assert (reaped.id, reaped.state) == (lost, "failed")
    assert archive.feed() == 5
    wanted = {completed: "completed", failed: "failed", cancelled: "cancelled", expired: "expired", lost: "failed"}
    assert dict(archive.contents.ends()) == wanted
    assert nothing_waits(archive)


def test_a_task_that_is_cancelled_as_it_is_submitted_is_stored(archive: Archive) -> None:
    from firmq.shared.domain.task import On, Parent

    [parent] = archive.end("failed")
    [child] = archive.store.submit(parents=(Parent(task_id=parent, on=On.SUCCESS),))
    archive.feed()
    assert dict(archive.contents.ends())[child] == "cancelled"


def test_without_a_history_nothing_is_registered(archive: Archive) -> None:
    archive.unarchived.give_up()
    archive.end()
    assert archive.store.redis.keys(f"{keys.HISTORY}*") == []


def test_an_end_that_is_sent_again_is_counted_once(archive: Archive) -> None:
    archive.end("completed", 3)
    ends = archive.unarchived.take(10)
    assert archive.feeder.store(ends) == 3
    assert archive.feeder.store(ends) == 0
    assert archive.feeder.store([*ends[:1], *ends[:1]]) == 0
    assert len(archive.contents.rows()) == 3
    assert [archive.contents.total("completed", each) for each in (60, 3600, 86400)] == [3, 3, 3]


def test_a_dead_letter_that_is_requeued_before_it_is_stored_has_both_ends(archive: Archive) -> None:
    store = archive.store
    [task] = archive.end("failed")
    store.clock.advance(timedelta(seconds=1))
    requeue(store.scripts, [task])
    store.claim(token="t2")
    store.report(task, "completed", token="t2")
    assert archive.feed() == 2
    assert archive.contents.ends() == [(task, "failed"), (task, "completed")]
    assert nothing_waits(archive)


def test_a_task_that_is_restored_before_it_is_stored_has_both_ends(archive: Archive) -> None:
    store = archive.store
    [task] = store.submit()
    store.queues.cancel(task, "no")
    store.clock.advance(timedelta(seconds=1))
    assert store.scripts.call("restore", task) == [b"cancelled", 1]
    store.claim(token="t2")
    store.report(task, "completed", token="t2")
    assert archive.feed() == 2
    assert archive.contents.ends() == [(task, "cancelled"), (task, "completed")]
    assert nothing_waits(archive)


@pytest.mark.parametrize("early", [True, False])
def test_a_deleted_task_that_is_restored_ended_once(archive: Archive, early: bool) -> None:
    [task] = archive.end("failed")
    if not early:
        assert archive.feed() == 1
    archive.store.clock.advance(timedelta(seconds=1))
    kept = timedelta(minutes=1)
    assert purge(archive.store.scripts, TaskState.FAILED, [task], kept) == [("failed", True)]
    assert archive.store.scripts.call("restore", task) == [b"failed", 1]
    assert archive.feed() == int(early)
    assert archive.contents.ends() == [(task, "failed")]
    assert nothing_waits(archive)


def test_an_end_that_happens_while_another_one_is_stored_is_not_lost(archive: Archive) -> None:
    store = archive.store
    [task] = archive.end("failed")
    ends = archive.unarchived.take(10)
    archive.feeder.store(ends)
    store.clock.advance(timedelta(seconds=1))
    requeue(store.scripts, [task])
    store.claim(token="t2")
    store.report(task, "completed", token="t2")
    archive.unarchived.done(ends)
    assert archive.feed() == 1
    assert archive.contents.ends() == [(task, "failed"), (task, "completed")]


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_task_that_is_removed_before_it_is_stored_is_stored_whole(archive: Archive, state: str) -> None:
    [task] = archive.end(state)
    archive.store.clock.advance(timedelta(days=2))
    assert maintenance.prune(archive.store.scripts, state, 1, 10).removed == 1
    assert not archive.store.redis.exists(keys.rq_job(task), keys.rq_results(task))
    assert archive.feed() == 1
    [row] = archive.contents.rows()
    assert (row["task_id"], row["state"], row["result"]) == (task, state, "bnVsbA==" if state == "completed" else None)
    assert nothing_waits(archive)


def test_the_number_of_ends_that_wait_is_bounded_and_the_rest_counted(archive: Archive) -> None:
    archive.unarchived.most = 3
    archive.unarchived.take(1)
    first = archive.end("failed", 2)
    archive.store.clock.advance(timedelta(seconds=1))
    maintenance.prune(archive.store.scripts, "failed", 1, 1)
    archive.end("completed", 2)
    feed = unarchived.feed(archive.store.scripts)
    assert feed is not None
    assert (feed.waiting, feed.lost) == (3, 1)
    assert archive.feed() == 3
    assert len(set(first) & set(dict(archive.contents.ends()))) == 1
    assert nothing_waits(archive)


def test_the_lag_is_the_age_of_the_oldest_end(archive: Archive) -> None:
    archive.end()
    archive.store.clock.advance(timedelta(seconds=40))
    archive.unarchived.take(1, error="it is away")
    feed = unarchived.feed(archive.store.scripts)
    assert feed == unarchived.Feed(waiting=1, lag=timedelta(seconds=40), lost=0, error="it is away")


def test_a_record_that_cannot_be_read_is_left_out_and_counted(archive: Archive) -> None:
    [good], [bad] = archive.end(), archive.end()
    archive.store.redis.delete(keys.rq_job(bad))
    archive.store.redis.set(keys.rq_job(bad), "not a hash")
    assert archive.feed() == 1
    assert archive.contents.ends() == [(good, "completed")]
    assert archive.feeder.unreadable == 1
    assert nothing_waits(archive)


def test_texts_that_a_database_refuses_are_stored_without_what_it_refuses(archive: Archive) -> None:
    [task] = archive.end("failed")
    archive.store.redis.hset(keys.rq_job(task), "error", '{"type":"E\\u0000","message":"\\ud800 x"}')
    archive.store.redis.hset(keys.rq_job(task), "meta", b"\xff\x00")
    assert archive.feed() == 1
    assert archive.contents.rows()[0]["error"] == "E: ? x"


def test_statistics_have_retries_waits_and_runs_by_type_queue_and_version(archive: Archive) -> None:
    store = archive.store
    [task] = store.submit(queue="high")
    store.claim()
    record = '{"outcome":"%s","app_version":"1.42","enqueued_at":1000000,"started_at":3000000,"ended_at":3500000}'
    report(store.scripts, ended(task, "t1", "retrying", record % "failed"))
    maintenance.promote(store.scripts, "high", 10)
    store.claim(token="t2")
    report(store.scripts, ended(task, "t2", "completed", record % "completed"))
    archive.feed()
    with archive.contents.engine.connect() as connection:
        [row] = connection.execute(tables.STATISTICS.select().where(tables.STATISTICS.c.seconds == 60)).mappings()
    assert (row["type"], row["queue"], row["version"]) == ("noop", "high", "1.42")
    assert (row["completed"], row["retried"], row["failed"]) == (1, 1, 0)
    assert (row["wait"], row["run"]) == (encode(of(2)), encode(of(0.5)))


def test_what_is_past_its_retention_is_removed_by_state(archive: Archive) -> None:
    archive.end("completed", 3, tags=("blue",))
    [dead] = archive.end("failed")
    archive.feed()
    kept = {TaskState.COMPLETED: timedelta(days=1), TaskState.FAILED: timedelta(days=9)}
    now = archive.store.scripts.now_us() + 3 * 86400 * 1_000_000
    assert archive.feeder.prune(kept, now, limit=2) == 2
    assert archive.feeder.prune(kept, now, limit=2) == 1
    assert archive.contents.ends() == [(dead, "failed")]
    assert archive.contents.total("completed", 60) == 0
    assert archive.contents.total("completed", 86400) == 3
    with archive.contents.engine.connect() as connection:
        assert list(connection.execute(tables.TAGS.select())) == []


def test_a_database_of_a_later_version_is_refused(archive: Archive) -> None:
    archive.end()
    archive.feed()
    with archive.contents.engine.begin() as connection:
        connection.execute(tables.SCHEMA.update().values(version=tables.VERSION + 1))
    with pytest.raises(IncompatibleSchema, match="HISTORY_URL"):
        Feeder(Database(archive.url, 10)).store(archive.unarchived.take(1))


def test_the_fingerprint_of_a_cause_is_that_of_redis(archive: Archive) -> None:
    [task] = archive.end("failed")
    in_redis = archive.store.redis.hget(keys.FAILURE_GROUP_OF, task)
    archive.feed()
    assert archive.contents.rows()[0]["cause"].encode() == in_redis
