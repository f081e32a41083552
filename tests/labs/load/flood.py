"""A flood of submissions against the limit of a queue, and somebody else who goes on with his work meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.labs.faults.clients import call
from tests.labs.load.clients import stop_all
from tests.labs.load.counts import by_counters
from tests.labs.load.site import Site, site
from tests.support.keys import keys

PARTS = ("gateway", "worker 1", "housekeeper 1")
CLIENTS = 6
BATCH = 250
BATCHES = 0.8
"""The share of the tasks that come in batches."""
FLOODED, OTHER = "low", "high"
PATIENCE = 30.0


@dataclass
class Told:
    """What one client was told, and how long each answer took."""

    accepted: int = 0
    refused: int = 0
    odd: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass
class Flood:
    """What a flood did."""

    told: list[Told]
    other: Told
    waiting: int
    ended: dict[str, int]
    redis_growth: int
    gateway_growth: int
    seconds: float

    @property
    def sums(self) -> Counter[str]:
        return Counter({name: sum(getattr(each, name) for each in self.told) for name in ("accepted", "refused")})

    @property
    def odd(self) -> list[str]:
        return [line for each in (*self.told, self.other) for line in each.odd]


class _Flooder(threading.Thread):
    """Sends its share, single tasks and batches in turn, and does not care what it is told."""

    def __init__(self, address: str, tasks: int) -> None:
        super().__init__(daemon=True)
        self.told = Told()
        self._http = httpx.Client(base_url=f"http://{address}", timeout=PATIENCE)
        self._left = tasks

    def run(self) -> None:
        while self._left > 0:
            for _ in range(int(BATCH * (1 / BATCHES - 1))):
                self._send_one()
            self._send_many(BATCH)
        self._http.close()

    def _send_one(self) -> None:
        answer = self._post("/tasks", _task(FLOODED))
        if answer.status_code == 429 and "Retry-After" in answer.headers:
            self.told.refused += 1
        elif answer.status_code == 202:
            self.told.accepted += 1
        else:
            self.told.odd.append(f"a task was answered {answer.status_code}: {answer.text[:200]}")
        self._left -= 1

    def _send_many(self, size: int) -> None:
        answer = self._post("/tasks/batch", {"tasks": [_task(FLOODED)] * size})
        self._left -= size
        if answer.status_code not in (202, 207):
            self.told.odd.append(f"a batch was answered {answer.status_code}: {answer.text[:200]}")
            return
        for item in answer.json()["items"]:
            status = item["problem"]["status"] if "problem" in item else 202
            self.told.accepted += status == 202
            self.told.refused += status == 429
            if status not in (202, 429):
                self.told.odd.append(f"in a batch: {item}")
        if self.told.refused and answer.status_code == 207 and "Retry-After" not in answer.headers:
            self.told.odd.append("a batch that was refused in part does not say when to try again")

    def _post(self, path: str, body: object) -> httpx.Response:
        began = time.monotonic()
        answer = self._http.post(path, json=body)
        self.told.times.append(time.monotonic() - began)
        return answer


class _Other(threading.Thread):
    """Submits to another queue now and then, and is never refused."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.told = Told()
        self.stopping = threading.Event()
        self._address = address

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            began = time.monotonic()
            answer = call(self._address, "POST", "/tasks", _task(OTHER))
            self.told.times.append(time.monotonic() - began)
            self.told.accepted += answer.status == 202
            if answer.status != 202:
                self.told.odd.append(f"another queue's task was answered {answer}")


class _Watch(threading.Thread):
    """The most memory that Redis and the gateway take."""

    def __init__(self, place: Site) -> None:
        super().__init__(daemon=True)
        gateway = psutil.Process(place.processes["gateway"].pid)
        self._gateway = [gateway, *gateway.children()]
        self._place = place
        self.stopping = threading.Event()
        self.first = self.most = self._look()

    def run(self) -> None:
        while not self.stopping.wait(0.1):
            now = self._look()
            self.most = max(self.most[0], now[0]), max(self.most[1], now[1])

    def _look(self) -> tuple[int, int]:
        resident = sum(process.memory_info().rss for process in self._gateway)
        return int(self._place.redis.info("memory")["used_memory"]), resident


def _task(queue: str) -> dict[str, object]:
    return {"type": "load", "data": {"sent": 0.0}, "priority": queue}


def flood(folder: Path, tasks: int, limit: int) -> Flood:
    """So many tasks against a queue that takes so many and is paused; then it is resumed, and all is run."""
    settings = {"MAX_QUEUE_LENGTH": str(limit), "WORKER_EXECUTORS": "1", "GATEWAY_PROCESSES": "1"}
    with site(folder, PARTS, **settings) as place:
        address = place.address("gateway")
        _tell(address, "pause", {"reason": "the flood comes"})
        flooders = [_Flooder(address, tasks // CLIENTS) for _ in range(CLIENTS)]
        other, watch = _Other(address), _Watch(place)
        began = time.monotonic()
        for thread in (watch, other, *flooders):
            thread.start()
        for flooder in flooders:
            flooder.join()
        seconds = time.monotonic() - began
        stop_all([other, watch])
        waiting = int(place.redis.zcard(keys.pending(FLOODED)))
        _tell(address, "resume")
        place.system.all_ended()
        _counted(place, limit + other.told.accepted)
        told: Sequence[Told] = [flooder.told for flooder in flooders]
        redis, gateway = (most - first for most, first in zip(watch.most, watch.first, strict=True))
        return Flood(list(told), other.told, waiting, by_counters(place), redis, gateway, seconds)


def _counted(place: Site, tasks: int) -> None:
    """Waits until the worker has counted so many: it does when Redis has answered, and they have ended by then."""
    end = time.monotonic() + PATIENCE
    while by_counters(place)["completed"] < tasks and time.monotonic() < end:
        time.sleep(0.1)


def _tell(address: str, what: str, body: object = None) -> None:
    answer = call(address, "POST", f"/queues/{FLOODED}/{what}", body)
    assert answer.status == 200, answer
