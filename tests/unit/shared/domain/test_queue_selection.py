"""Which queues a worker takes from, with which weights and in which order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from firmq.shared.domain.queue_selection import QueueSelection, matches

QUEUES = {"critical": 6, "high": 4, "normal": 3, "low": 1}


def selection(entries: Mapping[str, int | None] | None = None, strict: bool = False) -> QueueSelection:
    return QueueSelection(entries or {}, QUEUES, "normal", strict, ["reports"])


def test_without_entries_all_queues_are_taken_and_named_ones_are_in_each_claim() -> None:
    every = selection()
    assert every.names == ("critical", "high", "normal", "reports", "low")
    assert every.patterns == ("*",)
    assert every.takes("gpu")
    assert every.weight("gpu") == QUEUES["normal"]
    assert every.weight("critical") == 6


def test_names_alone_take_nothing_else() -> None:
    some = selection({"gpu": 5, "default": None})
    assert some.names == ("gpu", "normal")
    assert some.patterns == ()
    assert some.lua_patterns() == ""
    assert not some.takes("low")
    assert (some.weight("gpu"), some.weight("normal")) == (5, 3)


def test_a_pattern_takes_the_queues_of_the_setting_that_match_and_others() -> None:
    some = selection({"gpu-*": 5, "*i*": None, "gpu-0": 1})
    assert some.takes("gpu-7")
    assert not some.takes("low")
    assert some.names == ("critical", "high", "gpu-0")
    assert (some.weight("gpu-0"), some.weight("gpu-7"), some.weight("high"), some.weight("mail")) == (1, 5, 4, 3)


def test_strict_order_is_that_of_the_entries() -> None:
    strict = selection({"low": None, "gpu-*": None, "critical": None}, strict=True)
    assert strict.in_order(["critical", "gpu-2", "gpu-1", "low"]) == ("low", "gpu-1", "gpu-2", "critical")


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("gpu", "gpu", True),
        ("gpu", "gpu-1", False),
        ("gpu-*", "gpu-", True),
        ("gpu-*", "gpus", False),
        ("*.eu", "mail.eu", True),
        ("*.eu", "mailxeu", False),
        ("a*b*c", "a-b-c", True),
        ("*", "x", True),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match
