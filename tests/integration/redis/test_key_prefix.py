"""Systems that share one Redis: nothing is written outside a prefix, and no system sees another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue
from rq.job import Job
from rq.registry import FailedJobRegistry

from firmq.gateway.app import create_app as create_gateway
from firmq.shared.conditions.conditions import Level, alerts
from firmq.shared.conditions.observation import Observer
from firmq.shared.config.redis_address import completed
from firmq.shared.config.settings import Settings, load
from firmq.shared.domain.schedule import Missed, Overlap, Schedule
from firmq.shared.domain.task import TaskState, Unique
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect, keys_of, text
from firmq.shared.redis.keys import with_prefix
from firmq.shared.redis.schema_version import FORMAT
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.locks import LEADER, LockAdmin, lock_acquire
from firmq.shared.stores.schedules import ScheduleStore
from tests.integration.quarantine.scene import Scene, kinds
from tests.support.harness import ROOT, System, free_port, running_system, wait_until
from tests.support.least_privilege import guarded_server, rules_with_prefix, url_of_user

PREFIX = "shop:eu"
UNPREFIXED = re.compile(r'"(rq|firmq):')
"""A key or channel of a system without a prefix, in a line of MONITOR."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A server whose user may use keys and channels with the prefix only."""
    with guarded_server(tmp_path_factory.mktemp("redis"), granted=rules_with_prefix(PREFIX)) as started:
        yield started


@pytest.fixture
def admin(server: EmbeddedRedis) -> Iterator[Redis]:
    with connect(completed(server.url, key_prefix=PREFIX), timeout=5) as client:
        client.flushall()
        yield client


@pytest.fixture
def url(server: EmbeddedRedis) -> str:
    """The address for the parts of the system with the prefix."""
    return completed(url_of_user(server), key_prefix=PREFIX)


def denied(admin: Redis) -> list[tuple[Any, ...]]:
    return [(each[5], each[7], each[9]) for each in admin.execute_command("ACL", "LOG")]


def test_a_system_with_something_of_everything_has_all_of_it_behind_its_prefix(admin: Redis, url: str) -> None:
    admin.execute_command("ACL", "LOG", "RESET")
    scene = Scene(admin, url)
    try:
        scene.work()
        scene.keep()
        assert not list(scene.refusals())
    finally:
        scene.close()
    assert not denied(admin)
    seen = {text(key) for key in admin.scan_iter()} | {text(key) for key in scene.saved}
    assert not [key for key in seen if not key.startswith((f"{PREFIX}:firmq:", f"{PREFIX}:rq:"))]
    written = {kind.name for kind in kinds() if any(key in seen for key in scene.keys_of(kind))}
    assert len(written) > 60, f"not written by this test: {sorted({kind.name for kind in kinds()} - written)}"


def test_a_key_of_another_type_is_quarantined_behind_the_prefix(admin: Redis, url: str) -> None:
    scene = Scene(admin, url)
    keys = with_prefix(PREFIX)
    admin.delete(keys.pending("normal"))
    admin.set(keys.pending("normal"), "no sorted set")
    scene.keep()
    scene.keep()
    scene.close()
    assert admin.get(keys.quarantined(keys.pending("normal"))) == b"no sorted set"


def test_real_parts_use_no_key_and_no_channel_outside_the_prefix(
    server: EmbeddedRedis, admin: Redis, tmp_path: Path
) -> None:
    admin.execute_command("ACL", "LOG", "RESET")
    with running_system(admin, url_of_user(server), tmp_path, KEY_PREFIX=PREFIX) as system, Recording(server) as lines:
        start_parts(system)
        busy = [system.submit("slowly", '{"seconds": 0.05}') for _ in range(5)]
        failing = system.submit("fail", "{}", retry={"max_retries": 1})
        system.submit("noop", delay=timedelta(seconds=0.1))
        for each in (*busy, failing):
            system.ended(each)
        directly = system.submit("noop")
        assert system.ended(directly).summary.state is TaskState.COMPLETED
    assert not denied(admin), system.logs()
    channels = [line for line in lines if re.search(r'"(SUBSCRIBE|PUBLISH)"', line, re.IGNORECASE)]
    assert channels
    assert not [line[:200] for line in lines if UNPREFIXED.search(line)]


class Recording:
    """What MONITOR shows of a server, as lines."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.url = server.url
        self.client = Redis.from_url(server.url, socket_timeout=None)  # nothing may be sent for a while
        self.lines: list[str] = []

    def __enter__(self) -> list[str]:
        self.monitor = self.client.monitor().__enter__()
        threading.Thread(target=self._read, daemon=True).start()
        return self.lines

    def _read(self) -> None:
        with suppress(RedisError, OSError, ValueError):  # until the connection is closed
            while True:
                self.lines.append(text(self.monitor.connection.read_response()))

    def __exit__(self, *about: object) -> None:
        before = len(self.lines)
        with Redis.from_url(self.url) as client:
            client.echo("the end")
        wait_until(lambda: any('"the end"' in line for line in self.lines[before:]), "everything was recorded")
        self.monitor.connection.disconnect()


def start_parts(system: System) -> dict[str, int]:
    """Starts every part; the ports of those that serve pages."""
    ports = {"gateway": free_port(), "dashboard": free_port()}
    for part, port in ports.items():
        system.start(part, **{f"{part.upper()}_PORT": str(port), "GATEWAY_PROCESSES": "1"})
    system.start_housekeeper(HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true")
    system.start_worker()
    for path in (f"{ports['gateway']}/health/ready", f"{ports['dashboard']}/"):
        wait_until(lambda: page(path), f"{path} is served")  # noqa: B023  # called at once
    return ports


def page(path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.fixture
def neighbours(redis_server: EmbeddedRedis, redis_client: Redis, tmp_path: Path) -> Iterator[list[System]]:
    """A system without a prefix and one with it, on one server."""
    systems = []
    for prefix in ("", "shop"):
        folder = tmp_path / (prefix or "none")
        folder.mkdir()
        redis = connect(completed(redis_server.url, key_prefix=prefix), timeout=5)
        systems.append(System(redis, redis_server.url, folder, {"KEY_PREFIX": prefix}))
    yield systems
    for system in systems:
        system.stop()
        system.redis.close()


def leader(system: System) -> str:
    found = LockAdmin(system.scripts).get(LEADER)
    return (found.owner or "") if found else ""


def test_two_systems_side_by_side_do_not_see_each_other(neighbours: list[System]) -> None:
    ports = [start_parts(system) for system in neighbours]
    ids = [system.submit("echo", json.dumps({"from": at})) for at, system in enumerate(neighbours)]
    for system, task_id, other in zip(neighbours, ids, reversed(ids), strict=True):
        assert system.ended(task_id).summary.state is TaskState.COMPLETED
        assert system.records.counts()[TaskState.COMPLETED] == 1
        assert not system.redis.exists(system.scripts.keys.rq_job(other))
    leaders = [wait_until(lambda: leader(system), "it has a leader") for system in neighbours]  # noqa: B023
    assert len(set(leaders)) == 2
    names = [[each.name for each in system.workers.all()] for system in neighbours]
    assert [len(each) for each in names] == [1, 1]
    assert names[0] != names[1]
    for port, mine, other in zip(ports, ids, reversed(ids), strict=True):
        shown = page(f"{port['dashboard']}/tasks")
        assert mine in shown
        assert other not in shown
        assert page(f"{port['gateway']}/tasks/{mine}")
        assert not page(f"{port['gateway']}/tasks/{other}")
    for system in neighbours:
        now = Observer(system.scripts, load({"REDIS_URL": system.url, **system.environment})).observe()
        assert len(now.workers) == 1
        assert not [each for each in alerts(now) if each.level is Level.DANGER]


def test_locks_schedules_and_pauses_belong_to_one_system(neighbours: list[System]) -> None:
    first, second = neighbours
    for system in neighbours:
        assert system.records.state(system.submit("noop", unique=Unique(key="one"))) is TaskState.PENDING
        lock_acquire(system.scripts, "task.nightly", "nonce", "me", timedelta(seconds=30), timedelta(0))
        assert [each.name for each in LockAdmin(system.scripts).all() if each.owner == "me"] == ["task.nightly"]
    schedule = Schedule(
        name="nightly",
        type="noop",
        data="null",
        queue="low",
        cron="0 3 * * *",
        interval=None,
        timezone="UTC",
        missed=Missed.ONCE,
        missed_limit=1,
        overlap=Overlap.ALLOW,
    )
    ScheduleStore(second.scripts).put(schedule)
    second.queues.pause("low", "by the second")
    Batches(second.scripts).open("b" * 32, BatchTerms(name="of the second"))
    assert [len(ScheduleStore(each.scripts).page(10).items) for each in neighbours] == [0, 1]
    assert [bool(each.paused) for each in first.queues.overview()] == [False] * 4
    assert [each.name for each in second.queues.overview() if each.paused] == ["low"]
    assert [each.redis.zcard(each.scripts.keys.BATCHES) for each in neighbours] == [0, 1]


def test_a_newer_format_stops_its_own_system_only(neighbours: list[System]) -> None:
    first, second = neighbours
    second.redis.set(second.scripts.keys.FORMAT, FORMAT + 1)
    first.start_worker()
    refused = second.start("worker")
    assert refused.wait(60) == 2
    assert f"format {FORMAT + 1}" in second.logs()
    assert "key_prefix=shop" in second.logs()
    assert first.ended(first.submit("noop")).summary.state is TaskState.COMPLETED


def test_another_prefix_is_an_empty_system(neighbours: list[System]) -> None:
    neighbours[0].submit("noop")
    with connect(completed(neighbours[0].url, key_prefix="other")) as redis:
        answer = create_gateway(Settings(), redis).test_client().get("/tasks")
        assert answer.get_json()["items"] == []
        assert redis.get(keys_of(redis).FORMAT) == str(FORMAT).encode()


def test_the_documented_command_gives_the_list_for_a_prefix() -> None:
    documented = (ROOT / "docs/deploy/redis.md").read_text().splitlines()
    [line] = [each for each in documented if each.startswith("grep") and "sed" in each]
    environment = {"KEY_PREFIX": PREFIX, "PATH": os.defpath}
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert done.stdout.decode().split() == rules_with_prefix(PREFIX)


def test_rq_reads_a_system_with_a_prefix_through_its_class_attributes(neighbours: list[System]) -> None:
    system = neighbours[1]
    task_id = system.submit("noop")

    class ShopJob(Job):
        redis_job_namespace_prefix = "shop:rq:job:"

    class ShopQueue(Queue):
        job_class = ShopJob
        redis_queue_namespace_prefix = "shop:rq:queue:"
        redis_queues_keys = "shop:rq:queues"

    class ShopFailed(FailedJobRegistry):
        key_template = "shop:rq:failed:{0}"

    system.redis.zadd("shop:rq:failed:normal", {"an id": 4e9})
    assert ShopFailed("normal", connection=system.redis, serializer="json").get_job_ids(cleanup=False) == ["an id"]
    assert [queue.name for queue in ShopQueue.all(connection=system.redis, serializer="json")] == ["normal"]
    assert ShopQueue("normal", connection=system.redis, serializer="json").job_ids == [task_id]
    job = ShopJob.fetch(task_id, connection=system.redis, serializer="json")
    assert (job.description, job.get_status()) == ("noop", "queued")
