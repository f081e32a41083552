"""Whether what the clients were told, what the parts counted, what ran and what is stored are the same."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from firmq.shared.redis.client import text
from tests.labs.faults.clients import call
from tests.labs.faults.recount import recount
from tests.labs.load.clients import Ledger
from tests.labs.load.handlers import START, STARTS
from tests.labs.load.site import Site
from tests.support.harness import Samples, scrape
from tests.support.keys import keys

ENDS = {"plain": "completed", "retried": "completed", "dead": "failed"}
PAGE = 200


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt that a handler began."""

    sent: float
    began: float
    attempt: int


def starts(site: Site) -> list[Start]:
    """As the handlers wrote them down."""
    rows = START.iter_unpack((site.folder / STARTS).read_bytes())
    return [Start(sent, began, int(attempt)) for sent, began, attempt in rows]


def counts(site: Site, ledgers: Sequence[Ledger], begun: Sequence[Start]) -> dict[str, dict[str, int]]:
    """Tasks by how they ended, as everybody tells who should know; the clients are whom all are held against."""
    told = sum((ledger.accepted for ledger in ledgers), Counter[str]())
    return {
        "clients": {
            "accepted": told.total(),
            "completed": told["plain"] + told["retried"],
            "failed": told["dead"],
            "retried": told["retried"],
        },
        "counters": by_counters(site),
        "minutes": by_minutes(site),
        "handlers": {
            "accepted": sum(start.attempt == 1 for start in begun),
            "retried": sum(start.attempt == 2 for start in begun),
            "more": sum(start.attempt > 2 for start in begun),
        },
    }


def by_counters(site: Site) -> dict[str, int]:
    workers = [scrape(site.ports[name], timeout=30) for name in site.named("worker")]
    return {
        "accepted": _sum([scrape(site.ports["gateway"], timeout=30)], "task_submissions_total"),
        "completed": _sum(workers, "task_completions_total", status="completed"),
        "failed": _sum(workers, "task_completions_total", status="failed"),
        "retried": _sum(workers, "task_retries_total"),
    }


def _sum(pages: Sequence[Samples], metric: str, **labels: str) -> int:
    wanted = labels.items()
    return int(
        sum(value for page in pages for (name, found), value in page.items() if name == metric and wanted <= set(found))
    )


def by_minutes(site: Site) -> dict[str, int]:
    """What Redis counted, minute by minute, for the dashboard; of runs up to two hours long."""
    minute = int(time.time() / 60)
    total: Counter[str] = Counter()
    for each in range(minute - 120, minute + 1):
        total.update({text(name): int(count) for name, count in site.redis.hgetall(keys.throughput(each)).items()})
    return {"accepted": total["submitted"], "completed": total["completed"], "failed": total["failed"]}


def differences(found: dict[str, dict[str, int]], unanswered: int) -> Iterator[str]:
    """Who counted otherwise than the clients; of what was never answered nobody knows."""
    told = found["clients"]
    for who, row in found.items():
        for what, count in row.items():
            if not told.get(what, 0) <= count <= told.get(what, 0) + unanswered:
                yield f"{what}: {count} by the {who}, {told.get(what, 0)} by the clients ({unanswered} never answered)"


def stored(site: Site, ledgers: Sequence[Ledger]) -> tuple[int, list[str]]:
    """How many tasks are on record, and what is wrong with them; nobody may remove any meanwhile."""
    known = {task_id: kind for ledger in ledgers for task_id, kind in ledger.latest}
    unanswered = sum(ledger.unanswered for ledger in ledgers)
    wrong, strangers, tasks = [], 0, 0
    for item in _all_tasks(site):
        tasks += 1
        kind = known.get(item["task_id"])
        strangers += kind is None
        if kind and item["status"] != ENDS[kind]:
            wrong.append(f"task {item['task_id']} was to be {ENDS[kind]} and is {item['status']}")
    if strangers > unanswered:
        wrong.append(f"{strangers} tasks are stored that nobody sent")
    return tasks, wrong + recount(site.redis).complaints


def _all_tasks(site: Site) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = call(site.address("gateway"), "GET", f"/tasks?limit={PAGE}{cursor}")
        assert page.status == 200, page
        yield from page.body["items"]
        if not page.body["next_cursor"]:
            return
        cursor = f"&cursor={page.body['next_cursor']}"
