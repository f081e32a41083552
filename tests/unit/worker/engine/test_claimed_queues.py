"""Which queues a worker's claims name."""

from __future__ import annotations

import pytest

from firmq.shared.domain.queue_selection import QueueSelection
from firmq.worker.engine.claimed_queues import ACTIVE, IDLE_LOOK, LOOK, ClaimedQueues
from firmq.worker.engine.lane_claims import LaneClaims

QUEUES = {"high": 4, "normal": 3}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(clock: Clock) -> ClaimedQueues:
    return ClaimedQueues(QueueSelection({"gpu-*": 5, "normal": None}, QUEUES, "normal"), clock)


def test_an_empty_queue_is_known_and_not_named_in_claims(queues: ClaimedQueues) -> None:
    queues.learn([[b"gpu-1", b"gpu-2", b"mail", b"normal"], [b"gpu-2", b"mail"]])
    assert queues.known == ("gpu-1", "gpu-2", "normal")
    assert queues.active == ("gpu-2", "normal")


def test_a_queue_without_tasks_leaves_the_claims_again(queues: ClaimedQueues, clock: Clock) -> None:
    queues.touch("gpu-1")
    assert "gpu-1" in queues.active
    clock.now += ACTIVE
    queues.learn([[b"gpu-1"], []])
    assert "gpu-1" not in queues.active
    assert queues.known == ("gpu-1", "normal")
    queues.learn([[], []])
    assert len(queues.known) == 1


@pytest.mark.parametrize("name", ["", "mail", "gpu-1|x", "normal"])
def test_what_is_no_other_queue_of_this_worker_changes_nothing(queues: ClaimedQueues, name: str) -> None:
    queues.touch(name)
    assert queues.changes == 0


def test_it_asks_once_a_second_and_only_with_patterns(queues: ClaimedQueues, clock: Clock) -> None:
    assert queues.look_due()
    queues.learn([[], []])
    assert not queues.look_due()
    clock.now += LOOK
    assert queues.look_due()
    queues.learn([[], []])
    clock.now += LOOK
    assert queues.look_due(idle=True)
    queues.learn([[], []])
    clock.now += LOOK
    assert not queues.look_due(idle=True)
    clock.now += IDLE_LOOK
    assert queues.look_due(idle=True)
    queues.learn([[], []])
    queues.look_soon()
    assert queues.look_due()
    assert not ClaimedQueues(QueueSelection({"normal": None}, QUEUES, "normal"), clock).look_due()


def test_a_claim_names_active_queues_and_brings_the_patterns(queues: ClaimedQueues) -> None:
    claims = LaneClaims("w", queues, "+")
    kind, next_token, patterns, *scores_and_lanes = claims.arguments(8, 1)[5:]
    assert (kind, bool(next_token), patterns) == ("+", True, "^gpu%-[^:]*$")
    assert scores_and_lanes == ["", "", "normal+", 8, ""]
    queues.touch("gpu-1")
    assert claims.arguments(8, 1)[10:] == ["gpu-1+", 5, "", "normal+", 3, ""]


def test_a_lane_is_passed_on_by_its_name_if_the_worker_takes_from_its_queue(queues: ClaimedQueues) -> None:
    claims = LaneClaims("w", queues)
    assert [claims.takes(lane) for lane in ("normal", "gpu-1+", "mail", "")] == [True, True, False, False]
