"""The relay: one task for each committed row, whatever dies between its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from redis import Redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from firmq import new_task, outbox
from firmq.outbox import relay as module
from firmq.outbox.metrics import registry_of
from firmq.outbox.relay import Relay
from firmq.outbox.rows import Row
from firmq.outbox.senders import DirectSender, Item
from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.client import Unavailable
from firmq.shared.redis.client import text
from firmq.shared.stores.task_types import TaskType, TaskTypes
from tests.support.keys import keys


class Died(Exception):
    """A relay was killed here: a new one starts with what is committed."""


class DyingSender:
    """Dies after the queue has the rows, as often as it is told to."""

    def __init__(self, sender: DirectSender, times: int = 1) -> None:
        self.sender = sender
        self.times = times
        self.settled: list[str] = []

    def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
        items = self.sender.send(rows, settled)
        self.settled += settled
        if self.times:
            self.times -= 1
            raise Died
        return items

    def close(self) -> None:
        pass


@pytest.fixture
def write(engine: Engine, table: SqlTable) -> Callable[..., list[str]]:
    """Writes rows with these orders; returns the ids of their tasks."""

    def write(*orders: object, task_type: str = "outbox-invoice", **options: object) -> list[str]:
        with Session(engine) as session, session.begin():
            tasks = [new_task(task_type, {"order": each}, **options) for each in orders]  # type: ignore[arg-type]
            return [outbox.add(session, each) for each in tasks]

    return write


Write = Callable[..., list[str]]


def stored(redis: Redis, queue: str = "normal") -> list[str]:
    """The ids of all tasks in the order of their queue."""
    return list(map(text, redis.lrange(keys.rq_queue(queue), 0, -1)))


def drain(relay: Relay) -> None:
    for _ in range(4):
        relay.step()
    assert not relay.failing


def remaining(engine: Engine) -> int:
    with Session(engine) as session:
        return session.query(outbox.OutboxRow).count()


def test_rows_become_tasks_in_their_order_and_are_deleted(
    engine: Engine, relay: Relay, redis_client: Redis, write: Write
) -> None:
    ids = write(1, 2, 3) + write(4)
    drain(relay)
    assert stored(redis_client) == ids
    assert remaining(engine) == 0
    assert (relay.counts.sent, relay.counts.refused) == (4, 0)


def test_many_rows_take_several_passes(relay: Relay, redis_client: Redis, write: Write) -> None:
    ids = write(*range(module.ROWS + 1))
    assert relay.step() == 0.0
    assert relay.step() > 0.0
    assert stored(redis_client) == ids


def test_a_row_that_was_sent_before_the_relay_died_is_one_task(
    engine: Engine, table: SqlTable, sender: DirectSender, redis_client: Redis, write: Write
) -> None:
    ids = write(1, 2)
    Relay(table, DyingSender(sender)).step()
    assert remaining(engine) == 2
    assert stored(redis_client) == ids
    drain(Relay(table, sender))
    assert stored(redis_client) == ids
    assert remaining(engine) == 0


def test_a_row_is_not_sent_again_by_a_relay_that_was_off_until_its_task_was_removed(
    table: SqlTable, sender: DirectSender, redis_client: Redis, write: Write
) -> None:
    [task_id] = write(1)
    Relay(table, DyingSender(sender)).step()
    gone = (keys.rq_job(task_id), keys.TASKS, keys.pending("normal"), keys.rq_queue("normal"))
    redis_client.delete(*gone)
    drain(Relay(table, sender))
    assert redis_client.exists(*gone) == 0


def test_a_receipt_is_settled_before_the_row_is_deleted_and_after_it_is_marked(
    engine: Engine, table: SqlTable, sender: DirectSender, write: Write, redis_client: Redis
) -> None:
    [task_id] = write(1)
    dying = DyingSender(sender, times=0)
    relay = Relay(table, dying)
    relay.step()
    assert dying.settled == []
    assert remaining(engine) == 1
    dying.times = 1
    relay.step()
    assert remaining(engine) == 1  # died after settling
    assert dying.settled == [task_id]
    relay.step()
    assert dying.settled == [task_id] * 2
    assert remaining(engine) == 0


def test_a_refused_row_is_kept_with_its_reason_and_stops_no_other(
    engine: Engine, relay: Relay, table: SqlTable, redis_client: Redis, write: Write
) -> None:
    before, refused, after = write(1), write("no number"), write(2)
    drain(relay)
    assert stored(redis_client) == before + after
    [row] = table.refused(10)
    assert row.task_id == refused[0]
    assert "order" in row.error
    assert (table.backlog().waiting, table.backlog().refused) == (0, 1)
    assert relay.counts.refused == 1


def test_rows_that_no_gateway_reads_are_refused_and_stop_no_others(
    relay: Relay, table: SqlTable, redis_client: Redis, write: Write
) -> None:
    deep: object = "deep"
    for _ in range(100):
        deep = [deep]
    refused = write("half a pair: \ud800", deep, "x" * (1 << 20), task_type="process")
    ids = write("the last", task_type="process")
    for _ in range(12):
        relay.step()
    assert stored(redis_client) == ids
    assert [each.task_id for each in table.refused(10)] == refused


def test_rows_of_a_type_without_a_usable_schema_wait_and_stop_no_others(
    relay: Relay, table: SqlTable, redis_client: Redis, write: Write
) -> None:
    TaskTypes(redis_client).publish([TaskType(name="broken", schema={"type": "string", "pattern": "("})])
    write(1, task_type="broken")
    ids = write(2)
    drain(relay)
    assert stored(redis_client) == ids
    assert table.backlog().waiting == 1


def test_refused_rows_can_be_sent_again(
    relay: Relay, table: SqlTable, redis_client: Redis, write: Write, sender: DirectSender
) -> None:
    schema = {"type": "object", "required": ["number"]}
    TaskTypes(redis_client).publish([TaskType(name="changing", schema=schema)])
    ids = write(1, task_type="changing")
    drain(relay)
    assert stored(redis_client) == []
    TaskTypes(redis_client).publish([TaskType(name="changing", schema={})])
    assert table.retry_refused() == 1
    drain(relay)
    assert stored(redis_client) == ids
    assert table.backlog().refused == 0


def test_rows_of_a_type_that_no_worker_offers_yet_wait_and_stop_no_others(
    relay: Relay, table: SqlTable, redis_client: Redis, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    early = write(1, 2, task_type="not-deployed-yet")
    ids = write(3)
    drain(relay)
    assert stored(redis_client) == ids
    assert (table.backlog().waiting, table.backlog().refused) == (2, 0)
    [said] = [each for each in caplog.messages if "rows wait" in each]
    assert "'not-deployed-yet' is not a task type that a worker offers" in said
    TaskTypes(redis_client).publish([TaskType(name="not-deployed-yet", schema={})])
    drain(relay)
    assert stored(redis_client) == [*ids, *early]


def test_rows_for_a_full_queue_wait_and_stop_no_others(
    relay: Relay, sender: DirectSender, table: SqlTable, redis_client: Redis, write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "ROWS", 2)
    sender.receiver.receipts.bounds = "1"
    first, *waiting = write(1, 2, 3)
    high = write(4, priority="high")
    for _ in range(4):
        relay.step()
    assert stored(redis_client) == [first]
    assert stored(redis_client, "high") == high
    assert table.backlog().waiting == 2
    sender.receiver.receipts.bounds = "0"
    drain(relay)
    assert stored(redis_client) == [first, *waiting]


def test_an_outage_leaves_rows_waiting_and_the_relay_backs_off(table: SqlTable, write: Write) -> None:
    class Away:
        def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
            raise Unavailable({"status": 503, "title": "Store unavailable"})

        def close(self) -> None:
            pass

    write(1)
    relay = Relay(table, Away())
    pauses = [relay.step() for _ in range(20)]
    assert pauses[0] < 0.1
    assert 5 < pauses[-1] < 15
    assert relay.failing
    assert (table.backlog().waiting, relay.counts.failed) == (1, 20)


def test_a_request_that_is_too_large_is_sent_in_parts(table: SqlTable, write: Write) -> None:
    class Small:
        sent: list[str] = []  # noqa: RUF012

        def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
            if len(rows) > 1 or (rows and '"order":3' in rows[0].task):
                raise Unavailable({"status": 413, "title": "Body too large"})
            self.sent += [each.task_id for each in rows]
            return [{"task_id": each.task_id} for each in rows]

        def close(self) -> None:
            pass

    ids = write(1, 2, 3, 4)
    small = Small()
    relay = Relay(table, small)
    for _ in range(5):
        relay.step()
    assert small.sent == [ids[0], ids[1], ids[3]]
    assert [each.task_id for each in table.refused(10)] == [ids[2]]


def test_relays_that_run_at_once_send_each_row_once(
    engine: Engine, table: SqlTable, sender: DirectSender, redis_client: Redis, write: Write
) -> None:
    ids = write(*range(500))
    relays = [Relay(table, sender) for _ in range(3)]
    stop = threading.Event()
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in relays]
    for thread in threads:
        thread.start()
    for _ in range(600):
        if remaining(engine) == 0:
            break
        stop.wait(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert sorted(stored(redis_client)) == sorted(ids)
    if table.locks:
        assert sum(each.counts.sent for each in relays) == 500


def test_metrics_show_the_backlog_and_omit_it_without_a_database(
    relay: Relay, table: SqlTable, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = registry_of(relay)
    write(1, 2)
    assert registry.get_sample_value("firmq_outbox_rows", {"state": "waiting"}) == 2
    oldest = registry.get_sample_value("firmq_outbox_oldest_seconds")
    assert oldest is not None
    assert 0 < oldest < 60
    drain(relay)
    assert registry.get_sample_value("firmq_outbox_sent_total") == 2
    assert registry.get_sample_value("firmq_outbox_oldest_seconds") == 0

    def away() -> None:
        raise OSError("no database")

    monkeypatch.setattr(table, "backlog", away)
    registry = registry_of(relay)
    assert registry.get_sample_value("firmq_outbox_rows", {"state": "waiting"}) is None
    assert registry.get_sample_value("firmq_outbox_sent_total") == 2


def test_the_trace_of_the_writer_travels_with_the_row(
    engine: Engine, relay: Relay, table: SqlTable, redis_client: Redis
) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("request") as span, Session(engine) as session:
        task_id = outbox.add(session, new_task("process", 1))
        session.commit()
    assert trace.get_current_span() is not span
    drain(relay)
    meta = redis_client.hget(keys.rq_job(task_id), "meta")
    assert meta is not None
    assert f"{span.get_span_context().trace_id:032x}" in text(meta)
