"""Kills programs, relays and Redis at random, and then compares the tasks with the rows that were committed."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import redis
from sqlalchemy import create_engine, text

from firmq.outbox.sqlalchemy import SqlTable
from firmq.shared.features.outbox.keys import OutboxKeys
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect
from tests.labs.outbox.creations import creations
from tests.labs.outbox.players import Player, Program, Sending
from tests.support.harness import System, free_port, running_system, wait_until
from tests.support.keys import keys

PROGRAMS, RELAYS = 2, 2
SETTINGS = {
    "TASK_MODULES": "tests.labs.outbox.handlers",
    # Records are gone when a relay that was off sends their rows again: only receipts know them.
    "RETENTION_COMPLETED": "0.5",
    "HOUSEKEEPER_TTL_INTERVAL": "0.3",
    "IDEMPOTENCY_TTL": "60",
    "GATEWAY_PROCESSES": "1",
}
OFF = 3.0
"""Seconds for which all relays are off at times: longer than a record is kept."""
WEIGHTS = {"program": 9, "relay": 9, "all relays": 0.2, "redis": 3}


@dataclass(slots=True)
class Findings:
    """What a run has shown."""

    seconds: float
    kills: Counter[str]
    written: int
    committed: set[str]
    created: Counter[str]
    ran: Counter[str]
    remaining: int
    attempts: Counter[int] = field(default_factory=Counter)

    @property
    def missing(self) -> set[str]:
        return {each for each in self.committed if not self.created[each]}

    @property
    def repeated(self) -> set[str]:
        return {each for each in self.committed if self.created[each] > 1}

    @property
    def phantoms(self) -> set[str]:
        """Tasks without a committed row."""
        return (set(self.created) | set(self.ran)) - self.committed

    @property
    def never_ran(self) -> set[str]:
        return self.committed - set(self.ran)

    @property
    def well(self) -> bool:
        return not (self.missing or self.repeated or self.phantoms or self.never_ran or self.remaining)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        uncommitted, created = self.written - len(self.committed), sum(self.created.values())
        attempts = dict(sorted(self.attempts.items()))
        return (
            f"{sum(self.kills.values())} kills in {self.seconds:.0f} s: {kills}\n"
            f"rows written {self.written}, committed {len(self.committed)}, not committed {uncommitted}\n"
            f"tasks created {created}: missing {len(self.missing)}, created twice {len(self.repeated)}, without a "
            f"committed row {len(self.phantoms)}\n"
            f"never ran {len(self.never_ran)}, attempts by number {attempts}, rows left {self.remaining}"
        )


class Laboratory:
    """One run. With `without_receipts` the receipts are deleted again and again, to show that this is noticed."""

    def __init__(self, folder: Path, database: str = "", *, without_receipts: bool = False) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder / 'shop.db'}"
        self.without_receipts = without_receipts
        self.attempts, self.runs = folder / "attempts", folder / "runs"
        self.kills: Counter[str] = Counter()
        self._off_until = 0.0

    def run(self, kills: int) -> Findings:
        """Kills so many processes, lets everything end, and returns what was found."""
        self._make_tables()
        begun = time.monotonic()
        options = {"auto-aof-rewrite-percentage": "0"}
        with (
            EmbeddedRedis(data_dir=self.folder / "redis", options=options) as self.server,
            connect(self.server.url, timeout=2) as client,
            running_system(client, self.server.url, self.folder, **SETTINGS, OUTBOX_LAB_RUNS=str(self.runs)) as system,
        ):
            self._start(system)
            while sum(self.kills.values()) < kills:
                time.sleep(random.uniform(0.03, 0.09))
                self._kill(random.choices([*WEIGHTS], [*WEIGHTS.values()])[0])
                self._revive()
            took = time.monotonic() - begun
            self._end(system)
        return self._findings(took)

    # --- the run ---

    def _make_tables(self) -> None:
        engine = create_engine(self.database)
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            for table in ("firmq_outbox", "orders"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            connection.execute(text("CREATE TABLE orders (task_id VARCHAR(26) PRIMARY KEY)"))
        SqlTable(engine).create()
        engine.dispose()

    def _start(self, system: System) -> None:
        port = free_port()
        system.start("gateway", GATEWAY_PORT=str(port))
        system.start_housekeeper()
        system.start_worker()
        log = self.folder / "players.log"
        urls = (self.server.url, f"http://127.0.0.1:{port}")
        self.programs = [Player(Program(self.database, self.attempts), log) for _ in range(PROGRAMS)]
        self.relays = [Player(Sending(self.database, urls[at % 2]), log) for at in range(RELAYS)]
        for player in (*self.programs, *self.relays):
            player.start()

    def _kill(self, what: str) -> None:
        if what == "redis":
            if self._answers():
                self.server.kill()
                self.kills["Redis"] += 1
            return
        if what == "program":
            chosen = [random.choice(self.programs)]
        else:
            chosen = self.relays if what == "all relays" else [random.choice(self.relays)]
            self._off_until = time.monotonic() + OFF if what == "all relays" else self._off_until
        for player in chosen:
            self.kills["programs" if what == "program" else "relays"] += bool(player.pid)
            player.kill()

    def _revive(self) -> None:
        self.server.revive()
        off = time.monotonic() < self._off_until
        _start_again(*self.programs, *(() if off else self.relays))
        if self.without_receipts and self._answers():
            with connect(self.server.url, timeout=2) as client:
                for key in client.scan_iter(f"{OutboxKeys.beside(keys).receipt('')}*"):
                    client.delete(key)

    def _answers(self) -> bool:
        try:
            with connect(self.server.url, timeout=1, retries=0, check_format=False) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _end(self, system: System) -> None:
        for program in self.programs:
            program.kill()
        self.server.revive()
        wait_until(self._answers, "Redis answers again", 60)
        # A program that was killed between the write of its commit and the note of it in SQLite's index leaves rows
        # that nobody sees until the last connection has ended and the next one recovers the log.
        for _ in range(3):
            _start_again(*self.relays)
            wait_until(lambda: not self._remaining(), "all rows were sent", 120)
            for relay in self.relays:
                relay.kill()
            if not self._remaining():
                break
        system.all_ended()

    # --- its end ---

    def _remaining(self) -> int:
        return len(self._column("SELECT task_id FROM firmq_outbox"))

    def _column(self, query: str) -> set[str]:
        engine = create_engine(self.database)
        with engine.connect() as connection:
            found = set(connection.scalars(text(query)))
        engine.dispose()
        return found

    def _findings(self, took: float) -> Findings:
        ran = [line.split() for line in self.runs.read_text().splitlines()]
        return Findings(
            seconds=took,
            kills=self.kills,
            written=len(self.attempts.read_text().splitlines()),
            committed=self._column("SELECT task_id FROM orders"),
            created=creations(self.folder / "redis"),
            ran=Counter(task_id for task_id, _ in ran),
            remaining=self._remaining(),
            attempts=Counter(int(attempt) for _, attempt in ran),
        )


def _start_again(*players: Player) -> None:
    for player in players:
        if not player.pid:
            player.start()
