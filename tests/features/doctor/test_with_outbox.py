"""The doctor looks for the relay of an outbox."""

from __future__ import annotations

from datetime import timedelta

from firmq.shared.conditions.findings import Finding, Level
from firmq.shared.config.settings import load
from firmq.shared.domain.task import new_task_id
from firmq.shared.features.doctor.examination import examine
from firmq.shared.features.outbox.receipts import Receipts
from firmq.shared.stores.presence import Presence
from tests.support.harness import System
from tests.support.keys import keys


def test_a_relay_that_reports_no_more_is_missed_for_a_week(system: System) -> None:
    def found() -> list[Finding]:
        return [each for each in examine(load({"REDIS_URL": system.url}), system.redis) if each.check == "relay"]

    assert found() == []
    receipts = Receipts(system.scripts, timedelta(days=1))
    receipts.submit([], [new_task_id()])
    assert found() == [], "a program may send rows in another way"
    receipts.submit([])
    assert [each.level for each in found()] == [Level.OK]
    system.redis.zadd(keys.PRESENCE, {"relay": system.scripts.now_us() - 90_000_000})
    [missed] = found()
    assert (missed.level, missed.seen) == (Level.WARNING, "no relay has reported for 1 min 30 s")
    assert "manage.py firmq_outbox" in missed.advice
    system.redis.zadd(keys.PRESENCE, {"relay": system.scripts.now_us() - 8 * 86_400_000_000})
    Presence(system.scripts).report("hk-1")
    assert found() == []
