"""When a worker counts as dead, on a clock that is turned by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from firmq.worker.engine.liveness import SLOW_START, STILL, Liveness


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


SIGNS = ("passed_at", "talked_at", "announced_at", "manned_at")


def after(silent: str, seconds: float, lease: float = 9.0) -> list[str]:
    """What is said when one part is silent for a while and all others are well."""
    clock = Clock()
    liveness = Liveness(lease, clock)
    clock.now += seconds
    for sign in SIGNS:
        if sign != silent:
            setattr(liveness, sign, clock.now)
    return liveness.troubles()


@pytest.mark.parametrize(
    ("sign", "patience", "words"),
    [
        ("passed_at", STILL, "loop"),
        ("talked_at", STILL + 3, "claimed, reported or extended"),
        ("announced_at", STILL, "sent no heartbeat"),
        ("manned_at", SLOW_START, "executor"),
    ],
)
def test_each_part_that_falls_silent_is_named_after_its_patience(sign: str, patience: float, words: str) -> None:
    assert after(sign, patience - 1) == []
    [trouble] = after(sign, patience + 1)
    assert words in trouble
    assert f"for {patience + 1:.0f} s" in trouble


def test_a_worker_with_long_leases_and_all_hands_full_need_not_talk_often() -> None:
    assert after("talked_at", 120, lease=300) == []
    assert after("talked_at", 140, lease=300)
