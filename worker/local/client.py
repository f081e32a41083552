"""The client of local mode: what `shared.client.Client` does with a gateway, done in the caller's process.

Nothing runs before somebody waits for something; then tasks run one at a time in the order in which a lone worker
would take them: what is due, by priority, then by age. What a handler does to its process (a crash, `os._exit`) it does
to the caller; a time limit holds in the main thread only; limits and fair turns have no work with one task at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import count
from typing import Any, Self, Unpack

from shared.client.answers import Accepted, BatchItem, Ended, Status, Task, TaskDetail
from shared.client.problems import Conflict, NotFound, NotInTime, Problem, TaskFailed
from shared.client.sending import Sending
from shared.client.tasks import Options, Seconds, plain
from shared.config.settings import Settings, load
from shared.domain.task import TaskState, new_task_id
from worker.handlers import registry
from worker.handlers.parent_results import ParentResults
from worker.local.attempts import Attempts
from worker.local.tasks import LocalTask, ended_batch
from worker.local.time import SteppedTime, Time
from worker.local.validator import Validator

_UNKNOWN = ("unique_key", "unique_until", "on_conflict", "webhook")


class LocalClient:
    """Runs the handlers of `modules` (else TASK_MODULES) here. For one thread.

    `time` is a `SteppedTime`, in which waiting takes no time; `WallTime()` makes retries wait as they would.
    """

    def __init__(
        self, modules: Iterable[str] | None = None, *, settings: Settings | None = None, time: Time | None = None
    ) -> None:
        self.settings = settings or load()
        handlers = registry.load(self.settings.task_modules if modules is None else modules).handlers
        self.attempts = Attempts(handlers, self.settings)
        self.validator = Validator(handlers, self.settings)
        self.time = time or SteppedTime()
        self.records: dict[str, LocalTask] = {}
        self.batches: dict[str, LocalBatch] = {}
        self.keys: dict[str, tuple[str, Accepted]] = {}
        self.orders = count()
        self.ranks = {name: rank for rank, name in enumerate(sorted(self.settings.queues, key=self._weight))}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """There is nothing to close."""

    # --- sending ---

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Keeps a task until somebody waits. Raises Refused as a gateway refuses, for type, data and priority."""
        body = {"type": task_type, "data": data, **plain(options)}
        if idempotency_key is None:
            return self.keep(self.new_task(body))
        text = json.dumps(body, sort_keys=True)
        if idempotency_key not in self.keys:
            self.keys[idempotency_key] = (text, self.keep(self.new_task(body)))
        known, accepted = self.keys[idempotency_key]
        if known != text:
            raise self.validator.key_reused()
        return accepted

    def batch(
        self, tasks: Iterable[Mapping[str, Any]], *, name: str | None = None, then: Mapping[str, Any] | None = None
    ) -> LocalBatch:
        """Keeps many tasks, each accepted or refused by itself: a list at once, anything else by iterating over it."""
        return LocalBatch(self, tasks, name or "", then).send(tasks)

    def new_task(self, body: Mapping[str, Any]) -> LocalTask:
        """A task out of what POST /tasks takes. Raises Refused."""
        refused = [name for name in _UNKNOWN if name in body]
        if refused:
            raise ValueError(f"local mode knows no {', '.join(refused)}")
        text, priority = self.validator.check(body)
        now = self.time.now()
        due = _due(body, now)
        parents = {
            **{each: "success" for each in body.get("depends_on", ()) if isinstance(each, str)},
            **{each["task_id"]: each.get("on", "success") for each in body.get("depends_on", ()) if _is_named(each)},
        }
        for at, each in enumerate(parents):
            if each not in self.records:
                raise self.validator.no_parent(at, each)
        retry = {**body.get("retry", {}), **({"max_retries": body["max_retries"]} if "max_retries" in body else {})}
        handler = self.attempts.handlers[body["type"]]
        policy = self.settings.retry_policy.override(handler.retry).override(retry)
        task = LocalTask(
            id=new_task_id(),
            type=body["type"],
            data=text,
            priority=priority,
            created_at=now,
            enqueued_at=max(now, due or now),
            order=next(self.orders),
            due_at=due,
            expires_at=now + body["expires_in"] if "expires_in" in body else None,
            timeout=body.get("timeout"),
            retry=retry,
            max_retries=policy.max_retries,
            tags=tuple(dict.fromkeys(body.get("tags", ()))),
            parents=parents,
            on_parent_failure=body.get("on_parent_failure", "cancel"),
        )
        if due is not None:
            task.state = TaskState.SCHEDULED
        if parents:
            task.state = TaskState.BLOCKED
        return task

    def keep(self, task: LocalTask) -> Accepted:
        """From here on it is there, and will run."""
        self.records[task.id] = task
        self.settle()
        return Accepted(task_id=task.id, status=task.state, type=task.type, priority=task.priority)

    # --- looking ---

    def get(self, task_id: str) -> TaskDetail:
        """A task with everything on record. Raises NotFound."""
        return self._find(task_id).detail()

    def tasks(
        self, *, status: TaskState | str | None = None, task_type: str | None = None, tag: str | None = None
    ) -> Iterator[Task]:
        """All tasks that match, the newest first."""
        for each in reversed(list(self.records.values())):
            if status in (None, each.state) and task_type in (None, each.type) and (tag is None or tag in each.tags):
                yield each.detail()

    def _find(self, task_id: str) -> LocalTask:
        try:
            return self.records[task_id]
        except KeyError:
            raise NotFound(
                {"type": "/problems/not-found", "title": "Not found", "status": 404, "detail": "no task has this id"}
            ) from None

    # --- running ---

    def run(self, until: float | None = None) -> None:
        """Runs everything, also what is due later; with `until`, what is due by that moment."""
        while self._step(until):
            pass

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """How the task ended, after running what comes before it. Raises NotInTime, or NotFound."""
        task = self._find(task_id)
        seconds = plain({"timeout": timeout}).get("timeout")
        until = None if seconds is None else self.time.now() + seconds
        while not task.state.ended:
            if not self._step(until):
                if until is not None:
                    self.time.sleep(max(0.0, until - self.time.now()))
                raise NotInTime(f"task {task_id} has not ended: it is {task.state}")
        return task.ended()

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """What the task's handler returned. Raises TaskFailed when it ended otherwise, or NotInTime."""
        ended = self.wait(task_id, timeout)
        if ended.status is not TaskState.COMPLETED:
            raise TaskFailed(ended)
        return ended.result

    def cancel(self, task_id: str, reason: str | None = None) -> Status:
        """Cancels a task that has not ended. Raises Conflict when it has."""
        task = self._find(task_id)
        if task.state is TaskState.CANCELLED:
            return Status(task_id=task_id, status=task.state)
        if task.state.ended:
            text = f"the task is {task.state}: it cannot be cancelled any more"
            raise Conflict({"type": "/problems/wrong-state", "title": "Wrong state", "status": 409, "detail": text})
        task.cancel_reason = reason
        task.end(TaskState.CANCELLED, self.time.now())
        self.settle()
        return Status(task_id=task_id, status=task.state)

    def _step(self, until: float | None) -> bool:
        """Runs one attempt, letting time pass to it if need be; whether there was one."""
        waiting = [each for each in self.records.values() if not each.state.ended and each.state != TaskState.BLOCKED]
        now = self.time.now()
        due = [each for each in waiting if (each.due_at or now) <= now]
        if not due:
            later = min((each.due_at or now for each in waiting), default=None)
            if later is None or (until is not None and later > until):
                return False
            self.time.sleep(later - now)
            return True
        self._attempt(min(due, key=lambda each: (self.ranks[each.priority], each.due_at or 0.0, each.order)), now)
        self.settle()
        return True

    def _attempt(self, task: LocalTask, now: float) -> None:
        if task.expires_at is not None and task.expires_at <= now:
            task.end(TaskState.EXPIRED, now)
            return
        task.enqueued_at = max(task.enqueued_at, task.due_at or 0.0)
        task.state, task.started_at = TaskState.RUNNING, now
        task.attempt += 1
        task.parent_results = self._parent_results(task)
        outcome = self.attempts.run(task, now)
        task.judge(outcome, self.time.now())

    # --- what ties tasks to each other ---

    def _parent_results(self, task: LocalTask) -> ParentResults:
        parents = {each: self.records[each].as_parent() for each in task.parents}
        before = self.batches[task.after_batch] if task.after_batch else None
        return ParentResults(
            parents=parents, batch=ended_batch(before.batch_id or "", before.name, before.kept) if before else None
        )

    def settle(self) -> None:
        """Tells those that wait for others what has become of these, until nothing moves any more."""
        moved = True
        while moved:
            blocked = [each for each in self.records.values() if each.state is TaskState.BLOCKED]
            moved = any(self._release(each) for each in blocked)

    def _release(self, task: LocalTask) -> bool:
        if task.after_batch:
            before = self.batches[task.after_batch]
            if not before.complete or not all(each.state.ended for each in before.kept):
                return False
        parents = [(self.records[each], on) for each, on in task.parents.items()]
        if task.on_parent_failure != "release":
            wrong = [each for each, on in parents if on == "success" and _missed(each)]
            if wrong and task.on_parent_failure == "wait" and all(each.state is TaskState.FAILED for each in wrong):
                return False
            if wrong:
                task.cancel_reason = f"task {wrong[0].id}, which it depends on, is {wrong[0].state}"
                task.end(TaskState.CANCELLED, self.time.now())
                return True
        if not all(each.state.ended for each, _ in parents):
            return False
        now = self.time.now()
        later = task.due_at is not None and task.due_at > now
        task.state, task.enqueued_at = TaskState.SCHEDULED if later else TaskState.PENDING, now
        return True

    def _weight(self, queue: str) -> int:
        return -self.settings.queues[queue]


class LocalBatch(Sending):
    """A batch whose tasks are kept at once or by iterating over it: gives what became of each."""

    def __init__(
        self, client: LocalClient, tasks: Iterable[Mapping[str, Any]], name: str, then: Mapping[str, Any] | None
    ) -> None:
        self.client = client
        self.tasks = tasks
        self.name = name
        self.then = then
        self.accepted = 0
        self.refused = 0
        self.complete = False
        self.kept: list[LocalTask] = []

    def results(self) -> Iterator[BatchItem]:
        batch_id = self.batch_id = new_task_id()
        self.client.batches[batch_id] = self
        follower = self.client.new_task(self.then) if self.then is not None else None
        ids: dict[int | str, str] = {}
        for index, given in enumerate(self.tasks):
            item = self._keep(index, given, ids)
            self.accepted += item.accepted
            self.refused += not item.accepted
            yield item
        if follower is not None:
            follower.after_batch, follower.state = batch_id, TaskState.BLOCKED
            self.client.records[follower.id] = follower
        self.complete = True
        self.client.settle()

    def _keep(self, index: int, given: Mapping[str, Any], ids: dict[int | str, str]) -> BatchItem:
        body = {name: value for name, value in given.items() if name != "item"}
        try:
            if "depends_on" in body:
                body["depends_on"] = [
                    self.client.validator.resolved(at, each, ids) for at, each in enumerate(body["depends_on"])
                ]
            task = self.client.new_task(body)
        except Problem as refusal:
            return BatchItem(index=index, problem=refusal.document)
        task.batch_id, task.batch_index = self.batch_id, index
        ids[index] = task.id
        if "item" in given:
            ids[given["item"]] = task.id
        self.kept.append(task)
        accepted = self.client.keep(task)
        return BatchItem(index=index, task_id=task.id, status=accepted.status)


def _missed(parent: LocalTask) -> bool:
    return parent.state.ended and parent.state is not TaskState.COMPLETED


def _is_named(dependency: Any) -> bool:
    return isinstance(dependency, Mapping)


def _due(body: Mapping[str, Any], now: float) -> float | None:
    if body.get("delay"):
        return now + float(body["delay"])
    return datetime.fromisoformat(body["run_at"]).timestamp() if "run_at" in body else None
