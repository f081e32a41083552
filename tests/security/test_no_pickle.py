"""Somebody who can write to Redis plants pickles wherever data is read: no process of ours ever unpickles anything."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Queue

from firmq.shared.domain.task import TaskState
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys

GUARD = '''
"""Imported by every Python that is started with it: unpickling raises, and is written down."""
import _pickle, os, pickle, traceback

def refuse(*given, **named):
    with open(os.environ["PICKLE_LOG"], "a") as log:
        log.write("".join(traceback.format_stack()) + "\\n")
    raise RuntimeError("this process unpickles")

class Unpickler:
    __init__ = refuse
    dispatch = {}

for module in (pickle, _pickle):
    module.load = module.loads = refuse
    module.Unpickler = Unpickler
pickle._load = pickle._loads = refuse
pickle._Unpickler = Unpickler
'''


class Planted:
    """Whoever unpickles this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def guard(tmp_path: Path) -> dict[str, str]:
    """What the environment of a process must have."""
    folder = tmp_path / "guard"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GUARD)
    return {"PYTHONPATH": str(folder), "PICKLE_LOG": str(tmp_path / "unpickled.log")}


@pytest.fixture
def guarded(redis_client: Redis, redis_url: str, tmp_path: Path, guard: dict[str, str]) -> Any:
    with running_system(redis_client, redis_url, tmp_path, **guard) as system:
        yield system


def test_the_guard_notices(guard: dict[str, str]) -> None:
    code = "import pickle; pickle.loads(pickle.dumps(1))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **guard}, capture_output=True, text=True, check=False
    )
    assert "this process unpickles" in done.stderr
    assert Path(guard["PICKLE_LOG"]).exists()


def plant_in_task(redis: Redis, task_id: str, evil: bytes) -> None:
    """A pickle wherever stock RQ would unpickle, and in fields of ours."""
    packed, spelled = zlib.compress(evil), base64.b64encode(evil)
    job = keys.rq_job(task_id)
    redis.hset(job, mapping={"data": packed, "meta": evil, "result": spelled, "exc_info": packed, "retry": evil})
    redis.hset(job, mapping={"attempt:1": evil, "error": evil, "progress": evil, "relations": evil, "webhook": evil})
    redis.xadd(keys.rq_results(task_id), {"type": 1, "created_at": 1, "return_value": spelled})


def plant_beside(redis: Redis, evil: bytes) -> None:
    """A pickle wherever one part reads what another has written."""
    redis.set(keys.worker("stranger"), evil, ex=60)
    redis.zadd(keys.WORKERS, {"stranger": 4e15})
    redis.rpush(keys.control("stranger"), evil)
    redis.hset(keys.rq_worker("stranger"), mapping={"current_job": evil})
    redis.hset(keys.PAUSED, "low", evil)
    redis.hset(keys.LIMITS, "type:nothing", evil)
    redis.hset(keys.schedule("planted"), mapping={"spec": evil, "source": "api", "due": "1"})
    redis.hset(keys.batch("planted"), mapping={"then": evil, "name": evil})
    redis.xadd(keys.AUDIT, {"who": evil, "what": evil})


PAGES = ("/", "/tasks", "/workers", "/queues", "/limits", "/schedules", "/locks", "/dead-letters", "/audit", "/batches")
ADDRESSES = ("/tasks", "/workers", "/queues", "/limits", "/schedules", "/batches", "/dlq/failed-tasks", "/types")


def test_planted_pickles_are_never_loaded(guarded: System, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    evil = pickle.dumps(Planted(fired))
    gateway, dashboard = free_port(), free_port()
    planted = guarded.submit("echo", "1")
    dead = guarded.submit("echo", "2")
    plant_in_task(guarded.redis, planted, evil)
    guarded.redis.hset(keys.rq_job(dead), "data", evil)
    job = Queue("imports", connection=guarded.redis).enqueue("operator.add", Planted(fired), 1)
    guarded.start_worker(RQ_QUEUES="imports", RQ_ALLOW="operator.*")
    guarded.start_housekeeper()
    guarded.start("gateway", GATEWAY_PORT=str(gateway), GATEWAY_PROCESSES="1")
    guarded.start("dashboard", DASHBOARD_PORT=str(dashboard))
    for port in (gateway, dashboard):
        wait_until(partial(_alive, port), "it answers")

    plant_beside(guarded.redis, evil)

    assert guarded.ended(planted).summary.state is TaskState.FAILED
    assert guarded.ended(dead).summary.state is TaskState.FAILED
    wait_until(lambda: guarded.redis.hget(job.key, "status") == b"failed", "the pickled job is refused")
    honest = guarded.submit("echo", '"still here"')
    assert guarded.ended(honest).summary.state is TaskState.COMPLETED
    for address in (*ADDRESSES, f"/tasks/{planted}", f"/tasks/{dead}", f"/tasks/{planted}/result"):
        assert _status(gateway, address) in (200, 500), address
    for page in (*PAGES, f"/tasks/{planted}", f"/tasks/{dead}"):
        assert _status(dashboard, page) in (200, 404, 500), page
    assert not fired.exists()
    assert not Path(guarded.environment["PICKLE_LOG"]).exists(), Path(guarded.environment["PICKLE_LOG"]).read_text()


def _alive(port: int) -> bool:
    return _status(port, "/health/live") == 200


def _status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
