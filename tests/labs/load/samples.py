"""What every process and Redis take, looked at now and then."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from functools import partial

import psutil

from tests.labs.faults.clients import call
from tests.labs.load.site import Site
from tests.support.harness import scrape
from tests.support.keys import keys

Row = tuple[str, str]
"""What is measured, and whose."""
PAGES = ("/", "/tasks", "/workers", "/dead-letters", "/queues")


class Samples(threading.Thread):
    """Rows of samples, from `begin` on, of the processes that are there then."""

    def __init__(self, site: Site, pause: float) -> None:
        super().__init__(name="samples", daemon=True)
        self.times: list[float] = []
        self.rows: dict[Row, list[float]] = defaultdict(list)
        self.gone: list[str] = []
        self._site = site
        self._pause = pause
        self._processes = dict(processes(site))
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                self._take()
            except psutil.NoSuchProcess as error:
                self.gone.append(f"a process ended by itself: {error}")
                return

    def stop(self) -> None:
        """No more; whoever was replaced meanwhile is noted."""
        self._over.set()
        self.join()
        before, now = self._processes, processes(self._site)
        self.gone += [f"{name} is not the process that it was" for name in before if now.get(name) != before[name]]

    def _take(self) -> None:
        self.times.append(time.monotonic())
        for name, process in self._processes.items():
            with process.oneshot():
                self.rows["memory", name].append(process.memory_info().rss)
                self.rows["handles", name].append(process.num_fds())
                self.rows["threads", name].append(process.num_threads())
        redis = self._site.redis
        info = redis.info()
        self.rows["used memory", "redis"].append(info["used_memory"])
        self.rows["connections", "redis"].append(info["connected_clients"])
        # One key a minute comes, for two hours and by design.
        minute, passed = int(time.time() / 60), info["uptime_in_seconds"] // 60 + 2
        by_minute = redis.exists(*(keys.throughput(minute - each) for each in range(passed)))
        self.rows["keys", "redis"].append(redis.dbsize() - by_minute)


def processes(site: Site) -> dict[str, psutil.Process]:
    """Every process by name: each part, what it started, and Redis."""
    found = {"redis": psutil.Process(site.redis_pid)}
    for name, process in site.processes.items():
        found[name] = psutil.Process(process.pid)
        children = sorted(found[name].children(recursive=True), key=lambda child: child.pid)
        found |= {f"{name}, child {n}": child for n, child in enumerate(children, 1)}
    return found


class Visitor(threading.Thread):
    """Prometheus, which asks every part, and a person who looks at the dashboard, now and then."""

    def __init__(self, site: Site, pause: float) -> None:
        super().__init__(name="visitor", daemon=True)
        self.odd: list[str] = []
        self.visits = 0
        self._site = site
        self._pause = pause
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._pause):
            self.visits += 1
            for port in self._site.ports.values():
                scrape(port, timeout=10)
            page = PAGES[self.visits % len(PAGES)]
            ask = partial(call, self._site.address("dashboard"), "GET")
            if (status := ask(page).status) not in (200, 503, 0):
                self.odd.append(f"the dashboard answered {status} to {page}")

    def stop(self) -> None:
        self._over.set()
        self.join()
