"""Webhooks' deliveries occupy half of the slots at most, also where no limit is set."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from firmq.shared.domain.http_task import HTTP_TYPE
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.task import WEBHOOK_TYPE, NewTask, new_task_id
from firmq.shared.redis.scripts import Argument, Scripts
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.workers import WorkerInfo, Workers
from firmq.worker.housekeeping.delivery_share import EVERY, DeliveryShare
from tests.integration.housekeeping.conftest import Machine
from tests.support.attempt_ends import claiming
from tests.support.keys import keys

NAME = f"type:{WEBHOOK_TYPE}"


class Share:
    """Housekeeping's share, on a clock of the test."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.limits = Limits(machine.scripts)
        self.workers = Workers(machine.scripts.redis)
        self.now = 0.0
        self.share = DeliveryShare(self.limits, self.workers, lambda: self.now)

    def after_a_look(self, name: str = NAME) -> Limit | None:
        self.now += EVERY
        self.share.keep()
        found = self.limits.get(name)
        return found.limit if found else None

    def work(self, name: str, slots: int, state: str = "idle", serial: int = 0) -> None:
        self.workers.announce(
            WorkerInfo(
                name=name,
                host="h",
                pid=1,
                version="2",
                queues=("normal",),
                executors=2,
                slots=slots,
                serial_slots=serial,
                started_at=datetime.now(UTC),
                state=state,
            )
        )

    def submit(self, task_type: str, count: int = 1) -> list[str]:
        new = [NewTask(id=new_task_id(), type=task_type, data="{}", queue="normal") for _ in range(count)]
        Queues(self.machine.scripts, {"normal": 1}).submit(new)
        return [task.id for task in new]


@pytest.fixture
def share(machine: Machine) -> Share:
    return Share(machine)


def test_while_there_are_deliveries_half_of_the_slots_are_theirs(share: Share) -> None:
    share.work("a", 4)
    assert share.after_a_look() is None
    share.submit(WEBHOOK_TYPE)
    assert share.after_a_look() == Limit(concurrency=2)
    share.work("b", 3)
    share.work("c", 8, "draining")
    assert share.after_a_look() == Limit(concurrency=3)
    share.machine.scripts.redis.delete(keys.tasks_of_type(WEBHOOK_TYPE))
    assert share.after_a_look() is None


def test_receivers_that_do_not_answer_leave_room_for_other_tasks(share: Share) -> None:
    share.work("a", 4)
    share.submit(WEBHOOK_TYPE, 10)
    [other] = share.submit("noop")
    share.after_a_look()
    reply = share.machine.scripts.call("claim", *claiming("a", "t", 9_000_000, 4, 1 << 20, "normal", 4))
    claimed = [(row[0].decode(), row[2].decode()) for row in reply[3]]
    assert [kind for _, kind in claimed].count(WEBHOOK_TYPE) == 2
    assert (other, "noop") in claimed


def test_http_tasks_that_hang_leave_threads_to_deliveries(share: Share) -> None:
    share.work("a", 10, serial=2)
    share.submit(HTTP_TYPE, 20)
    share.submit(WEBHOOK_TYPE, 5)
    share.after_a_look()
    reply = share.machine.scripts.call("claim", *claiming("a", "t", 9_000_000, 8, 1 << 20, "normal", 8))
    assert Counter(row[2].decode() for row in reply[3]) == {HTTP_TYPE: 6, WEBHOOK_TYPE: 2}
    share.work("a", 2, serial=2)
    assert share.after_a_look(f"type:{HTTP_TYPE}") is None, "before there are threads there is nothing to share"
    share.work("a", 10, serial=2)
    share.limits.put(f"type:{HTTP_TYPE}", Limit(concurrency=8))
    assert share.after_a_look(f"type:{HTTP_TYPE}") == Limit(concurrency=8)


def test_one_slot_alone_delivers_too_and_looks_are_few(share: Share) -> None:
    share.work("a", 1)
    share.submit(WEBHOOK_TYPE)
    assert share.after_a_look() == Limit(concurrency=1)
    share.work("a", 8)
    share.share.keep()
    found = share.limits.get(NAME)
    assert found
    assert (found.limit, found.source) == (Limit(concurrency=1), "share")


@pytest.mark.parametrize("deliveries", [True, False])
def test_a_change_during_housekeeping_is_not_undone(
    share: Share, monkeypatch: pytest.MonkeyPatch, deliveries: bool
) -> None:
    """Between what it reads and what it writes nobody else may come: the limit set by hand would be gone."""
    share.work("a", 4)
    share.submit(WEBHOOK_TYPE)
    share.after_a_look()
    if not deliveries:
        share.machine.scripts.redis.delete(keys.tasks_of_type(WEBHOOK_TYPE))
    call = Scripts.call

    def behind_somebody(self: Scripts, name: str, *arguments: Argument) -> Any:
        if name in ("limit_put", "limit_delete", "limit_share"):
            monkeypatch.setattr(Scripts, "call", call)
            share.limits.put(NAME, Limit(concurrency=7))
        return call(self, name, *arguments)

    share.work("a", 8)
    monkeypatch.setattr(Scripts, "call", behind_somebody)
    assert share.after_a_look() == Limit(concurrency=7)


def test_what_people_or_settings_say_stands(share: Share) -> None:
    share.work("a", 4)
    share.submit(WEBHOOK_TYPE)
    share.after_a_look()
    share.limits.put(NAME, Limit(concurrency=7))
    assert share.after_a_look() == Limit(concurrency=7)
    share.limits.delete(NAME)
    assert share.after_a_look() == Limit(concurrency=2)
    share.limits.declare({}, {NAME: Limit(concurrency=9)})
    assert share.after_a_look() == Limit(concurrency=9)
