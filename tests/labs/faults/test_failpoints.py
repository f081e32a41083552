"""A process is killed at each named point between two steps, and whoever comes after loses and doubles nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import timeit
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from firmq.shared import failpoints
from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.failpoints import POINTS
from firmq.shared.local.embedded_redis import EmbeddedRedis
from tests.labs.faults.addresses import HOST, new_port
from tests.labs.faults.clients import Answer, call
from tests.labs.faults.ledger import Ledger
from tests.support.harness import ROOT, System, running_system, wait_until
from tests.support.keys import keys
from tests.support.least_privilege import url_of_user

ENVIRONMENT = {
    "BIND_HOST": HOST,
    "TASK_MODULES": "tests.labs.faults.handlers",
    "LEASE_TIME": "2",
    "WORKER_EXECUTORS": "1",
    "MAX_CRASHES": "2",
    "GATEWAY_PROCESSES": "1",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "1",
    "HOUSEKEEPER_LEADER_LEASE": "2",
    "HOUSEKEEPER_METRICS_INTERVAL": "0.2",
    "HOUSEKEEPER_TTL_INTERVAL": "0.2",
}
OF_WORKERS = [name for name in POINTS if name.startswith(("worker.", "executor."))]
OF_HOUSEKEEPERS = [name for name in POINTS if name.startswith(("housekeeper.", "unlock.", "leader."))]
OF_GATEWAYS = [name for name in POINTS if name.startswith("gateway.")]


@dataclass
class Place:
    """A system with a worker and a housekeeper that are well, and a victim beside them."""

    system: System
    ledger: Ledger
    worker: subprocess.Popen[bytes]
    housekeeper: subprocess.Popen[bytes]
    flags: Path

    def trap(self, point: str, passing: int = 1, how: str = "kill") -> dict[str, str]:
        """What makes a process stop at a point; once, although its successor inherits it."""
        flag = self.flags / f"{point}-{len(os.listdir(self.flags))}"
        return {failpoints.VARIABLE: f"{point}:{passing}:{how}:{flag}", "FLAG": str(flag)}

    def submit(self, number: int, kind: str = "quick", **options: Any) -> list[str]:
        data = json.dumps({"n": 1, "kind": kind, "seconds": 0.0})
        return self.system.submit_many([("lab", data)] * number, **options)

    def all_completed_once(self, ids: list[str]) -> None:
        """Each has ended well, every attempt is on record, and none was begun twice."""
        for each in ids:
            found = self.system.ended(each, 60)
            outcomes = [attempt.outcome for attempt in found.attempts]
            assert found.summary.state is TaskState.COMPLETED, found
            assert [attempt.number for attempt in found.attempts] == list(range(1, found.summary.attempt + 1))
            assert outcomes.count(Outcome.COMPLETED) == 1
        executions = self.ledger.by_task()
        for each in ids:
            assert set(Counter(run.attempt for run in executions[each]).values()) == {1}


@pytest.fixture(scope="module")
def place(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("failpoints")
    flags = folder / "flags"
    flags.mkdir()
    environment = {**ENVIRONMENT, "FAULTS_LEDGER": str(folder)}
    with (
        Redis.from_url(redis_server.url, socket_timeout=5, protocol=2) as client,
        running_system(client, url_of_user(redis_server), folder, **environment) as system,
    ):
        client.flushall()
        system.as_shipped = True
        ledger = Ledger(folder)
        worker = system.start_worker()
        yield Place(system, ledger, worker, system.start_housekeeper(), flags)


def reached(trap: dict[str, str]) -> bool:
    return Path(trap["FLAG"]).exists()


def dead(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() == -signal.SIGKILL


# --- workers -------------------------------------------------------------------------------------------------------


def prepare(place: Place, point: str) -> list[str]:
    """What leads a worker to the point; the others wait meanwhile."""
    match point:
        case "worker.begun-noted":
            ids = place.submit(2)
            for each in ids:
                place.system.redis.hset(keys.rq_job(each), "losses", 1)
            return ids
        case "worker.reaped":
            return place.submit(1, "crash") + place.submit(5)
        case "worker.taken-back":
            # Quick ones first: only behind those a worker claims ahead.
            data = json.dumps({"n": 1, "kind": "slow", "seconds": 0.6})
            return place.submit(40) + place.system.submit_many([("lab", data)]) + place.submit(10)
        case _:
            return place.submit(12)


@pytest.mark.parametrize("point", [point for point in OF_WORKERS if point != "worker.dispatched"])
def test_a_worker_that_dies_at_a_point_loses_and_doubles_nothing(place: Place, point: str) -> None:
    trap = place.trap(point)
    os.kill(place.worker.pid, signal.SIGSTOP)
    try:
        ids = prepare(place, point)
        victim = place.system.start("worker", **trap)
        wait_until(lambda: reached(trap), f"the point is reached\n{place.system.logs()[-2000:]}", 60)
        if point.startswith("worker."):
            wait_until(lambda: dead(victim), "the worker is dead")
    finally:
        os.kill(place.worker.pid, signal.SIGCONT)
    if point == "worker.reaped":
        assert place.system.ended(ids.pop(0), 60).summary.state is TaskState.FAILED
    place.all_completed_once(ids)
    victim.kill()
    victim.wait()


def test_a_worker_that_dies_with_a_task_handed_over_unseen_loses_nothing(place: Place) -> None:
    trap = place.trap("worker.dispatched")
    os.kill(place.worker.pid, signal.SIGSTOP)
    ids = []
    try:
        victim = place.system.start_worker(**trap)

        def submitted() -> bool:
            ids.extend(place.submit(1))
            return reached(trap)

        wait_until(submitted, "a task was handed over")
        wait_until(lambda: dead(victim), "the worker is dead")
    finally:
        os.kill(place.worker.pid, signal.SIGCONT)
    place.all_completed_once(ids)


# --- housekeepers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "how"),
    [
        *((point, "kill") for point in OF_HOUSEKEEPERS),
        ("unlock.between-batches", "freeze"),
        ("leader.elected", "freeze"),
    ],
)
def test_a_housekeeper_stopped_at_a_failpoint_blocks_no_other(place: Place, point: str, how: str) -> None:
    trap = place.trap(point, how=how)
    os.kill(place.housekeeper.pid, signal.SIGSTOP)
    try:
        victim = place.system.start_housekeeper(**trap)
        ids = place.submit(20, delay=timedelta(seconds=0.1))
        late = place.submit(3, delay=timedelta(hours=1), expires_in=timedelta(seconds=0.1))
        wait_until(lambda: reached(trap), f"the point is reached\n{place.system.logs()[-2000:]}", 60)
    finally:
        os.kill(place.housekeeper.pid, signal.SIGCONT)
    place.all_completed_once(ids)
    assert {place.system.ended(each).summary.state for each in late} == {TaskState.EXPIRED}
    victim.kill()
    victim.wait()


# --- gateways ------------------------------------------------------------------------------------------------------


@dataclass
class Caller:
    """Somebody who asks a gateway whose process dies once, and then the one that takes its place."""

    address: str
    trap: dict[str, str]

    def send(self, method: str, path: str, body: object = None) -> Answer:
        """The answer at last; the first time there is none."""
        first = call(self.address, method, path, body, "a-key-of-its-own")
        assert (first.status, reached(self.trap)) == (0, True)
        answer: Answer = wait_until(lambda: self._again(method, path, body), "it is answered", 60)
        return answer

    def _again(self, method: str, path: str, body: object) -> Answer | None:
        answer = call(self.address, method, path, body, "a-key-of-its-own")
        return answer if answer.status not in (0, 503) and "in-progress" not in str(answer.body) else None


@pytest.fixture
def caller(place: Place, request: pytest.FixtureRequest) -> Iterator[Caller]:
    for key in place.system.redis.scan_iter(keys.idempotency("*")):
        place.system.redis.delete(key)
    trap, port = place.trap(request.param), new_port()
    address = f"{HOST}:{port}"
    victim = place.system.start("gateway", GATEWAY_PORT=str(port), **trap)
    wait_until(lambda: call(address, "GET", "/types").body.get("items"), "the gateway is ready", 60)
    yield Caller(address, trap)
    victim.terminate()
    victim.wait(60)


def task_body(kind: str = "quick") -> dict[str, object]:
    return {"type": "lab", "data": {"n": 1, "kind": kind}}


@pytest.mark.parametrize("caller", ["gateway.stored"], indirect=True)
def test_a_gateway_that_dies_before_it_answers_has_stored_one_task(place: Place, caller: Caller) -> None:
    before = place.system.redis.zcard(keys.TASKS)
    answer = caller.send("POST", "/tasks", task_body())
    assert answer.status == 202
    assert place.system.redis.zcard(keys.TASKS) == before + 1
    place.all_completed_once([answer.body["task_id"]])


@pytest.mark.parametrize(
    "caller", ["gateway.batch-begun", "gateway.batch-opened", "gateway.chunk-stored"], indirect=True
)
def test_a_batch_whose_gateway_dies_in_the_middle_is_stored_once(place: Place, caller: Caller) -> None:
    before = place.system.redis.zcard(keys.TASKS)
    # The place of whoever died is free after ten seconds of silence; this test does not wait for that.
    expire = threading.Thread(target=_forget_who_died, args=(place, caller.trap))
    expire.start()
    answer = caller.send("POST", "/tasks/batch", {"then": task_body(), "tasks": [task_body()] * 600})
    expire.join()
    ids = [item["task_id"] for item in answer.body["items"]]
    assert len(set(ids)) == 600
    then = call(caller.address, "GET", f"/batches/{answer.body['batch_id']}").body["then"]
    place.all_completed_once([*ids, then])
    assert place.system.redis.zcard(keys.TASKS) == before + 601


def _forget_who_died(place: Place, trap: dict[str, str]) -> None:
    wait_until(lambda: reached(trap), "the gateway died")
    for key in place.system.redis.scan_iter(keys.idempotency("*")):
        place.system.redis.hset(key, "until", 0)


@pytest.mark.parametrize("caller", ["gateway.requeued"], indirect=True)
def test_a_dead_letter_whose_gateway_dies_is_sent_back_once(place: Place, caller: Caller) -> None:
    [dead_letter] = place.submit(1, "give-up")
    place.system.ended(dead_letter)
    first = call(caller.address, "POST", f"/dlq/failed-tasks/{dead_letter}/retry")
    assert (first.status, reached(caller.trap)) == (0, True)
    wait_until(lambda: len(place.system.ended(dead_letter).attempts) == 2, "it was run again, and failed again")
    time.sleep(0.2)
    assert len(place.system.ended(dead_letter).attempts) == 2


@pytest.mark.parametrize("caller", ["gateway.cancelled"], indirect=True)
def test_a_task_whose_gateway_dies_while_it_cancels_it_is_cancelled(place: Place, caller: Caller) -> None:
    [task_id] = place.submit(1, delay=timedelta(hours=1))
    answer = caller.send("DELETE", f"/tasks/{task_id}")
    assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert task_id not in place.ledger.by_task()


# --- the points themselves -----------------------------------------------------------------------------------------


def test_the_points_in_the_code_are_those_on_the_list() -> None:
    in_code: dict[str, set[str]] = {}
    for part in ("gateway", "worker", "dashboard", "shared"):
        for path in (ROOT / part).rglob("*.py"):
            _, _, of_feature = path.relative_to(ROOT / part).as_posix().partition("features/")
            names = re.findall(r'failpoint\("([^"]+)"\)', path.read_text())
            in_code.setdefault(of_feature.partition("/")[0], set()).update(names)
    assert in_code.pop("") == set(POINTS)
    strange = {name for feature, names in in_code.items() for name in names if not name.startswith(f"{feature}.")}
    assert strange <= set(POINTS), "a feature has points of its own name, beside those of the core"


def test_an_unused_failpoint_costs_nothing() -> None:
    assert failpoints.failpoint is failpoints._nothing
    seconds = min(timeit.repeat('failpoint("worker.handed-out")', globals=vars(failpoints), number=100_000))
    print(f"{seconds / 100_000 * 1e9:.0f} ns")


def test_an_unknown_point_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="unknown failpoint"):
        failpoints.Trap("nowhere:1:kill:/nowhere")
