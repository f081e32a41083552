"""Records damaged by hand, every field in every way at once: each is shown as it is, and nobody stops.

Each field of each kind of record gets a task of its own, so that what one damage does is not hidden by another.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import pytest
from redis import Redis

from firmq.shared.domain.task import TaskState
from tests.integration.quarantine.scene import Scene
from tests.integration.quarantine.test_keys import LONG, endure, put
from tests.support.keys import keys

GARBAGE: Mapping[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "no UTF-8": b"\xff\xfe\x00",
    "no JSON": b'{"a":',
    "another JSON": b'[[1, null], {"a": [2]}, "x"]',
    "an object": b'{"type": 5, "message": [], "fraction": "x", "outcome": "completed", "logs": [1], "url": 7}',
    "numbers that are none": b'{"max_retries": 1e999, "initial_delay": NaN, "fraction": 1e999, "outcome": "failed", '
    b'"retry_delay": NaN, "started_at": Infinity}',
    "null": b"null",
    "a negative number": b"-7",
    "not a number": b"nan",
    "infinite": b"1e400",
    "a huge number": b"9" * 400,
    "deeply nested": b"[" * 100_000,
    "ten megabytes": b"x" * 10_000_000,
    "more digits than are read": b"9" * 5000,
    "beyond all calendars": b"9000000000000000000",
    "a fraction of too much": b'{"fraction": 1e308, "message": "x"}',
    "ages": b'{"outcome": "failed", "started_at": 1e15, "ended_at": 1.1e15, "retry_delay": 8.6e13, '
    b'"spans": [{"name": "x", "after_us": 8e19, "us": -8e19}]}',
}
KNOWN = """
state status data origin description created_at enqueued_at started_at ended_at timeout time_limit meta
worker_name attempt failures crashes losses suspicions token begun due_at expires_at tags retry error progress
cancel unique unique_until unique_client attempt:1 relations children child:1 parents on_parent_failure
open_parents spawned batch batch_index after_batch limit_key fair_key score wait_queue webhook delivered_end
deliveries delivery_of receiver sent_back refused refusal pinned submitted_by bulk
"""
FIELDS = (*KNOWN.split(), "unknown field")
"""What `keys.rq_job` lists, and one that nobody knows."""
PROSE = """
a action after also and beside by cancelled delivered delivery each end ever every fields for hash holds host
how is it its links many of on one others ours owner per permanent record rely script task that the them
these to type version versions was we which why with
"""
"""The other words of that docstring."""
STATES = (TaskState.PENDING, TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.RUNNING, TaskState.COMPLETED)
RESULTS: Mapping[str, bytes] = {
    "no base64": b"!!!",
    "no JSON": base64.b64encode(b"{"),
    "no UTF-8": base64.b64encode(b"\xff"),
    "nested": base64.b64encode(b"[" * 100_000),
}


def test_every_field_of_the_map_is_damaged() -> None:
    listed = (keys.rq_job.__doc__ or "").replace(":N`", ":1`")
    written = {each.strip("`.,:;()") for each in listed.split()}
    assert {each for each in written if each.islower()} - set(PROSE.split()) == set(FIELDS) - {"unknown field"}


def damage(client: Redis, task_id: str, field: str, value: bytes | None) -> None:
    if value is None:
        client.hdel(keys.rq_job(task_id), field)
    else:
        client.hset(keys.rq_job(task_id), field, value)


def copies(scene: Scene, state: TaskState) -> Iterator[tuple[str, str]]:
    """A task in this state for each field: a copy of the scene's, wherever that is listed."""
    original = scene.names[state]
    record = scene.redis.dump(keys.rq_job(original)) or b""
    lists = [key for key in scene.redis.scan_iter() if scene.redis.type(key) == b"zset"]
    scores = {key: scene.redis.zscore(key, original) for key in lists}
    for number, field in enumerate(FIELDS):
        copy = f"{state}-{number}"
        with scene.redis.pipeline(transaction=False) as pipeline:
            pipeline.restore(keys.rq_job(copy), 0, record)
            for key, score in scores.items():
                if score is not None:
                    pipeline.zadd(key, {copy: score})
            if state is TaskState.PENDING:
                pipeline.lpush(keys.rq_queue("normal"), copy)
            pipeline.execute()
        yield copy, field


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_corrupt_field_stops_no_part(scene: Scene, caplog: pytest.LogCaptureFixture, garbage: str) -> None:
    scene.put_back()
    value = GARBAGE[garbage]
    some = FIELDS if value is None or len(value) < 1_000_000 else FIELDS[2:32:5]
    damaged = []
    first = list(GARBAGE).index(garbage)
    for state in STATES if LONG else (STATES[first % 5], STATES[(first + 2) % 5]):
        for copy, field in copies(scene, state):
            if field in some:
                damage(scene.redis, copy, field, value)
                damaged.append(copy)
    endure(scene, caplog, damaged)


@pytest.mark.parametrize("garbage", RESULTS)
def test_a_damaged_result_is_said_to_be(scene: Scene, caplog: pytest.LogCaptureFixture, garbage: str) -> None:
    scene.put_back()
    task_id = scene.names["completed"]
    key = keys.rq_results(task_id)
    scene.redis.xadd(key, {"return_value": RESULTS[garbage]})
    answer = scene.gateway.test_client().get(f"/tasks/{task_id}")
    assert "the result cannot be read" in answer.json["corrupt"]  # type: ignore[index]
    endure(scene, caplog, keys=[key])


KINDS = ("string", "list", "set", "zset", "stream")
WHEREVER = ("pending", "running", "scheduled", "blocked", "retrying", "completed", "failed")
OTHERS = [
    (kind, state)
    for at, state in enumerate(WHEREVER)
    for number, kind in enumerate(KINDS)
    if LONG or number == at % len(KINDS)
]


@pytest.mark.parametrize(("kind", "state"), OTHERS)
def test_a_record_of_another_type_stops_no_part(
    scene: Scene, caplog: pytest.LogCaptureFixture, kind: str, state: str
) -> None:
    scene.put_back()
    [(copy, _), *_] = copies(scene, TaskState(state))
    key = keys.rq_job(copy)
    scene.redis.delete(key)
    put(scene.redis, key, kind)
    endure(scene, caplog, [copy], [keys.rq_job(scene.names[state])])
