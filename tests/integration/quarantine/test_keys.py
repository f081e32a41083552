"""Whatever is at a key where something else belongs: nobody stops, it is set aside, and honest tasks are completed.

The cases are made of the map of keys (`shared/redis/keys.py`), so a new kind of key is among them from its first day.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import pytest
from redis import Redis

from firmq.shared.redis import quarantine
from tests.integration.quarantine.scene import Kind, Scene, kinds, make
from tests.support.keys import keys

LONG = bool(os.environ.get("TEST_LONG"))
TYPES = ("string", "list", "set", "zset", "hash", "stream")
KINDS = {kind.name: kind for kind in kinds()}
NOT_OURS_TO_MEND = {
    "FORMAT",
    "RQ_RATE_LIMITS",
    "RQ_SCHEDULER_ENTRIES",
    "RQ_SCHEDULER_LOCK",
    "rq_ready",
}
"""Data of an unknown format is not worked with, and what RQ alone keeps is left to it."""


def put(client: Redis, key: str, kind: str) -> None:
    """Something of this type at a key."""
    client.delete(key)
    match kind:
        case "string":
            client.set(key, b"\xff not what belongs here")
        case "list":
            client.rpush(key, b"\xff", "x", "x")
        case "set":
            client.sadd(key, b"\xff", "x")
        case "zset":
            client.zadd(key, {"ÿ": 1, "x": float("inf")})
        case "hash":
            client.hset(key, b"\xff", "x")
        case "stream":
            client.xadd(key, {"x": b"\xff"})


def wrong_types(kind: Kind) -> list[str]:
    wrong = [each for each in TYPES if each != kind.type]
    return wrong if LONG else wrong[len(kind.name) % len(wrong) :][:1]


TRUE_REFUSALS = ("/problems/corrupt-record", "no worker has registered its task types yet")
"""What is answered once housekeeping has been by: the second while no live worker writes its types anew."""


def endure(
    scene: Scene,
    caplog: pytest.LogCaptureFixture,
    damaged: Sequence[str] = (),
    keys: Sequence[str] = (),
    refused: Sequence[int] = (503,),
) -> None:
    """Everybody meets the damage before housekeeping does, and again after it; `damaged` tasks are shown too.

    Everybody is who reads one of `keys`, if they are given. `refused` are the statuses of refusals that need no reason.
    """
    chosen = keys and not LONG
    caplog.clear()
    for path, status, said in scene.refusals(damaged, scene.readers(*keys) if chosen else None):
        assert status in refused or "/problems/corrupt-record" in said, (path, said)
    scene.work()
    for _ in range(10):
        scene.keep()
        scene.work()
        if not scene.unfinished():
            break
    assert not scene.unfinished()
    scene.forget()
    again = scene.refusals(damaged, scene.readers_and_some(*keys) if chosen else None)
    assert not [each for each in again if not any(why in each[2] for why in TRUE_REFUSALS)]
    thrown = [record for record in caplog.records if record.exc_info]
    assert not thrown, (thrown[0].getMessage(), thrown[0].exc_text)


def test_the_scene_is_sound(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put_back()
    assert not list(scene.refusals())
    endure(scene, caplog)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.registration
def test_the_types_that_are_looked_after_are_those_of_the_map() -> None:
    ours = [kind for kind in KINDS.values() if kind.parameter is None and kind.name not in NOT_OURS_TO_MEND]
    single = {make(keys, kind): kind.type for kind in ours}
    ended = dict.fromkeys(map(keys.ended, ("completed", "failed", "cancelled", "expired")), "zset")
    assert single | ended == quarantine.single(keys)
    of_queue = {
        make(keys, each)(""): each.type
        for each in KINDS.values()
        if each.parameter in ("queue", "lane") and each.name not in NOT_OURS_TO_MEND
    }
    assert of_queue == quarantine.of_queue(keys)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name in KINDS for wrong in wrong_types(KINDS[name]) if name not in NOT_OURS_TO_MEND],
)
def test_a_key_of_another_type_stops_no_part(
    scene: Scene, caplog: pytest.LogCaptureFixture, name: str, wrong: str
) -> None:
    for key in scene.keys_of(KINDS[name]):
        scene.put_back()
        if key in map(keys.rq_job, scene.honest):
            continue
        put(scene.redis, key, wrong)
        endure(scene, caplog, keys=[key])
