"""Keys of the right type with values that nobody wrote: strange entries, texts where numbers belong."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from tests.integration.quarantine.scene import Kind, Scene
from tests.integration.quarantine.test_keys import KINDS, LONG, NOT_OURS_TO_MEND, endure

TEXTS = (
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b'[["x"], 5]',
    b'{"concurrency": "x", "reason": [], "queues": 5}',
    b"-1",
    b"nan",
    b"9" * 400,
    b"9" * 5000,
    b"9000000000000000000",
    b"[" * 100_000,
    b'{"reason": "x", "at": "2026-01-01T00:00:00", "name": 5, "concurrency": 1.5, "count": 1e308, "per": 1e-320}',
)
STRANGE: tuple[str | bytes, ...] = (
    "nobody's",
    "",
    "a|b|c|d",
    "task:",
    "x" * 10_000,
    "ÿþ\x00",
    b"\xff\xfe",
    b"\xfe\xff",
)
SCORES = (0, float("-inf"), 1, 2, float("inf"), -1, 9e15, 9e15)
CASES = [
    (name, number)
    for at, name in enumerate(name for name in KINDS if name not in {*NOT_OURS_TO_MEND, "rq_job"})
    for number in range(len(TEXTS))
    if LONG or (KINDS[name].type in ("hash", "string") and number % 6 == at % 6) or number == at % len(TEXTS)
]


def spoil(client: Redis, key: str, kind: Kind, text: bytes) -> None:
    """Values of a kind of key as somebody might leave them who tries things out."""
    match kind.type:
        case "hash":
            client.hset(key, mapping=dict.fromkeys([*client.hkeys(key), "nobody's"], text))
        case "zset":
            members: dict[Any, float] = dict(zip(STRANGE, SCORES, strict=True))
            client.zadd(key, members)
        case "list":
            client.lpush(key, text, *STRANGE)
            client.rpush(key, text, *STRANGE)
        case "set":
            client.sadd(key, text, *STRANGE)
        case "string":
            client.set(key, text)
        case "stream":
            client.xadd(key, {"nobody's": text, b"\xff": text})


@pytest.mark.parametrize(("name", "number"), CASES)
def test_strange_values_stop_no_part(scene: Scene, caplog: pytest.LogCaptureFixture, name: str, number: int) -> None:
    for key in scene.keys_of(KINDS[name])[:3]:
        scene.put_back()
        spoil(scene.redis, key, KINDS[name], TEXTS[number])
        endure(scene, caplog, keys=[key])
