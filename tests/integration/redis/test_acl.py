"""A Redis user with the shipped list of rights: everything works, and nothing else is allowed.

All tests that hand `redis_url` to a part run it as that user.
"""

from __future__ import annotations

import re

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from firmq.shared.errors import StoreMisfit
from firmq.shared.redis.client import connect, translated
from firmq.shared.redis.linker import sources
from tests.support import one_slot
from tests.support.harness import System
from tests.support.least_privilege import USER, rules

COMMANDS = {rule[1:].partition("|")[0] for rule in rules() if rule.startswith("+")}
FOREIGN = f"{one_slot.PREFIX}another:key"
"""A key of another system, in the slot that a node has."""
OUTSIDE = (
    ("KEYS", "*"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("CONFIG", "SET", "dir", "/tmp"),
    ("CONFIG", "GET", "*"),
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "FLUSH"),
    ("REPLICAOF", "NO", "ONE"),
    ("SHUTDOWN", "NOSAVE"),
    ("ACL", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("MONITOR",),
    ("SAVE",),
    ("PUBLISH", "rq:pubsub:worker", "shutdown"),
    ("SUBSCRIBE", "anything"),
    ("GET", FOREIGN),
    ("SET", FOREIGN, "1"),
    ("DEL", FOREIGN),
    ("EVAL", "return redis.call('KEYS', '*')", "0"),
    ("EVAL", f"return redis.call('GET', '{FOREIGN}')", "0"),
    ("EVAL", "return redis.call('FLUSHALL')", "0"),
)


@pytest.mark.registration
def test_every_command_of_a_script_is_on_the_list() -> None:
    text = "".join(sources().values())
    used = {name.lower() for name in re.findall(r"redis\.p?call\('([A-Z]+)'", text)}
    assert used <= COMMANDS, f"missing in shared/redis-acl.conf: {sorted(used - COMMANDS)}"


@pytest.mark.parametrize("command", OUTSIDE, ids=lambda command: " ".join(command)[:40])
def test_commands_outside_the_acl_are_refused(redis_client: Redis, redis_url: str, command: tuple[str, ...]) -> None:
    redis_client.set(FOREIGN, "theirs")
    with connect(redis_url) as client, pytest.raises((NoPermissionError, StoreMisfit)), translated():
        client.execute_command(*command)
    assert redis_client.get(FOREIGN) == b"theirs"


def test_a_user_who_lacks_a_right_is_told_which_list_to_look_at(system: System) -> None:
    system.redis.execute_command("ACL", "SETUSER", USER, "-get")
    try:
        process = system.start("worker", WORKER_EXECUTORS="2")
        assert process.wait(60) == 2
        assert "the Redis user lacks a right" in system.logs()
        assert "shared/redis-acl.conf" in system.logs()
    finally:
        system.redis.execute_command("ACL", "SETUSER", USER, "+get")


def test_the_acl_allows_everything_that_the_parts_need(system: System) -> None:
    system.redis.execute_command("ACL", "LOG", "RESET")
    system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper(HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true")
    good = system.submit_many([("slowly", '{"seconds": 0.05}')] * 20)
    bad = system.submit("fail", retry={"max_retries": 1})
    for each in (*good, bad):
        system.ended(each)
    denied = system.redis.execute_command("ACL", "LOG")
    assert not denied, [(each[5], each[7], each[9]) for each in denied]
