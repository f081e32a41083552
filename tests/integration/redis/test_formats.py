"""Data of another version: whoever does not know its format leaves it alone and says so."""

from __future__ import annotations

import re

import pytest
from redis import Redis

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IncompatibleSchema
from firmq.shared.redis import schema_version
from firmq.shared.redis.client import connect, translated
from tests.support.harness import System, wait_until
from tests.support.keys import keys

PARTS = (("gateway",), ("worker",), ("housekeeper",), ("dashboard",))
PORTS = {"GATEWAY_PORT": "0", "DASHBOARD_PORT": "0"}


def test_an_empty_redis_is_marked_by_the_first_connection(redis_client: Redis, redis_url: str) -> None:
    with connect(redis_url) as client:
        client.ping()
    assert redis_client.get(keys.FORMAT) == str(schema_version.FORMAT).encode()


def test_an_older_format_that_is_still_read_is_raised(
    redis_client: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.set(keys.FORMAT, schema_version.FORMAT)
    monkeypatch.setattr(schema_version, "FORMAT", schema_version.FORMAT + 1)
    monkeypatch.setattr(schema_version.judge, "__defaults__", (schema_version.FORMAT, schema_version.OLDEST_READ))
    with connect(redis_url) as client:
        client.ping()
    assert redis_client.get(keys.FORMAT) == str(schema_version.FORMAT).encode()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[0])
def test_a_part_that_meets_a_newer_format_says_so_and_ends(system: System, part: tuple[str, ...]) -> None:
    system.redis.set(keys.FORMAT, schema_version.FORMAT + 1)
    process = system.start(*part, **PORTS)
    assert process.wait(60) == 2
    assert f"format {schema_version.FORMAT + 1} and this version reads up to {schema_version.FORMAT}" in system.logs()
    assert system.redis.keys() == [keys.FORMAT.encode()]


def test_connections_made_before_the_format_changed_cannot_write(system: System) -> None:
    ours = connect(system.url)
    with ours:
        assert ours.ping()
        system.redis.set(keys.FORMAT, schema_version.FORMAT + 1)
        before = system.redis.dbsize()
        with pytest.raises(IncompatibleSchema, match="another version has taken over"), translated():
            system.submit("noop")
        assert system.redis.dbsize() == before


def test_a_worker_pauses_while_the_data_format_is_newer(system: System) -> None:
    worker = system.start_worker(WORKER_EXECUTORS="2")
    system.start_housekeeper()
    # One that starts after the change ends at once, and then nothing wakes the worker.
    wait_until(lambda: re.search(r"housekeeper \S+: .*unlock", system.logs()), "the housekeeper is at work")
    system.queues.pause("normal", "until the format has changed")
    waiting = system.submit_many([("noop", "null")] * 50)
    system.redis.set(keys.FORMAT, schema_version.FORMAT + 1)
    system.redis.hdel(keys.PAUSED, "normal")  # by a version that may write
    # A connection made anew in the meantime says it in other words.
    says = ("another version has taken over", f"this version reads up to {schema_version.FORMAT}")
    wait_until(lambda: any(each in system.logs() for each in says), "the worker says why it stands still")
    assert system.redis.zcard(keys.pending("normal")) == 50
    assert worker.poll() is None
    system.redis.set(keys.FORMAT, schema_version.FORMAT)
    assert {system.ended(each).summary.state for each in waiting} == {TaskState.COMPLETED}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[0])
def test_a_part_that_meets_the_keys_of_format_5_says_so_and_ends(system: System, part: tuple[str, ...]) -> None:
    system.redis.delete(keys.FORMAT)
    system.redis.set("taskqueue:format", "5")
    process = system.start(*part, **PORTS)
    assert process.wait(60) == 2
    assert "format 5 or older (taskqueue:format)" in system.logs()
    assert "Traceback" not in system.logs()
    assert system.redis.keys() == [b"taskqueue:format"]


@pytest.mark.parametrize("mark", ["soon", "9" * 5000], ids=["word", "many digits"])
def test_a_damaged_mark_is_refused(system: System, mark: str) -> None:
    system.redis.set(keys.FORMAT, mark)
    process = system.start("worker", WORKER_EXECUTORS="2")
    assert process.wait(60) == 2
    assert "the unknown format" in system.logs()
    assert "Traceback" not in system.logs()


def test_a_mark_of_the_wrong_type_is_refused(system: System) -> None:
    system.redis.rpush(keys.FORMAT, "4")
    process = system.start("worker", WORKER_EXECUTORS="2")
    assert process.wait(60) == 2
    assert f"{keys.FORMAT} holds a value of the wrong type" in system.logs()
