"""`firmq rq-import`: entries of rq-scheduler become schedules, each in one step with its removal."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from redis.connection import Connection
from rq_scheduler import Scheduler

from firmq.shared.errors import ScheduleChanged
from firmq.shared.redis.client import text
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskType, TaskTypes
from firmq.worker.features.rq.schedule_import import main
from tests.support import rq_functions as shop
from tests.support.keys import keys
from tests.support.store import Store

AT = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
SHOP = shop.__name__
Run = Callable[..., str]


@pytest.fixture
def run(store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns what it printed."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    _set_zone(monkeypatch, "UTC")
    monkeypatch.delenv("TZ")
    only_ours = {"properties": {"func": {"pattern": f"^{SHOP}"}, "queue": {"enum": ["imports"]}}}
    TaskTypes(store.redis).publish([TaskType(name="rq", schema=only_ours), TaskType(name=f"{SHOP}.double", schema={})])

    def run(*, yes: bool = False, status: int = 0) -> str:
        assert main(yes) == status
        return capsys.readouterr().out

    return run


def _set_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


def scheduler(store: Store, queue: str = "imports") -> Any:
    return Scheduler(queue, connection=store.redis)


def entries(store: Store) -> list[bytes]:
    found: list[Any] = store.redis.zrange(keys.RQ_SCHEDULER_ENTRIES, 0, -1)
    return found


def test_entries_become_schedules_with_their_next_time(store: Store, run: Run) -> None:
    program = scheduler(store)
    program.schedule(AT, shop.add, [1, 2], interval=600, id="often", timeout=30)
    program.cron("0 3 * * *", shop.double, kwargs={"a": 3}, id="nightly")
    told = run()
    assert "often: would become a schedule: rq " in told
    assert f"every 600 s, next {AT.isoformat()}" in told
    assert f'nightly: would become a schedule: {SHOP}.double {{"a":3}}, 0 3 * * * (UTC)' in told.replace(": 3", ":3")
    assert "nothing was changed" in told
    assert len(entries(store)) == 2
    schedules = ScheduleStore(store.scripts)
    assert not schedules.page(10).items
    assert "often: imported" in run(yes=True)
    assert entries(store) == []
    often, nightly = schedules.get("often"), schedules.get("nightly")
    assert (often.due, often.schedule.interval, often.schedule.timeout) == (AT, 600, 30)
    call = {"func": f"{SHOP}.add", "args": [1, 2], "kwargs": {}, "queue": "imports"}
    assert json.loads(often.schedule.data) == call
    assert (nightly.schedule.cron, nightly.schedule.type) == ("0 3 * * *", f"{SHOP}.double")
    assert run(yes=True) == ""


@pytest.mark.parametrize("local", [True, False])
def test_a_crontab_is_in_the_zone_of_its_program(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    _set_zone(monkeypatch, "Asia/Tokyo")
    scheduler(store).cron("0 3 * * *", shop.add, id="nightly", use_local_timezone=local)
    assert "nightly: imported" in run(yes=True)
    assert ScheduleStore(store.scripts).get("nightly").schedule.timezone == "Asia/Tokyo"


def test_a_crontab_of_another_zone_stays(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_zone(monkeypatch, "Asia/Tokyo")
    scheduler(store).cron("0 3 * * *", shop.add)
    monkeypatch.setenv("TZ", "UTC")
    assert "set TZ to the zone of its program" in run(yes=True, status=1)
    assert len(entries(store)) == 1


def test_an_entry_that_a_program_creates_again_is_removed(store: Store, run: Run) -> None:
    for _ in range(2):
        scheduler(store).schedule(AT, shop.add, [1, 2], interval=600, id="often")
        run(yes=True)
    assert entries(store) == []
    scheduler(store).schedule(AT, shop.add, [1, 3], interval=600, id="often")
    assert "often: not imported" in run(yes=True, status=1), "it is another one"
    assert len(entries(store)) == 1


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "once": (
        lambda to: to.enqueue_at(AT, shop.add, 1, 2),
        "it runs once. It stays, and a housekeeper with RQ_QUEUES runs it",
    ),
    "end": (lambda to: to.schedule(AT, shop.add, [1], interval=60, repeat=3), "its repetitions end"),
    "local": (lambda to: to.cron("0 3 * * *", shop.add, use_local_timezone=True), "set TZ to the zone of its program"),
    "class": (lambda to: to.schedule(AT, shop.add, [shop.Order(1)], interval=60), "Order does not match RQ_ALLOW"),
    "value": (lambda to: to.schedule(AT, shop.add, [{1, 2}], interval=60), "set"),
    "method": (lambda to: to.schedule(AT, Fraction(1, 2).limit_denominator, [9], interval=60), "it calls a method"),
    "function": (lambda to: to.schedule(AT, print, [1], interval=60), "data.func"),
    "callback": (
        lambda to: to.schedule(AT, shop.add, [1], interval=60, on_success=shop.succeeded),
        "it has callbacks",
    ),
    "name": (lambda to: to.schedule(AT, shop.add, [1], interval=60, id="a" * 60), "is not a schedule name"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_an_entry_that_cannot_be_a_schedule_stays_and_the_reason_is_said(store: Store, run: Run, form: str) -> None:
    create, why = REFUSED[form]
    create(scheduler(store))
    assert why in run(yes=True, status=1)
    assert len(entries(store)) == 1
    assert not ScheduleStore(store.scripts).page(10).items


def test_an_entry_of_a_queue_that_is_not_offered_stays(store: Store, run: Run) -> None:
    scheduler(store, "theirs").schedule(AT, shop.add, [1], interval=60)
    assert "data.queue" in run(yes=True, status=1)


def test_an_entry_that_was_enqueued_meanwhile_is_not_replaced(store: Store, run: Run) -> None:
    scheduler(store).schedule(AT, shop.add, [1, 2], interval=600, id="often")
    run(yes=True)
    schedules = ScheduleStore(store.scripts)
    schedule = schedules.get("often").schedule
    schedules.delete("often")
    with pytest.raises(ScheduleChanged):
        schedules.put(schedule, expected="", entry=("often", AT.timestamp()))
    assert not schedules.page(10).items


def test_an_entry_stays_while_the_partition_drains(store: Store, run: Run) -> None:
    scheduler(store).schedule(AT, shop.add, [1, 2], interval=600, id="often")
    store.redis.set(keys.DRAINING, 1)
    assert "often: not imported" in run(yes=True, status=1)
    assert len(entries(store)) == 1
    assert not ScheduleStore(store.scripts).page(10).items


def test_an_import_that_is_killed_leaves_each_entry_in_one_place(store: Store, run: Run) -> None:
    program, schedules, names = scheduler(store), ScheduleStore(store.scripts), ["often-0", "often-1", "often-2"]

    def create() -> None:
        for name in names:
            program.schedule(AT, shop.add, [1, 2], interval=600, id=name)

    create()
    done, left = 0, set[int]()
    while _killed_after(done := done + 1):
        stored = [each.schedule.name for each in schedules.page(10).items]
        assert sorted([*stored, *map(text, entries(store))]) == names, f"killed after {done} answers of Redis"
        left.add(len(entries(store)))
        for name in stored:
            schedules.delete(name)
        create()
    assert left == {0, 1, 2, 3}
    assert not entries(store)


def _killed_after(answers: int) -> bool:
    """Runs the command in a process that is killed when it has so many answers of Redis; False if it has ended."""
    if (pid := os.fork()) == 0:
        read, count = Connection.read_response, itertools.count(1)

        def read_or_die(*arguments: Any, **options: Any) -> Any:
            answer = read(*arguments, **options)
            if next(count) == answers:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "read_response", read_or_die)
            os._exit(main(True))
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
