"""Flows on a Redis with a slow disk, which is killed again and again: what it had not written is lost."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from redis.exceptions import RedisError

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import IllegalTransition, StoreUnavailable
from firmq.shared.features.durable.signals import Signals
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.features.durable.flows.handlers import PHASES
from tests.labs.faults.slow_disk import HeldFsync
from tests.support.harness import System, running_system, wait_until

T = TypeVar("T")
KILLS, PERIOD = 4, 5.0
"""How often Redis is killed, and the seconds between."""


def run(flows: int, fsync: float, longest: float) -> Iterator[str]:
    """Runs flows to their end while Redis is killed; yields what is wrong, and first what happened."""
    with (
        tempfile.TemporaryDirectory(prefix="flows-") as name,
        EmbeddedRedis(data_dir=Path(name) / "redis") as server,
        connect(server.url, timeout=5) as client,
        running_system(client, server.url, Path(name), TASK_MODULES="tests.features.durable.flows.handlers") as system,
    ):
        system.start_worker(WORKER_EXECUTORS="4", LEASE_TIME="5")
        system.start_housekeeper()
        folder = Path(name) / "seen"
        folder.mkdir()
        kinds = ("watched-flow", "watched-flow-threads")
        ids = [system.submit(kinds[at % 2], json.dumps({"folder": str(folder)})) for at in range(flows)]
        ended = _kill(server, system, ids, fsync, longest)
        yield f"{ended} of {flows} flows had ended after {KILLS} kills"
        for each in ids:
            yield from _judge(system, each, folder)


def _kill(server: EmbeddedRedis, system: System, ids: Sequence[str], fsync: float, longest: float) -> int:
    """Returns how many flows had ended at the last kill."""
    begun, kills, ended = time.monotonic(), 0, 0
    while time.monotonic() - begun < longest:
        held = HeldFsync(server.pid or 0)
        is_due = kills < KILLS and time.monotonic() - begun > PERIOD * (kills + 1)
        if is_due:
            wait_until(lambda: _is_postponed(system), "Redis holds back what it has answered")
        time.sleep(fsync)
        if is_due:
            kills += 1
            held.kill_server()
            server.start()
        else:
            held.let_go()
        now = _answered(lambda: sum(system.records.state(each).ended for each in ids))
        if kills < KILLS:
            ended = now if now is not None else ended
        elif now == len(ids):
            break
        for each in ids:
            _answered(lambda each=each: Signals(system.scripts).send(each, "go", each, "Ann"))  # type: ignore[misc]
        time.sleep(0.05)
    return ended


def _is_postponed(system: System) -> bool:
    info = system.redis.info("persistence")
    return bool(info["aof_pending_bio_fsync"] and info["aof_buffer_length"])


def _answered(call: Callable[[], T]) -> T | None:
    with suppress(RedisError, StoreUnavailable, IllegalTransition):
        return call()
    return None


def _judge(system: System, task: str, folder: Path) -> Iterator[str]:
    found = system.records.get(task)
    if found.summary.state is not TaskState.COMPLETED:
        yield f"{task} is {found.summary.state}: {found.attempts[-1:]}"
    stored = {each.name: each.value for each in found.steps}
    steps = [name for phase in PHASES for name in phase]
    for name in (*steps, "id", "signal", "children", "results"):
        path = folder / f"{task}-{name}"
        seen = set(path.read_text().splitlines()) if path.exists() else set()
        if len(seen) > 1:
            yield f"{task} was given several values of {name}: {sorted(seen)}"
        elif name in steps and seen != {json.dumps(stored.get(name))}:
            yield f"{task} was given {sorted(seen)} for {name}, and {stored.get(name)} is stored"
