"""Signals: stored with their task once, before or while it waits, and never lost between the two."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain.step import StepKind, encode_step, read_step, with_schema
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IllegalTransition, TaskNotFound
from firmq.shared.features.durable.signals import Signals
from firmq.shared.features.durable.store import DurableSteps
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.maintenance import promote
from firmq.shared.stores.tasks import filter_of
from tests.support.attempt_ends import ended, report
from tests.support.keys import keys
from tests.support.store import SECOND, Store

NAME = "signal:approval"
HOUR = 3600 * SECOND


def steps(store: Store, task_id: str, token: str = "t1") -> DurableSteps:
    return DurableSteps(store.scripts, task_id, token, most=10, most_bytes=10_000)


def wait(store: Store, task_id: str, token: str = "t1") -> StepKind:
    """What the handler finds that waits for an hour."""
    until = store.clock.now_us + HOUR
    record = encode_step(StepKind.WAIT, b"null", attempt=1, started_us=1, ended_us=until)
    return read_step(NAME, steps(store, task_id, token).save(NAME, record)).kind


def end_wait(store: Store, task_id: str, token: str) -> StepKind:
    record = encode_step(StepKind.TIMEOUT, b"null", attempt=1, started_us=1, ended_us=2)
    return read_step(NAME, steps(store, task_id, token).save(NAME, record)).kind


def suspend(store: Store, task_id: str, token: str = "t1") -> int:
    about = '{"outcome":"interrupted","error":{"type":"TaskSuspended","message":"waits"}}'
    until = store.clock.now_us + HOUR
    [answer] = report(store.scripts, ended(task_id, token, "suspended", about, due_us=until, awaits="signal approval"))
    return answer


def send(store: Store, task_id: str, data: Any = None, name: str = "approval") -> None:
    Signals(store.scripts).send(task_id, name, data, "Ann")


def waiting(store: Store) -> str:
    """A task that waits for the signal."""
    [task_id] = store.submit()
    assert store.claim() == [task_id]
    assert wait(store, task_id) is StepKind.WAIT
    assert suspend(store, task_id) == 1
    return task_id


def signal_of(store: Store, task_id: str) -> Any:
    [found] = [each for each in store.records.get(task_id).steps if each.name == NAME]
    return found.kind, found.value, found.by


@pytest.fixture
def task(store: Store) -> str:
    return waiting(store)


def test_a_signal_wakes_the_task_that_waits_for_it(store: Store, task: str) -> None:
    found = store.records.get(task)
    assert (found.summary.state, found.summary.awaits) == (TaskState.SCHEDULED, "signal:approval")
    store.redis.delete(keys.wakeup("normal"))
    send(store, task, {"ok": True})
    assert store.state(task) is TaskState.PENDING
    assert store.redis.llen(keys.wakeup("normal")) == 1
    assert store.claim(token="t2") == [task]
    assert wait(store, task, "t2") is StepKind.SIGNAL
    assert signal_of(store, task) == (StepKind.SIGNAL, {"ok": True}, "Ann")


def test_another_signal_is_kept_and_wakes_nothing(store: Store, task: str) -> None:
    send(store, task, 1, "other")
    assert store.state(task) is TaskState.SCHEDULED
    send(store, task)
    assert store.state(task) is TaskState.PENDING


def test_a_signal_before_the_wait_is_kept(store: Store) -> None:
    [task] = store.submit()
    send(store, task, 7)
    assert store.state(task) is TaskState.PENDING
    store.claim()
    assert steps(store, task).load().records.keys() == {NAME}
    assert wait(store, task) is StepKind.SIGNAL
    assert signal_of(store, task)[1] == 7


@pytest.mark.parametrize("late", [False, True])
def test_a_signal_that_comes_while_the_attempt_ends_is_not_missed(store: Store, late: bool) -> None:
    """Between the storing of the wait and the report of the attempt, or just before its time-out is stored."""
    [task] = store.submit()
    store.claim()
    assert wait(store, task) is StepKind.WAIT
    send(store, task, 7)
    if late:
        assert end_wait(store, task, "t1") is StepKind.SIGNAL
        return
    assert suspend(store, task) == 1
    assert store.state(task) is TaskState.PENDING
    assert store.claim(token="t2") == [task]
    assert signal_of(store, task)[1] == 7


def test_a_signal_is_given_once(store: Store, task: str) -> None:
    send(store, task, {"a": 1, "b": [2]})
    before = store.snapshot()
    send(store, task, {"b": [2], "a": 1})
    assert store.snapshot() == before
    with pytest.raises(IllegalTransition, match="already has it, with other data: replace it, or use another name"):
        send(store, task, {"a": 1})
    assert store.snapshot() == before
    store.queues.cancel(task, "not needed")
    send(store, task, {"a": 1, "b": [2]})  # the answer to the first time may have been lost
    with pytest.raises(IllegalTransition, match="the task has ended"):
        send(store, task, 1, "other")


def test_a_timeout_is_final_until_the_dead_letter_is_requeued(store: Store, task: str) -> None:
    store.clock.now_us += HOUR
    store.scripts.call("promote", "normal", 10, "", "")
    assert store.claim(token="t2") == [task]
    assert end_wait(store, task, "t2") is StepKind.TIMEOUT
    with pytest.raises(IllegalTransition, match="its time-out has passed, so the task no longer waits for it"):
        send(store, task)
    assert steps(store, task, "t2").load().records.keys() == {NAME}
    store.report(task, "failed", "t2")
    with pytest.raises(IllegalTransition, match="the task has ended"):
        send(store, task)
    requeue(store.scripts, [task])
    assert store.claim(token="t3") == [task]
    assert steps(store, task, "t3").load().records == {}
    send(store, task, 7)
    assert wait(store, task, "t3") is StepKind.SIGNAL


def test_signals_are_bounded_as_steps_are(store: Store, task: str) -> None:
    signals = Signals(store.scripts, 2, 1000)
    with pytest.raises(IllegalTransition, match="exceed MAX_STEPS_BYTES"):
        signals.send(task, "approval", "x" * 1000, "Ann")
    signals.send(task, "second", 1, "Ann")
    with pytest.raises(IllegalTransition, match="as many steps as MAX_STEPS allows"):
        signals.send(task, "third", 1, "Ann")
    signals.send(task, "approval", "x" * 100, "Ann")
    found: dict[bytes, bytes] = store.redis.hgetall(keys.rq_job(task))  # type: ignore[assignment]
    sizes = [len(value) for name, value in found.items() if name.startswith(b"step:")]
    assert found[b"steps"].startswith(b"%d %d " % (len(sizes), sum(sizes)))
    assert len(sizes) == 2


def test_a_signal_needs_a_task_and_a_name(store: Store, task: str) -> None:
    with pytest.raises(TaskNotFound):
        send(store, "unknown")
    for name in ("", ".x", "a:b", "x" * 91):
        with pytest.raises(ValueError, match="is not a name of a signal"):
            send(store, task, 1, name)


def test_running_a_waiting_task_now_does_not_end_its_wait(store: Store, task: str) -> None:
    store.queues.run_now(task)
    assert store.claim(token="t2") == [task]
    assert read_step(NAME, steps(store, task, "t2").load().records[NAME]).kind is StepKind.WAIT
    assert suspend(store, task, "t2") == 1
    send(store, task)
    assert store.state(task) is TaskState.PENDING


def test_a_signal_is_taken_by_a_full_redis(store: Store, task: str) -> None:
    store.redis.config_set("maxmemory", 1)
    try:
        send(store, task)
    finally:
        store.redis.config_set("maxmemory", 0)
    assert store.state(task) is TaskState.PENDING


def test_quotes_in_names_of_senders_and_in_data_are_read_back(store: Store, task: str) -> None:
    data = {"value": '"value":1}', "\\": "ä\n"}
    Signals(store.scripts).send(task, "approval", data, 'a "quoted" sender ,"value":')
    assert signal_of(store, task) == (StepKind.SIGNAL, data, 'a "quoted" sender ,"value":')
    Signals(store.scripts).send(task, "approval", data, "another")
    [found] = store.records.get(task).steps
    assert found.size == len(json.dumps(data, sort_keys=True, separators=(",", ":")))


def waits(store: Store, signal: str = "approval") -> tuple[list[str], list[str]]:
    """The tasks that are listed as waiting for a signal of this name, and for any."""
    wanted = (filter_of({}, f"signal:{signal}"), filter_of({}, "signal:*"))
    named, any_ = ([each.id for each in store.records.page(each, limit=10).items] for each in wanted)
    return named, any_


def wait_out(store: Store) -> None:
    store.clock.advance(timedelta(hours=2))
    promote(store.scripts, "normal", 10)


LEAVES: dict[str, Callable[[Store, str], object]] = {
    "the signal": send,
    "run now": lambda store, task: store.queues.run_now(task),
    "cancel": lambda store, task: store.queues.cancel(task, "why"),
    "its time-out": lambda store, task: wait_out(store),
    "removal": lambda store, task: store.scripts.call("discard", task, "normal"),
}


@pytest.mark.parametrize("how", LEAVES)
def test_a_task_is_listed_as_waiting_until_it_no_longer_waits(store: Store, task: str, how: str) -> None:
    assert waits(store) == ([task], [task])
    assert waits(store, "another") == ([], [task])
    if how == "removal":
        store.redis.hdel(keys.rq_job(task), "description")
    LEAVES[how](store, task)
    assert waits(store) == ([], [])
    assert not store.redis.exists(keys.AWAITING, keys.awaiting("approval"))


def test_a_waiting_task_stays_listed_when_it_is_moved_or_restored(store: Store, task: str) -> None:
    store.queues.change(task, queue="low")
    assert waits(store) == ([task], [task])
    store.queues.cancel(task, "why")
    store.queues.restore(task)
    assert waits(store) == ([task], [task])


def test_a_sleeping_task_waits_for_no_signal(store: Store) -> None:
    [task] = store.submit()
    store.claim()
    until = store.clock.now_us + HOUR
    report(store.scripts, ended(task, "t1", "suspended", due_us=until, awaits="sleep pause"))
    assert waits(store) == ([], [])


def test_recovery_lists_the_waits_that_a_version_before_them_stored(store: Store, task: str) -> None:
    store.redis.delete(keys.AWAITING, keys.awaiting("approval"))
    assert waits(store) == ([], [])
    store.scripts.call("check_consistency", "", "", SECOND, 1000, "normal")
    assert waits(store) == ([task], [task])


def test_a_page_of_one_signal_reads_no_task_that_waits_for_another(store: Store) -> None:
    for name in ("legal", "approval"):
        for index in range(3 if name == "legal" else 1500):
            store.redis.zadd(keys.AWAITING, {f"{name}-{index}": index})
            store.redis.zadd(keys.awaiting(name), {f"{name}-{index}": index})
            if name == "legal":
                store.redis.hset(keys.rq_job(f"legal-{index}"), mapping={"state": "scheduled", "description": "noop"})
    page = store.records.page(filter_of({}, "signal:legal"), limit=2)
    assert [each.id for each in page.items] == ["legal-2", "legal-1"]
    rest = store.records.page(filter_of({}, "signal:legal"), limit=2, cursor=page.next_cursor)
    assert ([each.id for each in rest.items], rest.next_cursor) == (["legal-0"], None)


@pytest.mark.parametrize("by", ["operate", "admin"])
def test_a_signal_is_replaced_until_it_is_received(store: Store, task: str, by: str) -> None:
    send(store, task, 1)
    assert Signals(store.scripts).send(task, "approval", 2, "Bob", by) is True
    assert Signals(store.scripts).send(task, "approval", 2, "Bob", by) is False
    assert signal_of(store, task) == (StepKind.SIGNAL, 2, "Bob")
    assert store.claim(token="t2") == [task]
    held = steps(store, task, "t2")
    before = held.load().records[NAME]
    received = before.replace(b'"attempt":0', b'"attempt":2')
    assert held.save(NAME, received, before) == received
    assert held.save(NAME, received, before) == received
    if by == "operate":
        with pytest.raises(IllegalTransition, match="its handler has received it: an admin can replace it"):
            Signals(store.scripts).send(task, "approval", 3, "Bob", by)
    else:
        assert Signals(store.scripts).send(task, "approval", 3, "Bob", by) is True
    store.report(task, "failed", "t2")
    assert Signals(store.scripts).send(task, "approval", 4, "Bob", "operate") is True
    with pytest.raises(IllegalTransition, match="the task has ended"):
        Signals(store.scripts).send(task, "another", 4, "Bob", "operate")
    requeue(store.scripts, [task])
    assert store.claim(token="t3") == [task]
    assert wait(store, task, "t3") is StepKind.SIGNAL
    store.report(task, "completed", "t3")
    with pytest.raises(IllegalTransition, match="the task has ended"):
        Signals(store.scripts).send(task, "approval", 5, "Bob", "admin")


def test_a_signal_that_is_replaced_while_it_is_received_is_found(store: Store, task: str) -> None:
    send(store, task, 1)
    assert store.claim(token="t2") == [task]
    held = steps(store, task, "t2")
    before = held.load().records[NAME]
    Signals(store.scripts).send(task, "approval", 2, "Bob", "operate")
    found = held.save(NAME, before.replace(b'"attempt":0', b'"attempt":2'), before)
    assert read_step(NAME, found).value == 2


def test_data_is_checked_against_the_schema_of_the_wait_and_of_its_replacement(store: Store) -> None:
    [task] = store.submit()
    assert store.claim() == [task]
    schema = {"type": "object", "properties": {"value": {"type": "integer"}, "tries": {}}, "required": ["value"]}
    until = store.clock.now_us + HOUR
    record = encode_step(StepKind.WAIT, b"null", attempt=1, started_us=1, ended_us=until, place=0)
    steps(store, task).save(NAME, with_schema(record, schema))
    assert suspend(store, task) == 1
    checked = list[tuple[Any, Any]]()
    for number in (1, 2):
        Signals(store.scripts).send(task, "approval", number, "Ann", "operate", lambda *given: checked.append(given))
    assert checked == [(schema, 1), (schema, 2)]
    assert signal_of(store, task)[:2] == (StepKind.SIGNAL, 2)
    [step] = store.records.get(task).steps
    assert (step.schema, step.size) == (schema, 1)
