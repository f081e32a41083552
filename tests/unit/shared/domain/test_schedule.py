"""When schedules are due, on ordinary days and on those when clocks change, and what is done about missed times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmq.shared.config.settings import Settings
from firmq.shared.domain.schedule import (
    Missed,
    Schedule,
    following,
    plan,
    read_spec,
    task_for,
    upcoming,
)
from firmq.shared.domain.schedule_body import read_declared
from firmq.shared.domain.task import Webhook

GRACE = timedelta(seconds=60)


def schedule(**fields: Any) -> Schedule:
    return Schedule(**{"name": "nightly", "type": "noop", "queue": "normal", **fields})


def test_what_a_schedule_does_not_use_of_later_versions_is_not_stored() -> None:
    """An earlier version can read it, and it does not count as changed."""
    assert set(json.loads(schedule(interval=60).spec)) == {
        "name", "type", "data", "queue", "cron", "interval", "timezone", "missed", "missed_limit", "overlap", "timeout",
        "expires_in", "retry", "tags",
    }  # fmt: skip


def test_what_its_tasks_are_under_and_whom_they_tell_comes_back_from_the_store() -> None:
    url = "https://shop.example/hooks"
    hook = {"url": url, "events": ["failed"], "retry": {"max_retries": 1}}
    entry = {"type": "noop", "interval": 60, "limit_key": "partner", "fair_key": "shop-7", "webhook": hook}
    declared = read_declared("pulse", entry, {"normal": 1}, "normal")
    assert read_spec(declared.spec) == declared
    task = task_for(declared, at("2026-01-01T00:00:00+00:00"))
    assert (task.limit_key, task.fair_key) == ("partner", "shop-7")
    assert task.webhook == Webhook(url=url, events=("failed",), retry={"max_retries": 1})


def test_numbers_of_a_declaration_stay_as_written_so_that_it_does_not_count_as_changed() -> None:
    hook = {"url": "https://shop.example/", "retry": {"initial_delay": 5}}
    entry = {"type": "noop", "interval": 60, "timeout": 60, "retry": {"max_delay": 7}, "score": 3, "webhook": hook}
    spec = read_declared("pulse", entry, {"normal": 1}, "normal").spec
    assert json.loads(spec) == {
        **json.loads(schedule(name="pulse", interval=60).spec),
        **entry,
        "webhook": {**hook, "events": []},
    }
    assert ".0" not in spec


@pytest.mark.parametrize(
    "wrong",
    [{"limit_key": "a b"}, {"fair_key": ""}, {"limit_key": 5}, {"webhook": "https://x"}, {"webhook": {"urls": 1}}],
)
def test_wrong_keys_and_webhooks_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        read_declared("pulse", {"type": "noop", "interval": 60, **wrong}, {"normal": 1}, "normal")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def local(times: Sequence[datetime], zone: str) -> list[str]:
    return [each.astimezone(ZoneInfo(zone)).strftime("%d %H:%M %z") for each in times]


# --- Clocks that change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # 29 March 2026: 02:00 becomes 03:00 in Berlin.
        ("30 2 * * *", "2026-03-28T00:00+01:00", ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),
        ("0 * * * *", "2026-03-29T00:30+01:00", ["29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]),
        ("0 4 * * *", "2026-03-28T00:00+01:00", ["28 04:00 +0100", "29 04:00 +0200", "30 04:00 +0200"]),
        # 25 October 2026: 03:00 becomes 02:00 again.
        ("30 2 * * *", "2026-10-24T00:00+02:00", ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),
        ("0 * * * *", "2026-10-25T01:30+02:00", ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
        ("*/30 2 * * *", "2026-10-25T02:00+02:00", ["25 02:30 +0200", "26 02:00 +0100", "26 02:30 +0100"]),
        ("@daily", "2026-10-24T12:00+02:00", ["25 00:00 +0200", "26 00:00 +0100", "27 00:00 +0100"]),
    ],
)
def test_a_cron_schedule_follows_the_clocks_of_its_zone(cron: str, after: str, expected: list[str]) -> None:
    berlin = schedule(cron=cron, timezone="Europe/Berlin")
    first = following(berlin, at(after))
    assert first is not None
    assert local(upcoming(berlin, first, 3), "Europe/Berlin") == expected


def test_six_fields_begin_with_seconds() -> None:
    every = schedule(cron="*/20 * * * * *")
    assert [each.second for each in upcoming(every, at("2026-05-01T00:00:00Z"), 4)] == [0, 20, 40, 0]


def moments(first: str, days: int) -> st.SearchStrategy[datetime]:
    return st.integers(0, days * 86_400).map(lambda seconds: at(first) + timedelta(seconds=seconds))


@given(
    st.sampled_from(["*/7 * * * *", "0 * * * *", "*/20 * * * * *", "30 */2 * * *"]),
    moments("2026-03-28T00:00:00Z", 2) | moments("2026-10-24T00:00:00Z", 2) | moments("2026-04-04T00:00:00Z", 2),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
)
def test_times_only_move_forward_and_are_whole_seconds(cron: str, after: datetime, zone: str) -> None:
    times = upcoming(schedule(cron=cron, timezone=zone), after, 30)
    assert times == sorted(set(times))
    assert {each.microsecond for each in times} == {0}


@given(moments("2026-01-01T00:00:00Z", 365), st.integers(0, 23), st.integers(0, 59))
def test_a_daily_schedule_runs_once_on_every_day_of_the_year(after: datetime, hour: int, minute: int) -> None:
    daily = schedule(cron=f"{minute} {hour} * * *", timezone="Europe/Berlin")
    first = following(daily, after)
    assert first is not None
    days = [each.astimezone(ZoneInfo("Europe/Berlin")).date() for each in upcoming(daily, first, 20)]
    assert days == [days[0] + timedelta(days=number) for number in range(20)]


def test_an_interval_does_not_drift() -> None:
    start = at("2026-05-01T00:00:03Z")
    assert upcoming(schedule(interval=90), start, 3) == [
        start,
        start + timedelta(seconds=90),
        start + timedelta(seconds=180),
    ]


# --- Missed times ------------------------------------------------------------------------------------------------

DUE = at("2026-05-01T12:00:00Z")
HOURLY = "0 * * * *"


def fired(steps: Sequence[Any]) -> list[str]:
    return [f"{step.due:%H:%M}" for step in steps if step.fire]


@pytest.mark.parametrize("when", [{"cron": HOURLY}, {"interval": 3600}])
@pytest.mark.parametrize(
    ("missed", "late", "expected", "passed", "then"),
    [
        (Missed.ONCE, timedelta(seconds=-1), [], 0, None),
        (Missed.ONCE, timedelta(seconds=10), ["12:00"], 0, "13:00"),
        (Missed.SKIP, timedelta(seconds=10), ["12:00"], 0, "13:00"),
        (Missed.ONCE, timedelta(hours=3, minutes=30), ["12:00"], 3, "16:00"),
        (Missed.SKIP, timedelta(hours=3, minutes=30), [], 4, "16:00"),
        (Missed.SKIP, timedelta(hours=3, seconds=30), ["15:00"], 3, "16:00"),
        (Missed.ALL, timedelta(hours=3, minutes=30), ["12:00", "13:00", "14:00", "15:00"], 0, "16:00"),
        (Missed.ALL, timedelta(hours=9, minutes=30), ["17:00", "18:00", "19:00", "20:00", "21:00"], 5, "22:00"),
    ],
)
def test_missed_times_are_dealt_with_as_the_schedule_says(
    when: dict[str, Any], missed: Missed, late: timedelta, expected: list[str], passed: int, then: str | None
) -> None:
    steps = plan(schedule(**when, missed=missed, missed_limit=5), DUE, DUE + late, GRACE)
    assert fired(steps) == expected
    assert sum(step.passed for step in steps) == passed
    assert (f"{steps[-1].following:%H:%M}" if steps else None) == then


def test_steps_form_a_chain_from_due_time_to_due_time() -> None:
    steps = plan(schedule(cron=HOURLY, missed=Missed.ALL, missed_limit=3), DUE, DUE + timedelta(hours=20), GRACE)
    assert [step.following for step in steps[:-1]] == [step.due for step in steps[1:]]


def test_a_round_is_bounded() -> None:
    steps = plan(schedule(interval=1, missed=Missed.ALL, missed_limit=5000), DUE, DUE + timedelta(hours=1), GRACE, 500)
    assert len(steps) == 500


def test_a_schedule_of_every_second_that_slept_a_week_is_caught_up_with_at_once() -> None:
    for missed in (Missed.SKIP, Missed.ONCE):
        steps = plan(schedule(cron="* * * * * *", missed=missed), DUE, DUE + timedelta(days=7), timedelta())
        assert steps[-1].following == DUE + timedelta(days=7, seconds=1)


# --- Tasks, and what people write --------------------------------------------------------------------------------


def test_the_id_of_a_task_says_which_due_time_it_is() -> None:
    task = task_for(schedule(interval=60), at("2026-05-01T14:00:00+02:00"))
    assert task.id == "nightly-20260501T120000Z"
    assert task.tags == ("schedule:nightly",)
    assert task.meta == {"schedule": "nightly", "due_at": "2026-05-01T12:00:00+00:00"}


def test_a_stored_schedule_is_read_back_the_same() -> None:
    before = schedule(
        cron="0 3 * * *", timezone="Europe/Berlin", tags=("a",), retry={"max_retries": 2}, missed=Missed.ALL
    )
    assert read_spec(before.spec) == before
    assert read_spec(before.spec).revision == before.revision


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({}, "type: is required"),
        ({"type": "noop"}, "either cron or interval"),
        ({"type": "noop", "cron": "0 3 * * *", "interval": 5}, "either cron or interval"),
        ({"type": "noop", "cron": "R * * * *"}, "random"),
        ({"type": "noop", "cron": "61 * * * *"}, "not a cron expression"),
        ({"type": "noop", "cron": "0 0 30 2 *"}, "with a due time"),
        ({"type": "noop", "cron": "0 3 * *"}, "5 fields"),
        ({"type": "noop", "interval": 0}, "interval: must be"),
        ({"type": "noop", "interval": "often"}, "interval: "),
        ({"type": "noop", "interval": 5, "timezone": "Berlin"}, "not a time zone"),
        (
            {"type": "noop", "interval": 5, "priority": "urgent"},
            "priority: must be one of normal, default, got 'urgent'",
        ),
        ({"type": "noop", "interval": 5, "missed": "never"}, "missed: .*'skip', 'once', 'all'"),
        ({"type": "noop", "interval": 5, "every": 3}, "every: is unknown"),
        ({"type": "firmq.webhook", "interval": 5}, "is internal"),
        ({"type": "noop", "interval": 5, "timeout": "long"}, "timeout: "),
        ({"type": "noop", "interval": 5, "expires_in": 0}, "expires_in: "),
        ({"type": "noop", "interval": 5, "retry": {"jitter": 2}}, "retry.jitter: "),
        ({"type": "noop", "interval": 5, "tags": ["no blanks"]}, "tags.0: "),
        ({"type": "noop", "interval": 5, "tags": "one"}, "tags: "),
        ("0 3 * * *", "must be a mapping"),
    ],
)
def test_a_wrong_declaration_is_named(entry: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_declared("nightly", entry, {"normal": 1}, "normal")


@pytest.mark.parametrize(
    ("webhook", "complaint"),
    [
        ({}, "webhook.url: "),
        ({"url": "https://shop.example/", "urls": 1}, "webhook.urls: "),
        ({"url": "http://10.0.0.1/hook"}, "webhook.url: 10.0.0.1 is not a public address"),
        ({"url": "http://shop.example:22/"}, "webhook.url: uses port 22"),
        ({"url": "http://shop.example/not checked"}, "webhook.url: must be at most"),
        ({"url": "https://shop.example/", "events": "completed"}, "webhook.events: "),
        ({"url": "https://shop.example/", "events": ["begun"]}, "webhook.events.0: "),
        ({"url": "https://shop.example/", "events": []}, "webhook.events: "),
        ({"url": "https://shop.example/", "retry": {"max_retries": "many"}}, "webhook.retry.max_retries: "),
        ({"url": "https://shop.example/", "retry": {"retries": 1}}, "webhook.retry.retries: "),
    ],
)
def test_a_wrong_webhook_of_a_declared_schedule_fails_the_start_by_its_field(webhook: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"schedules.nightly: {complaint}"):
        Settings(schedules={"nightly": {"type": "noop", "interval": 5, "webhook": webhook}})


def test_a_declared_webhook_may_go_where_the_settings_let_it() -> None:
    entry = {"type": "noop", "interval": 5, "webhook": {"url": "http://10.0.0.1:22/hook", "events": ["failed"]}}
    [declared] = Settings(schedules={"nightly": entry}, webhook_allow=("10.0.0.0/8",)).declared_schedules() or []
    assert declared.webhook == Webhook(url="http://10.0.0.1:22/hook", events=("failed",))


def test_a_name_must_leave_room_for_the_due_time() -> None:
    with pytest.raises(ValueError, match="is not a schedule name"):
        schedule(name="x" * 47, interval=5)
