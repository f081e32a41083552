"""The doctor: what it finds in a system that is well, and in each that is not, and what it advises."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Semaphore, Thread
from typing import Any

import pytest
from redis import Redis

from firmq.gateway.app import create_app
from firmq.gateway.routes.health import RISKS
from firmq.shared.conditions.findings import Finding, Level, judged, worst
from firmq.shared.conditions.observation import Observation
from firmq.shared.config.settings import Settings, load
from firmq.shared.features.doctor.examination import examine
from firmq.shared.features.doctor.main import as_json, as_text, main
from firmq.shared.features.doctor.store import check_info
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis import schema_version
from firmq.shared.redis.client import connect
from firmq.shared.stores.locks import lock_acquire
from firmq.shared.stores.presence import Presence
from tests.support.harness import System
from tests.support.keys import keys
from tests.support.least_privilege import PASSWORD

WELL: Mapping[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "maxmemory": 1000,
    "used_memory": 100,
}


def of(findings: list[Finding], check: str) -> Finding:
    [found] = [each for each in findings if each.check == check]
    return found


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({}, "memory", Level.OK, "10% of"),
        ({"role": "slave", "master_host": "a", "master_port": 1}, "redis role", Level.ERROR, "replica of a:1"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", Level.ERROR, "evicts tasks"),
        ({"maxmemory_policy": "volatile-ttl"}, "eviction", Level.WARNING, "workers and locks"),
        ({"aof_enabled": 0}, "persistence", Level.WARNING, "no append-only file"),
        ({"aof_last_write_status": "err"}, "persistence", Level.ERROR, "cannot be written"),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, "persistence", Level.ERROR, "last snapshot failed"),
        ({"maxmemory": 0}, "memory", Level.WARNING, "without maxmemory"),
        ({"used_memory": 800}, "memory", Level.WARNING, "80% of"),
        ({"used_memory": 950}, "memory", Level.ERROR, "rejected when it is full"),
        ({"redis_version": "6.2.6"}, "redis version", Level.WARNING, "6.2.6"),
        ({"valkey_version": "9.1.0"}, "redis version", Level.OK, "Valkey 9.1.0"),
    ],
)
def test_what_redis_says_of_itself_is_judged(change: dict[str, Any], check: str, level: Level, words: str) -> None:
    found = of(check_info({**WELL, **change}, Settings()), check)
    assert found.level is level
    assert words in found.seen
    assert bool(found.advice) == (level is not Level.OK)


@pytest.mark.parametrize(
    ("said", "checks"),
    [
        ({}, []),
        (WELL, []),
        ({**WELL, "maxmemory": 0}, []),
        ({**WELL, "maxmemory_policy": "allkeys-lru", "used_memory": 950}, ["eviction", "memory"]),
        ({**WELL, "role": "slave", "aof_enabled": 0}, ["redis role", "persistence"]),
    ],
)
def test_the_overview_and_the_health_of_the_gateway_name_what_endangers_tasks(
    said: Mapping[str, Any], checks: list[str]
) -> None:
    assert [each.check for each in judged(Observation(at=datetime.now(UTC), info=said), *RISKS)] == checks


def test_replicas_that_submissions_wait_for_must_be_there() -> None:
    found = of(check_info(WELL, Settings(submit_replicas=1)), "replicas")
    assert found.level is Level.ERROR
    assert "SUBMIT_REPLICAS=1" in found.seen
    assert of(check_info({**WELL, "connected_slaves": 1}, Settings(submit_replicas=1)), "replicas").level is Level.OK


def test_a_user_who_may_not_ask_is_said_so() -> None:
    [found] = check_info({}, Settings())
    assert "INFO" in found.advice


def test_a_system_without_worker_is_doubtful_and_one_with_all_parts_is_well(system: System) -> None:
    settings = load({"REDIS_URL": system.url})
    alone = examine(settings, system.redis)
    assert of(alone, "workers").level is Level.ERROR
    assert of(alone, "latency").check == "latency"
    assert of(alone, "clock").level is Level.OK
    system.start_worker(WORKER_EXECUTORS="2")
    together = examine(settings, system.redis)
    assert "1 alive with 2 processes" in of(together, "workers").seen
    assert of(together, "task types").level is Level.OK
    assert of(together, "housekeeping").level is Level.OK
    assert of(together, "data format").seen == str(schema_version.FORMAT)


def test_a_worker_whose_record_cannot_be_read_is_named_and_not_taken_for_dead(system: System) -> None:
    system.redis.zadd(keys.WORKERS, {"strange": system.scripts.now_us()})
    system.redis.set(keys.worker("strange"), "{")
    found = of(examine(load({"REDIS_URL": system.url}), system.redis), "workers")
    assert found.level is Level.WARNING
    assert found.seen == "1 alive, with a corrupt record: strange"
    assert f"ZREM {keys.WORKERS}" in found.advice


def test_work_that_waits_for_a_housekeeper_is_an_error(system: System) -> None:
    system.submit("noop", delay=timedelta(hours=1))
    system.redis.zadd(keys.scheduled("normal"), {"forgotten": 1})
    found = of(examine(load({"REDIS_URL": system.url}), system.redis), "housekeeping")
    assert found.level is Level.ERROR
    assert 'task in queue "normal"' in found.seen
    assert "firmq housekeeper" in found.advice


def test_housekeepers_without_locks_beside_others_are_counted(system: System) -> None:
    def found() -> Finding:
        return of(examine(load({"REDIS_URL": system.url}), system.redis), "housekeeping")

    presence = Presence(system.scripts)
    presence.report("hk-1 without locks")
    assert found().level is Level.OK
    presence.report("hk-2")
    assert found().level is Level.ERROR
    assert found().seen == "2 housekeepers run, 1 without locks (hk-1): each of them runs all jobs"
    presence.withdraw("hk-2")
    assert found().level is Level.OK
    presence.report("hk-3 without locks")
    assert "2 without locks (hk-1, hk-3)" in found().seen
    system.redis.zadd(keys.PRESENCE, {"hk-1 without locks": system.scripts.now_us() - 31_000_000})
    assert found().level is Level.OK


def test_who_holds_the_locks_is_said_by_name(system: System) -> None:
    for lock, owner in (("unlock", "hk-1"), ("timeout", "hk-2"), ("ttl", "hk-1")):
        lock_acquire(system.scripts, lock, "nonce", owner, timedelta(minutes=1), timedelta(0))
    found = of(examine(load({"REDIS_URL": system.url}), system.redis), "housekeeping")
    assert found.seen == "nothing is overdue; locks are held by hk-1, hk-2"


def test_unserved_queues_are_named(system: System) -> None:
    system.start_worker(WORKER_QUEUES="critical,high,normal")
    found = of(examine(load({"REDIS_URL": system.url}), system.redis), "queues")
    assert "low" in found.seen


def test_keys_that_were_set_aside_are_counted_and_the_latest_named(system: System) -> None:
    settings = load({"REDIS_URL": system.url})
    assert of(examine(settings, system.redis), "quarantine").level is Level.OK
    system.redis.rpush(keys.FAIR, "not what belongs here")
    system.scripts.quarantine()
    found = of(examine(settings, system.redis), "quarantine")
    assert found.level is Level.WARNING
    assert "1 key in Redis" in found.seen
    assert keys.FAIR in found.seen


def test_data_of_another_version_is_an_error(system: System) -> None:
    system.redis.set(keys.FORMAT, schema_version.FORMAT + 1)
    findings = examine(load({"REDIS_URL": system.url}), system.redis)
    assert of(findings, "data format").level is Level.ERROR


def test_a_format_mark_of_the_wrong_type_is_an_error_that_names_it(system: System) -> None:
    system.redis.rpush(keys.FORMAT, 4)
    found = of(examine(load({"REDIS_URL": system.url}), system.redis), "data format")
    assert found.level is Level.ERROR
    assert keys.FORMAT in found.seen


def test_redis_away_is_an_error_and_the_rest_is_looked_at_all_the_same(
    redis_server: EmbeddedRedis,
    redis_client: Redis,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    assert main([]) == 2
    said = capsys.readouterr().out
    assert "ERROR    redis: Redis does not answer" in said
    assert "prometheus" in said
    assert "hunter2" not in said


def test_it_speaks_json_and_its_status_is_the_worst_level(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", system.url)
    assert main(["--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == "error"
    assert {"check", "level", "seen", "advice"} == set(said["checks"][0])


def test_text_puts_the_advice_below_what_was_seen() -> None:
    findings = [Finding(check="memory", level=Level.WARNING, seen="80%", advice="give it more")]
    assert as_text(findings) == "warning  memory: 80%\n         -> give it more"
    assert json.loads(as_json(findings))["status"] == "warning"
    assert worst([]) is Level.OK


def test_text_does_nothing_to_a_terminal() -> None:
    [line] = as_text([Finding(check="memory", level=Level.OK, seen="80%\x1b[2J\u202e")]).splitlines()
    assert line == "ok       memory: 80%\\u001b[2J\\u202e"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"BIND_HOST": "0.0.0.0", "ALLOW_ANONYMOUS": "true"}, "no authentication on 0.0.0.0"),
        ({"REDIS_URL": "redis://:x@192.0.2.1/0"}, "is not encrypted"),
        ({"REDIS_URL": "rediss://192.0.2.1/0"}, "requires no password"),
        ({"DRAIN_GRACE": "1"}, "DRAIN_GRACE=1"),
    ],
)
def test_settings_worth_a_second_thought_are_named(environment: dict[str, str], words: str) -> None:
    from firmq.shared.features.doctor.surroundings import check_settings

    assert any(words in each.seen for each in check_settings(load(environment)))


# --- Jaeger and Prometheus ---


@pytest.fixture
def prometheus() -> Iterator[Callable[[Mapping[str, str]], str]]:
    """Something that answers as Prometheus does: targets and how they are."""
    servers: list[HTTPServer] = []

    def serve(targets: Mapping[str, str]) -> str:
        active = [
            {"labels": {"job": job}, "scrapeUrl": f"http://{job}/metrics", "health": health}
            for job, health in targets.items()
        ]

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"status": "success", "data": {"activeTargets": active}}).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Answers))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield serve
    for each in servers:
        each.shutdown()
        each.server_close()


def test_targets_that_prometheus_does_not_reach_are_named(prometheus: Callable[[Mapping[str, str]], str]) -> None:
    from firmq.shared.features.doctor.surroundings import check_prometheus

    [well] = check_prometheus(load({"PROMETHEUS_URL": prometheus({"worker": "up", "gateway": "up"})}))
    assert well.level is Level.OK
    assert "all of its 2 targets" in well.seen
    [ill] = check_prometheus(load({"PROMETHEUS_URL": prometheus({"worker": "down", "gateway": "up"})}))
    assert ill.level is Level.WARNING
    assert "worker http://worker/metrics" in ill.seen
    [away] = check_prometheus(load({"PROMETHEUS_URL": "http://127.0.0.1:1"}))
    assert "does not answer" in away.seen


def test_an_unreachable_collector_is_named() -> None:
    from firmq.shared.features.doctor.surroundings import check_jaeger

    [away] = check_jaeger(load({"JAEGER_HOST": "127.0.0.1", "JAEGER_PORT": "1"}))
    assert away.level is Level.WARNING
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [there] = check_jaeger(load({"JAEGER_HOST": "127.0.0.1", "JAEGER_PORT": str(port)}))
        assert there.level is Level.OK


# --- at the gateway ---


def test_a_third_parallel_health_detail_request_is_refused(
    redis_client: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look takes a thread for seconds where Jaeger or Prometheus does not answer."""
    asked, done = Semaphore(0), Event()

    def examined(settings: Settings, redis: Redis) -> list[Finding]:
        asked.release()
        assert done.wait(30)
        return [Finding(check="redis", level=Level.OK, seen="it answers")]

    monkeypatch.setattr("firmq.gateway.features.doctor.routes.examine", examined)
    with connect(redis_url) as client, ThreadPoolExecutor(2) as pool:
        app = create_app(Settings(redis_url=redis_url), client)
        others = [pool.submit(app.test_client().get, "/health/detail") for _ in range(2)]
        assert all(asked.acquire(timeout=30) for _ in others)
        refused = app.test_client().get("/health/detail")
        done.set()
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert [each.result().status_code for each in others] == [200, 200]


def test_the_gateway_shows_the_same_to_operators(redis_client: Redis, redis_url: str) -> None:
    with connect(redis_url) as client:
        answer = create_app(Settings(redis_url=redis_url), client).test_client().get("/health/detail")
    assert answer.status_code == 200
    body = answer.get_json()
    assert body["status"] == "error"
    assert {"redis", "memory", "workers", "housekeeping"} <= {each["check"] for each in body["checks"]}
    assert PASSWORD not in answer.text
