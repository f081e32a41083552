"""A real worker and a real housekeeper while somebody breaks one key after the other, among records that are broken
already: neither ends or logs a traceback, honest tasks are completed, the broken ones are dead letters or set aside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared.domain.limit import Limit
from firmq.shared.domain.schedule import Schedule
from firmq.shared.domain.task import TaskState, Unique
from firmq.shared.redis.client import text
from firmq.shared.redis.quarantine import single
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.schedules import ScheduleStore
from tests.integration.quarantine.scene import Kind
from tests.integration.quarantine.scene import make as key_of
from tests.integration.quarantine.test_keys import KINDS, NOT_OURS_TO_MEND, put, wrong_types
from tests.integration.quarantine.test_records import FIELDS, GARBAGE, damage
from tests.integration.quarantine.test_values import TEXTS, spoil
from tests.support.features import rows
from tests.support.harness import System, free_port, running_system, scrape, wait_until
from tests.support.keys import keys

HONEST = 200
NONSENSE = (b"\xff\xff", b"garbage", b"[1,2,3]", b'["x",[]]', b"{}", b"[" * 100_000)
WHEN_IT_FAILS = ("retry", "progress", "failures", "attempt", "crashes", "meta", "time_limit")
"""What is looked at when a task has failed, or says how far it is."""
NO_MOMENTS = (math.inf, -math.inf, 1e300)
POLICIES = (
    *('{"initial_delay": NaN}', '{"initial_delay": "x"}', '{"initial_delay": [5]}', '{"max_retries": 1e999}'),
    *(
        '{"max_retries": NaN}',
        '{"multiplier": 1e300}',
        '{"max_delay": -1e300}',
        '{"jitter": 1e300}',
        '{"max_retries": {}}',
    ),
    *("[" * 100_000, '{"initial_delay": ' + "[" * 100_000),
)


@pytest.fixture
def system(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[System]:
    with running_system(redis_client, redis_url, tmp_path) as running:
        yield running


def plant(system: System) -> list[str]:
    """A task for each field and each way to break it, with scores that are no moments; those whose data is broken."""
    cases = [(field, value) for field in FIELDS for value in GARBAGE.values() if not value or len(value) < 1000]
    ids = system.submit_many([("noop", "null")] * len(cases), "low", tags=("a",))
    for task_id, (field, value) in zip(ids, cases, strict=True):
        damage(system.redis, task_id, field, value)
    failing = [case for case in cases if case[0] in WHEN_IT_FAILS] + [("retry", each.encode()) for each in POLICIES]
    doomed = system.submit_many([("fail", "null")] * len(failing), "low")
    for number, (task_id, (field, value)) in enumerate(zip(doomed, failing, strict=True)):
        damage(system.redis, task_id, field, value)
        system.redis.zadd(keys.pending("low"), {task_id: NO_MOMENTS[number % 3]})
    return [task_id for task_id, (field, _) in zip(ids, cases, strict=True) if field == "data"]


def furnish(system: System) -> None:
    """Something of what there are many of, so that it can be broken too."""
    Limits(system.scripts).put("key:scarce", Limit(concurrency=2))
    ScheduleStore(system.scripts).put(Schedule(name="often", type="noop", queue="low", interval=1))
    for begin in rows("SCENE"):
        begin(system.scripts, system.records, "nobody")


def honest(system: System, number: int) -> str:
    """One of several kinds; each can be completed."""
    kinds: Sequence[Mapping[str, Any]] = (
        {},
        {"tags": ("a",)},
        {"limit_key": "scarce"},
        {"delay": timedelta(milliseconds=50)},
        {"fair_key": "x"},
        {"expires_in": timedelta(hours=1)},
        {"unique": Unique(key=str(number))},
    )
    return system.submit("noop", queue=("normal", "high")[number % 2], **kinds[number % len(kinds)])


def places(system: System, kind: Kind) -> list[str]:
    """Where there is such a key, or where one might be."""
    make = key_of(keys, kind)
    if kind.parameter is None:
        return [make]
    if kind.parameter == "queue":
        return [make("normal")]
    if kind.parameter == "state":
        return [make(TaskState.CANCELLED)]  # what starts like it would be all keys
    start = make(0).removesuffix("0") if kind.parameter == "minute" else make("")
    there = [text(key) for key in system.redis.scan_iter(start + "*", count=10_000)]
    return there[:1]


def spoil_or_replace(system: System, number: int, kind: Kind, key: str) -> bool:
    """Breaks a key in one of two ways; whether something of another type is there now."""
    if number % 2:
        planted = f"{keys.prefix}planted"
        put(system.redis, planted, wrong_types(kind)[0])
        system.redis.rename(planted, key)  # in one step, for others write there too
    elif text(system.redis.type(key)) in ("none", kind.type):
        spoil(system.redis, key, kind, TEXTS[number % len(TEXTS)])
    return bool(number % 2)


def say_nonsense(system: System) -> None:
    """Where the worker listens."""
    [name] = [info.name for info in system.workers.all()]
    for said in NONSENSE:
        system.redis.publish(keys.direct_dispatch(name), said)
        system.redis.rpush(keys.WAKEUP, said[:10])


def test_corruption_of_every_kind_stops_no_process(system: System) -> None:
    port = free_port()
    furnish(system)
    unreadable = plant(system)
    housekeeper = system.start_housekeeper(
        HOUSEKEEPER_METRICS_PORT=str(port), HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true"
    )
    worker = system.start_worker(WORKER_EXECUTORS="2")
    executors = system.executors(worker)

    say_nonsense(system)
    tasks = [honest(system, number) for number in range(HONEST - len(KINDS))]
    replaced: dict[str, str] = {}
    for number, kind in enumerate(KINDS.values()):
        tasks.append(honest(system, len(tasks)))
        if kind.name in {*NOT_OURS_TO_MEND, "rq_job", "DRAINING"}:  # where that key exists, nothing new is taken
            continue
        for key in places(system, kind):
            if spoil_or_replace(system, number, kind, key):
                replaced[key] = kind.type

    def of(ids: Iterable[str], state: str) -> bool:
        with system.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hget(keys.rq_job(each), "state")
            return {text(found) for found in pipeline.execute()} == {state}

    wait_until(lambda: of(tasks, "completed"), "the honest tasks were completed", 90)
    wait_until(lambda: of(unreadable, "failed"), "those whose data nobody can read became dead letters", 90)
    looked_after = {key: kind for key, kind in replaced.items() if key in single(keys) or key.endswith(":normal")}
    assert len(looked_after) > 10
    for key, wanted in looked_after.items():
        wait_until(lambda: text(system.redis.type(key)) in ("none", wanted), f"{key} was set aside", 90)  # noqa: B023
    counted = ("firmq_quarantined_keys", ())
    wait_until(lambda: scrape(port).get(counted, 0) == system.redis.zcard(keys.QUARANTINE) > 5, "they are counted", 90)
    assert (worker.poll(), housekeeper.poll()) == (None, None), system.logs()
    # An attempt whose record was broken while it ran has lost its lease: its executor is replaced unless it is over.
    assert "lease lost, stopping it" in system.logs() or system.executors(worker) == executors, system.logs()
    assert "Traceback" not in system.logs()
