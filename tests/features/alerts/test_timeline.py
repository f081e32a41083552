"""Alerts that were sent, as events of the timeline."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from firmq.shared.domain.clock import instant
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.timeline import Event
from firmq.shared.features.alerts.keys import AlertKeys
from firmq.shared.features.alerts.store import LOGGED, AlertStore, LoggedAlert
from firmq.shared.features.alerts.timeline import events
from tests.support.keys import keys
from tests.support.store import Store

KEYS = AlertKeys.beside(keys)


def logged(store: Store, title: str, resolved: bool = False) -> LoggedAlert:
    at = store.scripts.now_us()
    return LoggedAlert(name="FirmqX", title=title, advice="Do it.", link="/queues", resolved=resolved, at=at)


def read(store: Store) -> tuple[list[Event], str]:
    now: datetime = instant(store.scripts.now_us())
    found, sentence = events(store.scripts).read(now - timedelta(hours=1), now)
    return list(found), sentence


def test_alerts_and_their_ends_are_on_it(store: Store) -> None:
    alerts = AlertStore(store.scripts)
    alerts.write(NO_LOCK, log=[logged(store, "Redis is full")])
    alerts.write(NO_LOCK, log=[logged(store, "Redis is full", resolved=True)])
    found, sentence = read(store)
    assert sentence == ""
    assert [(each.kind, each.title, each.detail, each.link) for each in found] == [
        ("alert", "Alert: Redis is full", "Do it.", "/queues"),
        ("alert", "Alert resolved: Redis is full", "", "/queues"),
    ]


def test_what_was_cut_is_said(store: Store) -> None:
    alerts = AlertStore(store.scripts)
    for number in range(LOGGED + 10):
        alerts.write(NO_LOCK, log=[logged(store, f"x{number}")])
    assert len(alerts.logged()) == LOGGED == store.redis.zcard(KEYS.ALERT_LOG)
    found, sentence = read(store)
    assert (len(found), sentence) == (LOGGED, "Only the last 1000 changes of alerts are on record.")


@pytest.mark.parametrize("entry", ["x", "{}"])
def test_corrupt_entries_of_the_log_are_left_out(store: Store, entry: str) -> None:
    store.redis.zadd(KEYS.ALERT_LOG, {entry: 1})
    assert read(store) == ([], "")
