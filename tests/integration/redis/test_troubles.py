"""A Redis that answers and is of no use: each kind is said in words, and what can mend by itself does."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.errors import StoreMisfit, StoreRefused, StoreUnavailable
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect, translated
from firmq.shared.redis.schema_version import FORMAT
from firmq.shared.redis.scripts import Scripts
from firmq.shared.redis.startup_check import ask
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from tests.integration.redis.load import Callers, get, post, start_gateway
from tests.labs.faults.faults import RUN_LONG
from tests.labs.faults.site import fill_disk, make_room
from tests.support import one_slot
from tests.support.figures import judge
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys

PARTS = (("gateway",), ("worker",), ("housekeeper",), ("dashboard",))
PORTS = {"GATEWAY_PORT": "0", "DASHBOARD_PORT": "0"}


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A server that this test may change."""
    with one_slot.own_server(tmp_path / "redis") as server:
        yield server


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part[0])
def test_a_wrong_password_ends_a_part_with_the_setting_to_change(system: System, part: tuple[str, ...]) -> None:
    url = f"redis://:hunter2@127.0.0.1:{system.url.rpartition(':')[2]}"
    process = system.start(*part, **PORTS, REDIS_URL=url)
    assert process.wait(60) == 2
    assert "Redis refused the password" in system.logs()
    assert "is disabled. Check REDIS_PASSWORD" in system.logs()
    assert "hunter2" not in system.logs()


class _Old(socketserver.StreamRequestHandler):
    """Answers what a part asks at first, as a server of 2018 would."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = [self._word() for _ in range(int(line[1:]))]
            self.wfile.write(self._answer(words[0].upper()))

    def _word(self) -> str:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2].decode()

    def _answer(self, command: str) -> bytes:
        if command == "INFO":
            text = b"redis_version:5.0.3\r\nrole:master\r\n"
            return b"$%d\r\n%s\r\n" % (len(text), text)
        return {"GET": b"$1\r\n%d\r\n" % FORMAT, "PING": b"+PONG\r\n"}.get(command, b"-ERR unknown command\r\n")


def test_a_server_too_old_is_refused_with_the_version_that_is_needed() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Old) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StoreMisfit, match=r"this is Redis 5\.0\.3: use version 6\.2 or newer"):
            ask(f"redis://127.0.0.1:{server.server_address[1]}/0")
        server.shutdown()


def test_a_replica_is_reported_and_work_continues_once_it_is_a_primary(
    own_redis: EmbeddedRedis, tmp_path: Path
) -> None:
    port = free_port()
    with (
        connect(one_slot.url_of(own_redis), timeout=5) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker, keeper = system.start("worker", WORKER_EXECUTORS="2"), system.start_housekeeper()
        start_gateway(system, port)
        wait_until(system.workers.all, "the worker is there", 60)
        client.replicaof("127.0.0.1", str(free_port()))
        try:
            with Callers(port, {"type": "noop", "data": None}, threads=1, pause=0.05) as callers:
                wait_until(lambda: len(callers.told) > 10, "the gateway was asked")
            assert set(callers.statuses) == {503}
            judge("the slowest refusal of a replica", max(each.seconds for each in callers.told), 5)
            assert "point REDIS_URL at the primary" in get(port, "/health")[1].decode()
        finally:
            client.replicaof("NO", "ONE")
        assert system.ended(system.submit("noop"), 40).summary.state is TaskState.COMPLETED
        assert worker.poll() is keeper.poll() is None


def test_a_full_redis_refuses_tasks_with_the_reason_and_lets_everything_else_end(
    own_redis: EmbeddedRedis, tmp_path: Path
) -> None:
    port = free_port()
    with (
        one_slot.client_of(own_redis) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path, RETENTION_CANCELLED="0") as system,
    ):
        worker, keeper = (
            system.start("worker", WORKER_EXECUTORS="2"),
            system.start_housekeeper(HOUSEKEEPER_TTL_INTERVAL="0.2"),
        )
        start_gateway(system, port)
        wait_until(system.workers.all, "the worker is there", 60)
        [dead] = system.submit_many([("fail", "null")], retry={"max_retries": 0})
        system.ended(dead)
        waiting = system.submit("noop", queue="low", delay=timedelta(hours=1))
        running = system.submit_many([("slowly", '{"seconds": 0.3}')] * 6)
        client.config_set("maxmemory", "1mb")
        with Callers(port, {"type": "noop", "data": None}, threads=1, pause=0.05) as callers:
            wait_until(lambda: len(callers.told) > 5, "the gateway was asked")
        assert set(callers.statuses) == {503}
        assert {system.ended(each).summary.state for each in running} == {TaskState.COMPLETED}
        system.queues.cancel(waiting, "nobody wants it any more")
        wait_until(lambda: not client.exists(keys.rq_job(waiting)), "what is past its retention is removed")
        system.dead_letters.purge(dead)
        beat = _beats(system)
        wait_until(lambda: _beats(system) > beat, "the worker still gives signs of life")
        assert json.loads(get(port, "/health")[1])["status"] == "unavailable"
        client.config_set("maxmemory", "0")
        assert system.ended(system.submit("noop")).summary.state is TaskState.COMPLETED
        assert worker.poll() is keeper.poll() is None


@pytest.mark.parametrize("trouble", ["full disk", "maxmemory", "too few replicas", "a replica"])
def test_the_gateway_is_ready_when_a_submission_would_be_taken_and_only_then(trouble: str, tmp_path: Path) -> None:
    port = free_port()
    body = {"type": "noop", "data": None}
    with (
        EmbeddedRedis(data_dir=tmp_path / "redis", options={"appendfsync": "everysec"}) as server,
        connect(server.url, timeout=5, check_format=False) as client,
        running_system(client, server.url, tmp_path) as system,
    ):
        system.start_housekeeper()
        system.start("gateway", GATEWAY_PORT=str(port), GATEWAY_PROCESSES="1")
        wait_until(lambda: get(port, "/health/live")[0] == 200, "the gateway answers")
        status, said = get(port, "/health/ready")
        assert (status, post(port, "/tasks", body)[0]) == (503, 503)
        assert "no worker has registered its task types yet" in said.decode()
        system.start_worker(WORKER_EXECUTORS="2")
        wait_until(lambda: get(port, "/health/ready")[0] == 200, "the gateway is ready")
        assert post(port, "/tasks", body)[0] == 202
        _MAKE[trouble](server, client)
        wait_until(lambda: post(port, "/tasks", body)[0] == 503, "submissions are refused")
        for path in ("/health/ready", "/health"):
            wait_until(lambda path=path: get(port, path)[0] == 503, f"{path} says that nothing is taken")  # type: ignore[misc]
        _END[trouble](server, client)
        wait_until(lambda: get(port, "/health/ready")[0] == 200, "it is ready again", 30)
        assert post(port, "/tasks", body)[0] == 202


Change = Callable[[EmbeddedRedis, Redis], object]
_MAKE: dict[str, Change] = {
    "full disk": lambda server, _: fill_disk(server, 0),
    "maxmemory": lambda _, client: client.config_set("maxmemory", "1mb"),
    "too few replicas": lambda _, client: client.config_set("min-replicas-to-write", "1"),
    "a replica": lambda _, client: client.replicaof("127.0.0.1", str(free_port())),
}
_END: dict[str, Change] = {
    "full disk": lambda server, _: make_room(server),
    "maxmemory": lambda _, client: client.config_set("maxmemory", "0"),
    "too few replicas": lambda _, client: client.config_set("min-replicas-to-write", "0"),
    "a replica": lambda _, client: client.replicaof("NO", "ONE"),
}


def _beats(system: System) -> float:
    """When the worker was last heard."""
    return max(info.last_heartbeat_at.timestamp() for info in system.workers.all() if info.last_heartbeat_at)


def test_a_busy_redis_loses_no_outcome(own_redis: EmbeddedRedis, tmp_path: Path) -> None:
    port = free_port()
    with (
        one_slot.client_of(own_redis, timeout=60) as client,
        running_system(client, one_slot.url_of(own_redis), tmp_path) as system,
    ):
        worker = system.start("worker", LEASE_TIME="60", WORKER_EXECUTORS="2")
        start_gateway(system, port)
        known = system.submit("noop")
        system.ended(known)
        running = [system.submit("slowly", '{"seconds": 4}') for _ in range(2)]
        wait_until(lambda: {system.records.state(each) for each in running} == {TaskState.RUNNING}, "they run", 60)
        client.config_set("lua-time-limit", "50")
        script = threading.Thread(target=client.eval, args=(RUN_LONG, 0, 3_000_000))
        with Callers(port, {"type": "noop", "data": None}, threads=1, pause=0.05) as callers:
            script.start()
            reads: set[int] = set()
            while script.is_alive():
                reads.add(get(port, f"/tasks/{known}")[0])
            script.join()
        assert set(callers.statuses) <= {202, 503}
        assert reads <= {200, 503}
        ended = [system.ended(each).summary for each in running]
        assert [(each.state, each.attempt) for each in ended] == [(TaskState.COMPLETED, 1)] * 2, system.logs()
        assert "record corrupt" not in system.logs()
        assert worker.poll() is None
        assert {system.ended(each.task_id).summary.state for each in callers.accepted} <= {TaskState.COMPLETED}


@pytest.mark.parametrize(
    "answer",
    [
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "LOADING Redis is loading the dataset in memory",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN Hash slot not served",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOPERM User x has no permissions to run the 'hget' command",
    ],
    ids=lambda answer: answer.split()[0],
)
def test_what_passes_is_refused_for_now_and_taken_for_no_damage(answer: str) -> None:
    with answering(answer) as url, connect(url, check_format=False) as client:
        records = Records(Scripts(client), ["normal"])
        reading: tuple[Callable[[str], object], ...] = (
            records.get,
            records.state,
            lambda each: records.summaries([each]),
        )
        for read in reading:
            with pytest.raises(StoreUnavailable) as told:
                read("somebody")
            assert isinstance(told.value, StoreMisfit if "NOPERM" in answer else StoreRefused)


class _OfOneMind(socketserver.StreamRequestHandler):
    """Says the same to everything."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            for _ in range(int(line[1:])):
                self.rfile.read(int(self.rfile.readline()[1:]) + 2)
            self.wfile.write(self.server.answer)  # type: ignore[attr-defined]  # ours


@contextmanager
def answering(text: str) -> Iterator[str]:
    """A server that has but one answer."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OfOneMind) as server:
        server.daemon_threads = True
        server.answer = f"-{text}\r\n".encode()  # type: ignore[attr-defined]  # for its handler
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_what_redis_says_is_translated_in_words_that_say_what_to_change(own_redis: EmbeddedRedis) -> None:
    with connect(one_slot.url_of(own_redis)) as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreRefused, match="has reached maxmemory"), translated():
            client.set(f"{keys.prefix}firmq:x", "y")
        with pytest.raises(StoreRefused) as refusal, translated():
            client.eval(f"redis.call('SET', '{keys.prefix}firmq:x', 'y')", 0)
        said = str(refusal.value)
        assert "maxmemory'. Raise maxmemory" in said  # the line of a script is of no use to a reader
        assert "script" not in said
        client.config_set("maxmemory", "0")
        client.config_set("min-replicas-to-write", "1")
        with pytest.raises(StoreRefused, match="takes no writes now"), translated():
            client.set(f"{keys.prefix}firmq:x", "y")


def test_a_task_that_too_few_replicas_have_does_not_count_as_accepted(own_redis: EmbeddedRedis) -> None:
    with connect(one_slot.url_of(own_redis)) as client:
        queues = Queues(Scripts(client, replicas=1), {"normal": 1})
        with pytest.raises(StoreRefused, match="stored, but on 0 replicas instead of 1"):
            queues.submit([NewTask(id=new_task_id(), type="noop", data="null", queue="normal")])
