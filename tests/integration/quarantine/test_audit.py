"""What somebody did is done and answered whatever has become of the record of what people do."""

from __future__ import annotations

import logging

import pytest

from firmq.shared.redis.client import connect
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.locks import LockAdmin
from tests.integration.quarantine.scene import Scene
from tests.support.harness import free_port
from tests.support.keys import keys

LAST = f"{2**64 - 1}-{2**64 - 1}"


@pytest.fixture
def full(scene: Scene) -> Scene:
    """Its record has an entry with the last id that there is, so that it takes no more."""
    scene.put_back()
    scene.redis.xadd(keys.AUDIT, {"who": b"\xff"}, id=LAST)
    return scene


def newest(scene: Scene) -> tuple[str, str]:
    entry = Audit(scene.redis).page(1)[0][0]
    return entry.what, entry.about


def test_a_record_that_takes_no_more_makes_room_for_a_new_one(full: Scene) -> None:
    answer = full.gateway.test_client().post("/queues/low/resume")
    assert answer.status_code == 200, answer.text
    assert "low" in newest(full)[1]
    assert LAST in str(full.redis.xrange(keys.quarantined(keys.AUDIT))), "the old one can be looked at for a week"
    assert not list(full.refusals())


def test_a_lock_is_taken_away_although_the_record_takes_no_more(full: Scene) -> None:
    desk = LockAdmin(full.scripts)
    held = desk.get("recovery")
    assert held
    assert held.token
    assert desk.force("recovery", held.token, "somebody", "a reason") == "hk-1"
    taken = desk.get("recovery")
    assert taken
    assert not taken.locked
    assert newest(full)[0] == "unlocked"


@pytest.mark.parametrize("held", ["string", "hash"])
def test_something_else_in_its_place_costs_no_entry(scene: Scene, held: str) -> None:
    scene.put_back()
    scene.redis.delete(keys.AUDIT)
    if held == "string":
        scene.redis.set(keys.AUDIT, "x")
    else:
        scene.redis.hset(keys.AUDIT, "x", "x")
    assert scene.gateway.test_client().post("/queues/low/resume").status_code == 200
    assert "low" in newest(scene)[1]


def test_what_cannot_be_recorded_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with connect(f"redis://127.0.0.1:{free_port()}") as away, caplog.at_level(logging.WARNING):
        Audit(away).record("ann", "paused queue", "low", "a reason")
    [line] = [each for each in caplog.records if each.name == "firmq.shared.stores.audit"]
    assert line.getMessage() == "audit entry not stored"
    assert (vars(line)["who"], vars(line)["what"], vars(line)["about"]) == ("ann", "paused queue", "low")
