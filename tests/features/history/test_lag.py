"""A history that is late is shown by the doctor and on the overview, with the reason; one that is in time is not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from firmq.dashboard.app import create_app as create_dashboard
from firmq.dashboard.auth.users import Users
from firmq.shared.conditions.findings import Level
from firmq.shared.conditions.observation import Observer
from firmq.shared.config.settings import Settings
from firmq.shared.features.history.lag import check_history
from firmq.shared.features.history.unarchived import Feed, Unarchived
from firmq.shared.redis.client import connect
from tests.features.history.conftest import Archive
from tests.support.store import Store


@pytest.mark.parametrize(
    ("lag", "error", "trouble"),
    [
        (timedelta(minutes=9), "", ""),
        (timedelta(minutes=11), "", "it is stored too slowly, or no housekeeper runs"),
        (timedelta(), "refused", "refused"),
    ],
)
def test_a_lag_of_minutes_is_no_trouble_and_an_error_is(lag: timedelta, error: str, trouble: str) -> None:
    assert Feed(waiting=1, lag=lag, lost=0, error=error).trouble == trouble


def test_the_doctor_says_how_far_the_history_is(store: Store) -> None:
    settings = Settings.model_validate({"history_url": "sqlite:///history.db"})
    now = Observer(store.scripts, settings).glance()
    assert check_history(store.redis, Settings(), now) == []
    [without] = check_history(store.redis, settings, now)
    assert (without.level, "no housekeeper stores history" in without.seen) == (Level.WARNING, True)
    waiting = Unarchived(store.scripts)
    waiting.take(1)
    [fine] = check_history(store.redis, settings, now)
    assert (fine.level, "0 ended tasks wait" in fine.seen) == (Level.OK, True)
    waiting.take(1, error="it is away")
    [late] = check_history(store.redis, settings, now)
    assert (late.level, "it is away" in late.seen) == (Level.WARNING, True)


def test_the_overview_warns_of_a_late_history(archive: Archive, redis_url: str) -> None:
    archive.end()
    archive.unarchived.take(1, error="it is away")
    with connect(redis_url) as redis:
        settings = Settings.model_validate({"history_url": archive.url})
        overview = create_dashboard(settings, redis, Users.load_or_exit(settings)).test_client().get("/").text
    assert "with 1 ended tasks to store" in overview
    assert "it is away" in overview
