"""Three servers, a gateway, workers and housekeepers; faults in all of them; and what must hold all the same.

Every task that was accepted ends and has run (0 lost), after those that it depends on; what ran was accepted, or sent
without an answer (0 invented); nothing is left waiting (0 stuck); no partition exceeds a limit, by the count of the
operating system; and while one partition is away, submissions that nothing ties are accepted.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.domain.store_number import store_of_id
from firmq.shared.domain.task import TaskState
from firmq.shared.local.embedded_redis import EmbeddedRedis
from firmq.shared.redis.client import connect, text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.tasks import Records
from tests.support.harness import ROOT, WEIGHTS, System, free_port, running_system, wait_until

RESULTS = ROOT / ".faults" / "partitions"
"""Where the logs of a run are kept that has found something."""
LIMIT = 5
WORKERS = 3
QUIET = 120.0
"""Seconds in which everything has to end after the last fault."""


@dataclass
class Ledger:
    """What the clients know."""

    accepted: list[str] = field(default_factory=list)
    parents: dict[str, list[str]] = field(default_factory=dict)
    """Of accepted tasks that depend on others."""
    unknown: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    away: Counter[int] = field(default_factory=Counter)
    """Answers to submissions that nothing ties, while one partition was dead for a minute."""
    waits: list[float] = field(default_factory=list)
    """Seconds of these."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Laboratory:
    """A system with a partition on each of some servers."""

    def __init__(self, folder: Path, stack: ExitStack, partitions: int = 3) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir(mode=0o700)
        self.servers = [stack.enter_context(EmbeddedRedis(data_dir=folder / f"redis-{at}")) for at in range(partitions)]
        self.settings = Settings.model_validate(
            {"redis_partitions": tuple(each.url for each in self.servers), "redis_timeout": 0.9}
        )
        (folder / "logs").mkdir()
        client = stack.enter_context(connect(self.servers[0].url))
        self.system: System = stack.enter_context(
            running_system(
                client,
                "",
                folder / "logs",
                REDIS_URL="",
                REDIS_PARTITIONS=",".join(each.url for each in self.servers),
                TASK_MODULES="tests.features.partitions.laboratory.handlers",
                LEASE_TIME="4",
                WORKER_EXECUTORS="3",
                HOUSEKEEPER_DISTRIBUTED_EXECUTION_ENABLED="true",
                HOUSEKEEPER_DISTRIBUTED_EXECUTION_LOCK_TTL="2",
            )
        )
        self.port = free_port()
        self.ledger = Ledger()
        self.stopping = threading.Event()
        self.one_is_dead = threading.Event()
        self.happened: Counter[str] = Counter()
        self.parts: dict[str, list[subprocess.Popen[bytes]]] = {}

    # --- parts ---

    def begin(self) -> None:
        shipped = {"GATEWAY_PORT": str(self.port), "GATEWAY_PROCESSES": "2", "REDIS_TIMEOUT": "0.9"}
        self.parts["gateway"] = [self.system.start("gateway", **shipped)]
        self.parts["worker"] = [self.system.start("worker") for _ in range(WORKERS)]
        self.parts["housekeeper"] = [self.system.start("housekeeper") for _ in range(2)]
        wait_until(self._is_ready, "the gateway is ready", 60)
        answer, _ = self.ask("PUT", "/limits/types/bounded", {"concurrency": LIMIT})
        assert answer in (200, 201)
        time.sleep(1)

    def _is_ready(self) -> bool:
        with suppress(OSError):
            status, health = self.ask("GET", "/types")
            return status == 200 and len(health["items"]) >= 3 and "unavailable_partitions" not in health
        return False

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None, timeout: float = 10.0) -> Any:
        """The status and document of an answer. Raises OSError without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    # --- clients ---

    def client(self, number: int, dice: random.Random) -> None:
        """Submits until the end; every third client ties tasks by a key, and sends each until it is answered."""
        tied, at = number % 3 == 2, 0
        while not self.stopping.is_set():
            at += 1
            seconds = dice.choice([0, 0, 0.01, 0.05])
            kind = "bounded" if at % 4 == 0 else "mark"
            data: dict[str, Any] = {"folder": str(self.notes), "seconds": seconds}
            if kind == "bounded":
                data |= {"limit": LIMIT, "seconds": 0.05 + seconds}
            body: dict[str, Any] = {"type": kind, "data": data}
            if at % 10 == 5 and len(self.ledger.accepted) > 2:
                recent = self.ledger.accepted[-50:]
                parent = dice.choice(recent)
                related = [each for each in recent if store_of_id(each) == store_of_id(parent)]
                body["depends_on"] = [{"task_id": each} for each in dict.fromkeys([parent, *dice.choices(related)])]
            self._send(body, f"client-{number}-{at}" if tied else None)
            time.sleep(dice.uniform(0.005, 0.03))

    def _send(self, body: Any, key: str | None) -> None:
        for _ in range(400 if key else 1):
            begun, dead = time.monotonic(), self.one_is_dead.is_set()
            try:
                status, found = self.ask("POST", "/tasks", body, key)
            except OSError:
                status, found = 0, {}
            with self.ledger.lock:
                self.ledger.statuses[status] += 1
                if dead and self.one_is_dead.is_set() and key is None and "depends_on" not in body:
                    self.ledger.away[status] += 1
                    self.ledger.waits.append(time.monotonic() - begun)
                if status == 202:
                    self.ledger.accepted.append(found["task_id"])
                    if "depends_on" in body:
                        self.ledger.parents[found["task_id"]] = [each["task_id"] for each in body["depends_on"]]
                    return
                if key is None and "Nothing was changed" not in str(found.get("detail")):
                    self.ledger.unknown += 1
            if self.stopping.wait(0.2):
                return

    @contextmanager
    def clients(self, many: int, seed: int) -> Iterator[None]:
        threads = [
            threading.Thread(target=self.client, args=(number, random.Random(seed * 100 + number)), daemon=True)
            for number in range(many)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(60)

    # --- faults ---

    def faults(self, dice: random.Random, until: float) -> None:
        acts: dict[Callable[[random.Random], None], int] = {
            self.kill_a_server: 3,
            self.freeze_a_server: 3,
            self.kill_a_worker: 3,
            self.drain_a_worker: 1,
            self.kill_a_housekeeper: 2,
            self.freeze_a_housekeeper: 1,
            self.kill_a_gateway_process: 1,
        }
        while time.monotonic() < until:
            [act] = dice.choices(list(acts), list(acts.values()))
            act(dice)
            self.happened[act.__name__] += 1
            time.sleep(dice.uniform(0.2, 2.0))

    def kill_a_server(self, dice: random.Random) -> None:
        server = dice.choice(self.servers)
        server.kill()
        time.sleep(dice.choice([0.1, 1.0, 6.0]))
        server.start()

    def freeze_a_server(self, dice: random.Random) -> None:
        server = dice.choice(self.servers)
        os.kill(server.pid or 0, signal.SIGSTOP)
        time.sleep(dice.choice([0.3, 1.5, 6.0]))
        os.kill(server.pid or 0, signal.SIGCONT)

    def kill_a_worker(self, dice: random.Random) -> None:
        self._replace("worker", dice, signal.SIGKILL)

    def drain_a_worker(self, dice: random.Random) -> None:
        self._replace("worker", dice, signal.SIGTERM)

    def kill_a_housekeeper(self, dice: random.Random) -> None:
        self._replace("housekeeper", dice, signal.SIGKILL)

    def freeze_a_housekeeper(self, dice: random.Random) -> None:
        process = dice.choice(self.parts["housekeeper"])
        process.send_signal(signal.SIGSTOP)
        time.sleep(dice.choice([0.5, 3.0]))
        process.send_signal(signal.SIGCONT)

    def kill_a_gateway_process(self, dice: random.Random) -> None:
        children = subprocess.run(
            ["pgrep", "-P", str(self.parts["gateway"][0].pid)], capture_output=True, text=True, check=False
        )
        if pids := children.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(dice.choice(pids)), signal.SIGKILL)

    def _replace(self, part: str, dice: random.Random, how: signal.Signals) -> None:
        at = dice.randrange(len(self.parts[part]))
        self.parts[part][at].send_signal(how)
        self.parts[part][at] = self.system.start(part)

    def dead_for(self, seconds: float) -> None:
        """One partition is dead, and nothing else happens."""
        self.servers[-1].kill()
        time.sleep(1)
        self.one_is_dead.set()
        time.sleep(seconds)
        self.one_is_dead.clear()
        self.servers[-1].start()

    # --- the verdict ---

    def judge(self) -> list[str]:
        """What is wrong in the end."""
        try:
            wait_until(self.nothing_waits, "everything has ended", QUIET)
        except AssertionError:
            return [f"stuck: {self._counts()}"]
        wanted, complaints = set(self.ledger.accepted), []
        ran = Counter((self.notes / "ran").read_text().split())
        states = self._states()
        if lost := [each for each in wanted if states.get(each) != TaskState.COMPLETED or each not in ran]:
            complaints.append(f"lost: {len(lost)}, such as {lost[:3]}")
        stored = len(states)
        if invented := [each for each in ran if each not in states]:
            complaints.append(f"invented: {invented[:3]}")
        if stored - len(wanted) > self.ledger.unknown:
            complaints.append(f"{stored} stored, {len(wanted)} accepted and {self.ledger.unknown} without an answer")
        first = {each: at for at, each in reversed([*enumerate((self.notes / "ran").read_text().split())])}
        early = [
            child
            for child, parents in self.ledger.parents.items()
            if child in first and any(first.get(parent, len(first) + 1) > first[child] for parent in parents)
        ]
        if early:
            complaints.append(f"ran before what it depends on: {len(early)}, such as {early[:3]}")
        if (too_many := self.notes / "too-many").exists():
            complaints.append(f"more than {LIMIT} at once in a partition: {len(too_many.read_text().split())} times")
        if bad := {status: count for status, count in self.ledger.away.items() if status != 202}:
            complaints.append(f"with one partition dead, submissions were answered {bad}")
        return complaints

    def figures(self) -> str:
        """What happened, in a line."""
        waits = sorted(self.ledger.waits)
        p99 = f"{waits[len(waits) * 99 // 100] * 1000:.0f} ms" if waits else "-"
        places = Counter(store_of_id(each) or 0 for each in self.ledger.accepted)
        return (
            f"{sum(self.happened.values())} faults, {len(self.ledger.accepted)} accepted "
            f"({dict(sorted(places.items()))}), {len(self.ledger.parents)} with parents, "
            f"{self.ledger.unknown} without an answer; with one dead "
            f"{self.ledger.away[202]} of {self.ledger.away.total()} untied submissions accepted, p99 {p99}"
        )

    def _records(self) -> Iterator[tuple[Scripts, Records]]:
        for own in self.settings.stores.values():
            with connect(own.store_url, timeout=5) as redis:
                scripts = Scripts(redis)
                yield scripts, Records(scripts, list(WEIGHTS))

    def _counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for _, records in self._records():
            found.update({str(state): count for state, count in records.counts().items()})
        return found

    def nothing_waits(self) -> bool:
        return not any(self._counts()[state] for state in ("pending", "scheduled", "retrying", "running", "blocked"))

    def _states(self) -> dict[str, TaskState]:
        found = {}
        for scripts, records in self._records():
            for each in scripts.redis.zrange(scripts.keys.TASKS, 0, -1):
                found[text(each)] = records.state(text(each))
        return found


def experiment(folder: Path, seed: int, seconds: float, dead: float, partitions: int = 3) -> tuple[str, list[str]]:
    """One run from start to verdict: faults, one partition dead, and the end."""
    with ExitStack() as stack:
        laboratory, dice = Laboratory(folder, stack, partitions), random.Random(seed)
        laboratory.begin()
        with laboratory.clients(6, seed):
            laboratory.faults(dice, time.monotonic() + seconds)
            if dead:
                time.sleep(3)
                laboratory.dead_for(dead)
            time.sleep(2)
        complaints = laboratory.judge()
        figures = laboratory.figures()
        if complaints:
            shutil.copytree(folder / "logs", RESULTS / str(seed), dirs_exist_ok=True)
    return figures, complaints
