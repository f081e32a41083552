"""Kills and freezes housekeepers, Redis and the database while tasks end, and then compares the rows with the tasks."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from subprocess import Popen

from redis.exceptions import RedisError

from firmq.shared.domain.task import TaskState
from firmq.shared.errors import FirmqError
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from firmq.shared.stores.tasks import Filter
from tests.labs.history.postgresql import PostgreSQL
from tests.support.harness import System, running_system, wait_until
from tests.support.history import Contents
from tests.support.keys import keys

AT_ONCE = 50
HOUSEKEEPERS = 2
SETTINGS = {
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED": "true",
    "HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL": "2",
    "HOUSEKEEPER_LEADER_LEASE": "2",
}
FROZEN = (0.2, 4.0)
"""Seconds for which something is frozen: shorter and longer than the lock's life and the feeder's patience."""
ENDED = (TaskState.COMPLETED, TaskState.FAILED)


@dataclass(slots=True)
class Findings:
    """What a run has shown."""

    faults: Counter[str]
    ends: int
    rows: int
    missing: int
    repeated: int
    """Tasks with more rows than ends."""
    unknown: int
    counted: int
    """Ends in the statistics."""

    @property
    def well(self) -> bool:
        return not (self.missing or self.repeated or self.unknown) and self.rows == self.ends == self.counted

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{sum(self.faults.values())} faults: {faults}\n"
            f"{self.ends} ends, {self.rows} rows, {self.counted} in the statistics\n"
            f"missing {self.missing}, stored twice {self.repeated}, of unknown tasks {self.unknown}"
        )


class Laboratory:
    """One run. Without a server of PostgreSQL the database has no faults of its own."""

    def __init__(self, folder: Path, database: str, server: PostgreSQL | None = None) -> None:
        self.folder = folder
        self.database = database
        self.postgresql = server
        self.faults: Counter[str] = Counter()
        self.frozen: Popen[bytes] | None = None
        self.thaw_at = 0.0

    def run(self, seconds: float) -> Findings:
        """Causes faults for so long, lets everything end, and returns what was found."""
        options = {"auto-aof-rewrite-percentage": "0"}
        with (
            EmbeddedRedis(data_dir=self.folder / "redis", options=options) as self.redis,
            connect(self.redis.url, timeout=2) as client,
            running_system(client, self.redis.url, self.folder, HISTORY_URL=self.database, **SETTINGS) as system,
        ):
            self.housekeepers = [system.start_housekeeper() for _ in range(HOUSEKEEPERS)]
            wait_until(lambda: client.exists(keys.HISTORY), "ends are registered")
            system.start_worker()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with suppress(RedisError, FirmqError):
                    system.submit_many([("echo", '"x"')] * AT_ONCE + [("fail", "null")])
                time.sleep(random.uniform(0.05, 0.4))
                self._go_on()
                self._fault(system)
            self._mend(system)
            system.all_ended()
            while left := client.zcard(keys.UNARCHIVED):
                wait_until(lambda left=left: client.zcard(keys.UNARCHIVED) < left, "more ends are stored")  # type: ignore[misc]
            return self._findings(system)

    def _fault(self, system: System) -> None:
        kinds = {"housekeepers killed": 6, "housekeepers frozen": 4, "Redis killed": 1}
        if self.postgresql:
            kinds |= {"databases killed": 1, "databases frozen": 2}
        [kind] = random.choices([*kinds], [*kinds.values()])
        at = random.randrange(HOUSEKEEPERS)
        if kind in ("housekeepers frozen", "databases frozen") and self.thaw_at:
            return
        match kind:
            case "housekeepers killed":
                self.housekeepers[at].kill()
                self.housekeepers[at].wait()
                self.housekeepers[at] = system.start_housekeeper()
            case "housekeepers frozen":
                self.frozen = self.housekeepers[at]
                self.frozen.send_signal(signal.SIGSTOP)
                self.thaw_at = time.monotonic() + random.uniform(*FROZEN)
            case "Redis killed":
                self.redis.kill()
                self.redis.start()
            case "databases killed" if self.postgresql and not self.thaw_at:
                self.postgresql.kill()
                self.postgresql.start()
            case "databases frozen" if self.postgresql:
                self.postgresql.freeze()
                self.thaw_at = time.monotonic() + random.uniform(*FROZEN)
            case _:
                return
        self.faults[kind] += 1

    def _go_on(self) -> None:
        """Thaws what has been frozen for long enough."""
        if self.thaw_at and time.monotonic() > self.thaw_at:
            self.thaw_at = 0.0
            if self.frozen:
                self.frozen.send_signal(signal.SIGCONT)
                self.frozen = None
            elif self.postgresql:
                self.postgresql.thaw()

    def _mend(self, system: System) -> None:
        self.thaw_at = self.thaw_at and 1.0
        self._go_on()
        self.housekeepers = [
            system.start_housekeeper() if each.poll() is not None else each for each in self.housekeepers
        ]

    def _findings(self, system: System) -> Findings:
        contents = Contents(self.database)
        stored = Counter(task_id for task_id, _ in contents.ends())
        ended = Counter(dict.fromkeys(chain.from_iterable(_ids(system, state) for state in ENDED), 1))
        return Findings(
            faults=self.faults,
            ends=ended.total(),
            rows=stored.total(),
            missing=sum((ended - stored).values()),
            repeated=sum((stored - ended).values()),
            unknown=len(stored.keys() - ended.keys()),
            counted=sum(contents.total(state.value) for state in ENDED),
        )


def _ids(system: System, state: TaskState) -> Iterator[str]:
    cursor: str | None = ""
    while cursor is not None:
        page = system.records.page(Filter(state=state), limit=200, cursor=cursor or None)
        yield from (each.id for each in page.items)
        cursor = page.next_cursor
