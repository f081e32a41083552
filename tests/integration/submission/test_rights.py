"""The rights of the shipped list for programs that submit: enough for all methods, and for nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.redis.linker import source
from tests.support import one_slot
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.least_privilege import SUBMITTER, rules

SCRIPTS = ("submit", "submit_one", "submit_once", "submit_one_once", "cancel", "types_read", "audit")
RULES = rules("redis-acl-submit.conf")
PATTERNS = [rule.rpartition("~")[2].rstrip(")") for rule in RULES if "~" in rule]
FOREIGN = f"{one_slot.PREFIX}another:key"
"""A key of another system, in the slot that a node has."""
OUTSIDE = (
    ("GET", FOREIGN),
    ("SET", FOREIGN, "1"),
    ("DEL", FOREIGN),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("CONFIG", "GET", "*"),
    ("SCRIPT", "FLUSH"),
    ("RENAME", keys.TASKS, "mine"),
    ("SUBSCRIBE", "anything"),
    ("PUBLISH", "rq:pubsub:worker", "shutdown"),
    ("HGETALL", keys.api_key("k1")),
    ("GET", keys.DASHBOARD_SECRET),
    ("HSET", keys.lock("timeout"), "token", "1"),
    ("HSET", keys.schedule("nightly"), "type", "process"),
    ("EVAL", "return redis.call('FLUSHALL')", "0"),
    ("EVAL", f"return redis.call('GET', '{FOREIGN}')", "0"),
)


@pytest.mark.parametrize("command", OUTSIDE, ids=lambda command: " ".join(command)[:40])
def test_anything_else_is_refused(redis_client: Redis, submitter_url: str, command: tuple[str, ...]) -> None:
    redis_client.set(FOREIGN, "theirs")
    with connect(submitter_url) as client, pytest.raises(ResponseError) as refused:
        client.execute_command(*command)
    assert "permission" in str(refused.value).lower() or "can't" in str(refused.value)
    assert redis_client.get(FOREIGN) == b"theirs"


@pytest.mark.parametrize(
    "command",
    [
        ("SET", keys.FORMAT, "99"),
        ("DEL", keys.FORMAT),
        ("DEL", keys.PAUSED),
        ("HDEL", keys.PAUSED, "normal"),
        ("HSET", keys.PAUSED, "normal", "{}"),
        ("DEL", keys.LIMITS),
        ("HSET", keys.LIMITS, "type:process", "{}"),
        ("UNLINK", keys.WORKERS),
        ("ZADD", keys.WORKERS, "1", "ghost"),
        ("EXPIRE", keys.WORKERS, "1"),
        ("DEL", keys.TYPE_VERSIONS),
        ("SET", keys.type_set("x"), "1"),
        ("DEL", keys.HISTORY),
        ("DEL", keys.AUDIT),
        ("EXPIRE", keys.AUDIT, "1"),
        ("XREVRANGE", keys.AUDIT, "+", "-"),
        ("EVAL", f"return redis.call('DEL', '{keys.AUDIT}')", "0"),
        ("EVAL", f"return redis.call('SET', '{keys.FORMAT}', '99')", "0"),
    ],
    ids=lambda command: " ".join(command)[:40],
)
def test_what_a_submission_only_reads_cannot_be_changed(
    redis_client: Redis, redis_server: EmbeddedRedis, submitter_url: str, command: tuple[str, ...]
) -> None:
    if redis_server.server.version < (7, 0, 0):
        pytest.skip("Redis 6.2 has no keys to read only")
    with connect(submitter_url) as client, pytest.raises(ResponseError, match=r"(?i)permission|can't"):
        client.execute_command(*command)


def test_every_key_and_command_of_its_scripts_is_on_the_list() -> None:
    text = "\n".join(source(name, keys) for name in SCRIPTS)
    commands = {f"+{name.lower()}" for name in re.findall(r"redis\.p?call\('([A-Z]+)'", text)}
    assert commands - {rule.partition("|")[0] for rule in RULES} == set()
    used = {key for key in re.findall(r"'((?:firmq|rq):[^']*)'", text) if key != "firmq:"}
    channels = [rule[1:] for rule in RULES if rule.startswith("&")]
    missing = {key for key in used if not any(_matches(each, key) for each in (*PATTERNS, *channels))}
    assert missing == set()


def test_nothing_is_denied_that_a_queue_does(redis_client: Redis, queue: Any) -> None:
    redis_client.execute_command("ACL", "LOG", "RESET")
    parent = queue.submit("process", 1, tags=["a"], unique_key="u", **dict(rows("OPTIONS")))
    redis_client.hset(keys.LIMITS, "key:l", '{"concurrency": 1}')
    child = queue.submit("process", 2, depends_on=[parent.task_id], fair_key="f", limit_key="l", expires_in=60)
    queue.submit("process", 3, delay=60, idempotency_key="k")
    queue.submit("process", 3, delay=60, idempotency_key="k")
    queue.submit("process", 4, unique_key="u", on_conflict="replace", fair_key="g")
    queue.submit("process", 4, unique_key="u", on_conflict="existing")
    assert queue.get(child.task_id).status == "cancelled"
    assert queue.get(parent.task_id).cancel_reason
    assert queue.wait(parent.task_id, timeout=1).status == "cancelled"
    waiting = queue.submit("process", 5)
    assert queue.cancel(waiting.task_id).status == "cancelled"
    denied = redis_client.execute_command("ACL", "LOG")
    assert not denied, [(each[5], each[7], each[9]) for each in denied]


@pytest.mark.parametrize("may", [True, False])
def test_a_job_of_rq_is_cancelled_with_its_task_or_left_as_it_is(
    redis_client: Redis, make_queue: Any, submitter_url: str, may: bool
) -> None:
    queue = make_queue()
    task = queue.submit("process", 1).task_id
    job = f"rq-{task}-1"
    redis_client.hset(keys.rq_job(task), "step:rq-job", f'{{"value":{{"job":"{job}","over":false,"number":1}}}}')
    redis_client.hset(keys.rq_job(job), mapping={"status": "queued", "origin": "imports"})
    redis_client.rpush(keys.rq_queue("imports"), job)
    if not may:
        redis_client.execute_command("ACL", "SETUSER", SUBMITTER, "-lrem")
    try:
        assert queue.cancel(task).status == "cancelled"
    finally:
        redis_client.execute_command("ACL", "LOAD")
    left = redis_client.lrange(keys.rq_queue("imports"), 0, -1)
    found = (redis_client.hget(keys.rq_job(job), "status"), left)
    assert found == ((b"canceled", []) if may else (b"queued", [job.encode()]))


def _matches(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern
