"""One run read back through the API when all is over, for its judges."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from tests.labs.faults.clients import NO_ANSWER, Answer, call
from tests.labs.faults.laboratory import Run
from tests.labs.faults.ledger import Asked, Execution
from tests.labs.faults.recount import Recount, recount

Task = Mapping[str, Any]
SECOND = 1_000_000_000
AFTER_THAW = int(1.5 * SECOND)
"""For which a process that was frozen past its lease may go on before it learns that."""


@dataclass
class Case:
    """One run, with everything read back."""

    run: Run
    tasks: dict[str, Task]
    dead: set[str]
    batches: dict[str, Task]
    queues: Sequence[Task]
    recount: Recount

    @cached_property
    def executions(self) -> dict[str, list[Execution]]:
        return self.run.ledger.by_task()

    @cached_property
    def by_process(self) -> dict[int, list[Execution]]:
        """What each process of a handler ran, in the order in which it began."""
        found = defaultdict(list)
        for each in self.run.ledger.executions():
            found[each.pid].append(each)
        return dict(found)

    def attempt_of(self, execution: Execution) -> Task | None:
        """What is on record of it."""
        task = self.tasks.get(execution.task_id)
        found = (each for each in task["attempts"] if each["number"] == execution.attempt) if task else iter(())
        return next(found, None)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each task, by its id."""
        return {task_id: task["data"]["kind"] for task_id, task in self.tasks.items()}

    @cached_property
    def by_number(self) -> dict[int, list[str]]:
        """The tasks that carry a number of the ledger."""
        found = defaultdict(list)
        for task_id, task in self.tasks.items():
            found[task["data"]["n"]].append(task_id)
        return dict(found)

    @cached_property
    def asked_of(self) -> dict[str, Asked]:
        """What was asked for, by the id of the task that it became."""
        asked = self.run.ledger.asked
        return {task_id: asked[n] for n, ids in self.by_number.items() if n in asked for task_id in ids}

    @cached_property
    def sent_back(self) -> tuple[Counter[str], Counter[str]]:
        """How often each dead letter was sent back for certain, and how often perhaps."""
        deeds = [deed for deed in self.run.ledger.deeds if deed.what == "retry"]
        certain = Counter(deed.task_id for deed in deeds if deed.status == 202)
        return certain, Counter(deed.task_id for deed in deeds if deed.status in (0, 503))

    def monotonic(self, moment: str) -> int:
        """Nanoseconds, of a moment on Redis' clock."""
        return int(datetime.fromisoformat(moment).timestamp() * SECOND) - self.run.wall_offset_ns

    def was_frozen(self, execution: Execution) -> bool:
        """Whether it, its worker, or the machine stood still while it ran."""
        own = {execution.pid, execution.worker}
        frozen = [(each.begin_ns, each.end_ns) for each in self.run.happened if each.frozen and own & {*each.pids}]
        spans = [*frozen, *self.run.stalls]
        return any(begin <= execution.last_ns and end >= execution.start_ns for begin, end in spans)

    def frozen_past(self, execution: Execution, moment: int) -> bool:
        """Whether it could not be ended by that moment because it was frozen itself. A frozen worker is no excuse."""
        frozen = [each for each in self.run.happened if each.frozen and execution.pid in each.pids]
        excuses = [(each.begin_ns, each.end_ns) for each in frozen]
        return any(begin <= moment <= end + AFTER_THAW for begin, end in [*excuses, *self.run.stalls])


def read_back(run: Run) -> Case:
    """Every task, dead letter and batch, through the API; a gateway that was just started may need some seconds."""
    run.site.await_gateways()
    gateways = list(run.site.gateways.values())
    ids = [item["task_id"] for item in _pages(gateways[0], "/tasks")]
    wanted = sorted({*ids, *run.ledger.accepted})

    def get(numbered: tuple[int, str]) -> tuple[str, Task | None]:
        at, task_id = numbered
        answer = answered(gateways[at % len(gateways)], f"/tasks/{task_id}")
        return task_id, answer.body if answer.status == 200 else None

    with ThreadPoolExecutor(4) as pool:
        found = dict(pool.map(get, enumerate(wanted)))
    return Case(
        run=run,
        tasks={task_id: task for task_id, task in found.items() if task is not None},
        dead={item["task_id"] for item in _pages(gateways[0], "/dlq/failed-tasks")},
        batches={each["batch_id"]: each for each in _pages(gateways[0], "/batches")},
        queues=answered(gateways[0], "/queues").body["items"],
        recount=recount(run.site.admin),
    )


def answered(gateway: str, path: str, pause: float = 1) -> Answer:
    """What a gateway says. One that cannot say, because Redis does not answer in time, is asked again for a minute."""
    for _ in range(60):
        answer = call(gateway, "GET", path)
        if answer.status not in (NO_ANSWER, 503):
            return answer
        time.sleep(pause)
    raise AssertionError(f"GET {path} was not answered for a minute")


def _pages(gateway: str, path: str) -> Iterator[Task]:
    cursor = ""
    while True:
        page = answered(gateway, f"{path}?limit=200{cursor}").body
        yield from page["items"]
        if not page["next_cursor"]:
            return
        cursor = f"&cursor={page['next_cursor']}"
