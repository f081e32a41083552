"""The order of tasks inside a queue, told a second time in plain Python: scores, tenants, filters and changes.

The scripts are held against this: each claim takes the tasks that the model would take, in its order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, islice
from random import Random

import pytest
from redis import Redis

from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from firmq.shared.redis.client import text
from firmq.shared.stores import maintenance
from firmq.shared.stores.dead_letters import requeue
from firmq.shared.stores.tasks import Filter
from tests.support.attempt_ends import claiming
from tests.support.keys import keys
from tests.support.store import LEASE, Store, store_on

SCORES = (None, 0, 1, 1.5, 5, 5, 1e6, 2**52, *(HIGHEST_SCORE - below for below in (22, 21, 1, 0)))
TENANTS = ("", "ann", "bob")


@dataclass(slots=True, kw_only=True)
class Task:
    """A task as it should be; `enqueued` is in microseconds."""

    id: str
    queue: str
    tenant: str
    score: float | None
    enqueued: int
    state: TaskState = TaskState.PENDING

    @property
    def order(self) -> float:
        """Its score: its own, or when it was enqueued in milliseconds."""
        return self.enqueued / 1000 if self.score is None else self.score

    @property
    def place(self) -> tuple[str, str]:
        return self.queue, self.tenant

    @property
    def slack(self) -> float:
        """Tasks of one step are enqueued a microsecond apart, which records do not have."""
        return 0.3 if self.score is None else 0.0


@dataclass(slots=True)
class Model:
    """The tasks, and in which order a claim may take them."""

    tasks: dict[str, Task] = field(default_factory=dict)

    def waiting(self, queue: str, low: float, high: float) -> list[Task]:
        found = [task for task in self.tasks.values() if task.state is TaskState.PENDING and task.queue == queue]
        return [task for task in found if low <= task.order <= high]

    def check(
        self, taken: list[str], want: int, lists: Mapping[str, list[str]], low: float = 0, high: float = math.inf
    ) -> None:
        """A claim takes as many as it may, and of the tasks of a tenant in a queue those with the lowest scores.

        Tasks without a score and without a tenant are taken as they are in the list of their queue.
        """
        left = {task.id: task for queue in ("high", "normal") for task in self.waiting(queue, low, high)}
        assert set(taken) <= left.keys()
        assert len(taken) == min(want, len(left))
        for task_id in taken:
            task = left[task_id]
            assert not [each for each in self.rivals(task, left, lists) if each.order < task.order - task.slack]
            del left[task_id]
            task.state = TaskState.RUNNING

    def rivals(self, task: Task, left: Mapping[str, Task], lists: Mapping[str, list[str]]) -> Iterator[Task]:
        yield from (each for each in left.values() if each.score is not None and each.place == task.place)
        if not task.tenant and task.score is not None:
            listed = (left[each] for each in lists[task.queue] if each in left and left[each].place == task.place)
            yield from (each for each in islice(listed, 1) if each.score is None)


class Life:
    """A system to which anything happens in any order, and its model."""

    def __init__(self, store: Store, random: Random, tenants: tuple[str, ...]) -> None:
        self.store, self.random, self.tenants = store, random, tenants
        self.model = Model()
        self.tokens: Iterator[int] = count()

    def pass_time(self) -> None:
        self.store.clock.advance(timedelta(milliseconds=self.random.randint(1, 3)))

    def pick(self, *states: TaskState) -> Task | None:
        found = [task for task in self.model.tasks.values() if task.state in states]
        return self.random.choice(found) if found else None

    def submit(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            score = self.random.choice([*SCORES, self.random.uniform(0, 9), self.store.clock.now_us / 1000 - 50])
            queue, tenant = self.random.choice(["high", "normal"]), self.random.choice(self.tenants)
            new = NewTask(id=new_task_id(), type="noop", data="null", queue=queue, score=score, fair_key=tenant or None)
            [stored] = self.store.queues.submit([new])
            assert stored.state is TaskState.PENDING
            now = self.store.clock.now_us
            self.model.tasks[new.id] = Task(id=new.id, queue=queue, tenant=tenant, score=score, enqueued=now)
            self.pass_time()

    def claim(self, want: int | None = None) -> None:
        size = want or self.random.randint(1, 6)
        low, high = sorted(self.random.sample([0, 1, 5, 6, 1e7, 2.0**52, HIGHEST_SCORE], 2))
        lists = self.lists()
        if self.random.random() < 0.5:
            self.model.check(self.taken(size), size, lists)
        else:
            self.model.check(self.taken(size, (low, high)), size, lists, low, high)

    def lists(self) -> dict[str, list[str]]:
        found = {queue: self.store.redis.lrange(keys.rq_queue(queue), 0, -1) for queue in ("high", "normal")}
        return {queue: list(map(text, ids)) for queue, ids in found.items()}

    def taken(self, want: int, scores: tuple[float | str, float | str] = ("", "")) -> list[str]:
        reply = self.store.scripts.call(
            "claim",
            *claiming("w", f"t{next(self.tokens)}", LEASE, want, 1 << 20, "high", 0, "normal", want, scores=scores),
        )
        return [text(row[0]) for row in reply[3]]

    def end(self) -> None:
        if task := self.pick(TaskState.RUNNING):
            kind = self.random.choice(["completed", "failed", "retrying", "interrupted"])
            token = text(self.store.redis.hget(keys.rq_job(task.id), "token"))
            fields = {"enqueued_us": task.enqueued} if kind == "interrupted" else {}
            assert self.store.report(task.id, kind, token, 5_000, **fields) == 1
            task.state = self.store.state(task.id)

    def give_back(self) -> None:
        if task := self.pick(TaskState.RUNNING):
            token = text(self.store.redis.hget(keys.rq_job(task.id), "token"))
            assert self.store.scripts.call("release", task.id, token, task.enqueued) == 1
            task.state = TaskState.PENDING

    def lose_a_worker(self) -> None:
        self.store.clock.advance(timedelta(microseconds=LEASE))
        for each in maintenance.reap(self.store.scripts, 100, 1000):
            self.model.tasks[each.id].state = TaskState(each.state)

    def move_due(self) -> None:
        self.store.clock.advance(timedelta(milliseconds=10))
        for queue in ("high", "normal"):
            maintenance.promote(self.store.scripts, queue, 100)
        due = [task for task in self.model.tasks.values() if task.state is TaskState.RETRYING]
        for task in due:
            assert self.store.state(task.id) is TaskState.PENDING
            task.state = TaskState.PENDING
            self.note_enqueued(task)

    def note_enqueued(self, task: Task) -> None:
        """Tasks of one step are enqueued a microsecond apart."""
        index = keys.pending if task.score is None and not task.tenant else keys.throttled
        at = self.store.redis.zscore(index(task.queue), task.id)
        at = self.store.redis.zscore(keys.pending(task.queue), task.id) if at is None else at
        assert at is not None
        assert 0 <= at - self.store.clock.now_us <= 200
        task.enqueued = int(at)

    def retry(self) -> None:
        if task := self.pick(TaskState.FAILED):
            score = self.random.choice([None, 0, 3, HIGHEST_SCORE])
            assert requeue(self.store.scripts, [task.id], score=score)[0].done
            task.state, task.score = TaskState.PENDING, task.score if score is None else score
            task.enqueued = self.store.clock.now_us
            self.pass_time()

    def change(self) -> None:
        if task := self.pick(TaskState.PENDING, TaskState.RETRYING):
            score = self.random.choice([None, 0, 2, 7.25, HIGHEST_SCORE])
            queue = self.random.choice([None, None, "high", "normal"])
            if score is None and queue is None:
                return
            self.store.queues.change(task.id, queue=queue, score=score)
            task.score = task.score if score is None else score
            if queue and queue != task.queue:
                task.queue = queue
                task.enqueued = self.store.clock.now_us if task.state is TaskState.PENDING else task.enqueued
            self.pass_time()

    def cancel(self) -> None:
        if task := self.pick(TaskState.PENDING):
            self.store.queues.cancel(task.id, "")
            task.state = TaskState.CANCELLED

    def repair(self) -> None:
        from tests.integration.stores.test_throttling import check_consistency

        assert check_consistency(self.store) == {}

    def look(self) -> None:
        low, high = sorted(self.random.sample([0, 1, 5, 6, 1e7, 2.0**52, HIGHEST_SCORE], 2))
        page = self.store.records.page(Filter(min_score=low, max_score=high), limit=1000)
        listed = {each.id: each for each in page.items}
        for task in self.model.tasks.values():
            if task.score is not None or task.state is TaskState.PENDING:
                assert (task.id in listed) == (low <= task.order <= high), task
        for task_id, summary in listed.items():
            if (score := self.model.tasks[task_id].score) is not None:
                assert summary.score == score

    def anything(self) -> None:
        acts = [self.submit, self.submit, self.claim, self.end, self.give_back, self.lose_a_worker, self.move_due]
        self.random.choice([*acts, self.claim, self.retry, self.change, self.cancel, self.repair, self.look])()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tenants", [("",), TENANTS], ids=["one tenant", "tenants"])
def test_claims_take_what_the_model_takes_whatever_happens(
    redis_client: Redis, seed: int, tenants: tuple[str, ...]
) -> None:
    life = Life(store_on(redis_client), Random(seed), tenants)
    for _ in range(150):
        life.anything()
    life.lose_a_worker()
    life.move_due()
    while life.pick(TaskState.PENDING):
        lists = life.lists()
        life.model.check(life.taken(20), 20, lists)
    life.taken(1)
    for left in ("throttled:*", "pending:*", "wait-queue*", "fair"):
        assert redis_client.keys(f"{keys.prefix}firmq:{left}") == [], left
    assert redis_client.keys(keys.rq_deferred("*")) == []
