"""The scripts and what is built on them, without any process: what every test of scripts by themselves works on."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from redis import Redis

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.redis.rows import Value
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import Records
from tests.support.attempt_ends import claiming, ended, report
from tests.support.clock import FakeClock

WEIGHTS = {"high": 4, "normal": 3}
SECOND = 1_000_000
LEASE = 10 * SECOND
NULL = base64.b64encode(b"null")


@dataclass
class Store:
    """The scripts on a clock that stands still."""

    redis: Redis
    clock: FakeClock
    scripts: Scripts
    queues: Queues
    records: Records

    def submit(self, count: int = 1, queue: str = "normal", **options: Any) -> list[str]:
        tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue=queue, **options) for _ in range(count)]
        self.queues.submit(tasks)
        return [task.id for task in tasks]

    def claim(self, want: int = 1, token: str = "t1", worker: str = "w") -> list[str]:
        reply = self.scripts.call("claim", *claiming(worker, token, LEASE, want, 1 << 20, "high", 0, "normal", want))
        return [row[0].decode() for row in reply[3]]

    def report(self, task_id: str, kind: str, token: str = "t1", delay_us: int = 0, **fields: Value | None) -> int:
        said = {"result": NULL} if kind == "completed" else {"error": '{"type":"E","message":"m"}'}
        end = ended(task_id, token, kind, '{"outcome":"completed"}', **{**said, **fields})
        if end["state"] == "retrying":
            end["delay_us"] = delay_us
        [answer] = report(self.scripts, end)
        return answer

    def extend(self, task_id: str, token: str = "t1", begun: str = "0") -> int:
        [answer] = self.scripts.call("extend", LEASE, task_id, token, begun, "")
        return int(answer)

    def state(self, task_id: str) -> TaskState:
        return self.records.state(task_id)

    def snapshot(self) -> dict[bytes, Any]:
        """Everything that is stored, but the claim's own note."""
        return {key: self.redis.dump(key) for key in self.redis.scan_iter() if b"firmq:claim" not in key}


def store_on(redis: Redis) -> Store:
    """On this Redis, with two queues."""
    clock = FakeClock()
    scripts = Scripts(redis, clock)
    return Store(redis, clock, scripts, Queues(scripts, WEIGHTS), Records(scripts, list(WEIGHTS)))
