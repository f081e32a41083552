"""The retry policy as a table."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.retry import RetryPolicy, read_rules


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 5), (2, 10), (3, 20), (4, None)],
)
def test_the_default_delays_are_5_10_20_and_then_none(failures: int, seconds: float | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert RetryPolicy().delay(failures) == expected


def test_a_delay_never_exceeds_the_maximum_even_where_the_power_overflows() -> None:
    policy = RetryPolicy(max_retries=10_000, max_delay=60)
    assert policy.delay(9) == timedelta(seconds=60)
    assert policy.delay(9_999) == timedelta(seconds=60)


def test_no_retries_means_the_first_failure_is_the_last() -> None:
    assert RetryPolicy(max_retries=0).delay(1) is None


def test_jitter_stays_within_its_share() -> None:
    policy = RetryPolicy(jitter=0.2, max_retries=1000, multiplier=1)
    delays = [policy.delay(n, Random(n)) for n in range(1, 500)]
    seconds = [delay.total_seconds() for delay in delays if delay]
    assert 4 <= min(seconds) < 4.3
    assert 5.7 < max(seconds) <= 6


def test_overrides_change_fields_by_name_and_ignore_what_a_newer_gateway_may_send() -> None:
    policy = RetryPolicy().override({"max_retries": 1.0, "initial_delay": 0.5, "phase_of_moon": 3})
    assert policy == RetryPolicy(max_retries=1, initial_delay=0.5)
    assert RetryPolicy().override(None) == RetryPolicy()


@pytest.mark.parametrize(
    "changes",
    [
        {"initial_delay": math.nan},
        {"initial_delay": "x"},
        {"max_retries": math.inf},
        {"max_retries": math.nan},
        {"max_delay": -1},
        {"multiplier": 1e300},
        {"jitter": [1]},
        {"max_retries": None},
    ],
)
def test_an_impossible_delay_is_no_policy(changes: dict[str, Any]) -> None:
    with pytest.raises(UNREADABLE):
        RetryPolicy().override(changes)


def test_a_policy_gives_a_delay_whatever_its_numbers_and_however_often_it_was_tried() -> None:
    most = RetryPolicy(max_retries=10**9, initial_delay=1e9, multiplier=1e9, max_delay=1e9, jitter=1)
    assert all(most.delay(failures, Random(failures)) for failures in (1, 2, 35, 10**6))


def test_pauses_stand_in_place_of_the_backoff() -> None:
    policy = RetryPolicy().override({"pauses": [15, 60, 300]})
    seconds = [delay and delay.total_seconds() for delay in map(policy.delay, (1, 2, 3, 4))]
    assert seconds == [15, 60, 300, None]
    assert policy.override({"max_retries": 4}).delay(4) == timedelta(seconds=300)
    assert policy.override({"initial_delay": 2}).delay(1) == timedelta(seconds=2)


def test_rules_by_error_take_the_nearest_class() -> None:
    given = {OSError: None, ConnectionError: [1, 5], TimeoutError: lambda error, failures: 7 * failures}
    changes, rules = read_rules(given)
    assert changes == {}
    assert rules.gives_up(OSError())
    assert rules.changes(ConnectionResetError()) == {"pauses": [1, 5]}
    assert rules.pause(TimeoutError(), 2) == timedelta(seconds=14)
    assert not rules.gives_up(ValueError())
    assert rules.changes(ValueError()) == {}


@pytest.mark.parametrize("given", ["15", 15, [], [True], [-1], ["soon"], {"OSError": [1]}, {OSError: "x"}, [1.0] * 101])
def test_rules_that_cannot_be_used_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_rules(given)
