"""The alert about a version that fails: what it says, and when it stays silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq.shared.conditions.conditions import Alert, Level, _versions, alerts
from firmq.shared.conditions.observation import Observation, RecentFailures
from firmq.shared.config.groups.conditions import ConditionSettings
from firmq.shared.stores.deploys import Deploy, Ends, VersionEnds
from firmq.shared.stores.failure_groups import FailureGroup

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def _deploy(version: str, hours: float) -> Deploy:
    return Deploy(version=version, first_at=NOW - timedelta(hours=hours), last_at=NOW)


def _ends(
    version: str, completed: int, failed: int, task_type: str = "charge-card", *, recent: bool = True
) -> VersionEnds:
    ends = Ends(completed, failed)
    return VersionEnds(type=task_type, version=version, recent=ends if recent else Ends(), day=ends)


def _group(hours: float, task_type: str = "charge-card") -> RecentFailures:
    about: dict[str, Any] = dict.fromkeys(("key", "error", "place", "pattern", "message"), "x")
    first = NOW - timedelta(hours=hours)
    return RecentFailures(FailureGroup(**about, count=1, type=task_type, first_at=first, last_at=NOW), 1)


def _alerts(*ends: VersionEnds, failures: tuple[RecentFailures, ...] = ()) -> list[Alert]:
    deploys = [_deploy("1.42", 1), _deploy("1.41", 100), _deploy("1.40", 200)]
    return list(_versions(Observation(at=NOW, deploys=deploys, version_ends=ends, failures=failures)))


def test_it_compares_the_new_version_with_those_before() -> None:
    failures = (_group(0.5), _group(0.2), _group(50), _group(0.1, "other"))
    [alert] = _alerts(_ends("1.42", 69, 31), _ends("1.41", 499, 1), failures=failures)
    assert alert.title == "Since 1.42 charge-card fails 31 % (0.2 % before), two new causes"
    assert alert.link == "/tasks?search=state%3Afailed%20type%3Acharge-card%20version%3A1.42"
    assert alert.key == "FirmqVersionFails:1.42:charge-card"
    [alert] = _alerts(_ends("1.42", 0, 20), _ends("1.41", 20, 0), failures=(_group(0.5),))
    assert alert.title == "Since 1.42 charge-card fails 100 % (0 % before), one new cause"


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((_ends("1.42", 0, 19), _ends("1.41", 100, 0)), id="few ends"),
        pytest.param((_ends("1.42", 0, 100),), id="no before"),
        pytest.param((_ends("1.42", 0, 100), _ends("1.41", 19, 0)), id="little before"),
        pytest.param((_ends("1.42", 96, 4), _ends("1.41", 100, 0)), id="few failures"),
        pytest.param((_ends("1.42", 960, 40), _ends("1.41", 100, 0)), id="a small share"),
        pytest.param((_ends("1.42", 80, 20), _ends("1.41", 90, 10)), id="as bad before"),
        pytest.param((_ends("1.42", 0, 100), _ends("1.41", 100, 0, "other")), id="another type before"),
        pytest.param((_ends("1.41", 0, 100), _ends("1.42", 100, 0), _ends("1.40", 100, 0)), id="a newer one is good"),
        pytest.param((_ends("1.42", 0, 100, recent=False), _ends("1.41", 100, 0)), id="not recent"),
        pytest.param((_ends("unknown", 0, 100), _ends("1.41", 100, 0)), id="a version that is not on record"),
    ],
)
def test_it_stays_silent(ends: tuple[VersionEnds, ...]) -> None:
    assert _alerts(*ends) == []


def test_versions_before_count_together_and_a_rollback_is_judged_by_what_serves() -> None:
    assert _alerts(_ends("1.42", 50, 50), _ends("1.41", 15, 0), _ends("1.40", 15, 0, recent=False))
    assert _alerts(_ends("1.42", 5, 5), _ends("1.41", 50, 50), _ends("1.40", 100, 0))[0].subject == "1.41:charge-card"


def test_a_higher_threshold_of_memory_leaves_the_danger_of_a_full_redis() -> None:
    settings = ConditionSettings.model_validate({"alert_redis_memory": 0.95})
    seen = Observation(at=NOW, settings=settings, info={"maxmemory": 1000, "used_memory": 930, "aof_enabled": 1})
    assert [each.level for each in alerts(seen) if each.name == "FirmqRedisMemoryNearlyFull"] == [Level.DANGER]
