"""The life of tasks, told a second time in plain Python: without Redis, scripts, indexes or copies of anything.

`shared/redis/lua` is held against this: whatever is done to both, each task must be in the same state in both. Where
the scripts may choose (which tasks a claim takes, when a task too old to start is noticed), the test tells this model
what they chose, and it says whether they were allowed to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from firmq.shared.domain.task import TRANSITIONS, WAITING, On, OnParentFailure, TaskState
from tests.support.attempt_ends import ENDS

S = TaskState
IN_A_SLOT = {S.PENDING, S.RUNNING}
OVERRULED = {S.RETRYING, S.FAILED, S.PENDING, S.SCHEDULED}
MOST_LOSSES = 20
TOLD, UNTOLD, HOLDS = "told", "untold", "holds"


@dataclass(slots=True, kw_only=True)
class Task:
    """A task as it should be. Instants are microseconds."""

    id: str
    queue: str
    type: str = "noop"
    due: int | None = None
    expires: int | None = None
    tags: tuple[str, ...] = ()
    unique: str | None = None
    until: str = "end"
    limit: str | None = None
    parents: dict[str, On] = field(default_factory=dict)
    policy: OnParentFailure = OnParentFailure.CANCEL
    batch: str | None = None
    state: S = S.PENDING
    waits: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    suspicions: int = 0
    lane: str = ""
    """Where it was enqueued the last time."""
    token: str = ""
    begun: bool = False
    wish: bool = False
    lease: int = 0
    ended_at: int = 0
    history: set[int] = field(default_factory=set)
    steps: dict[str, str] = field(default_factory=dict)
    """The kind of each stored step."""
    awaits: str = ""
    groups: dict[str, str] = field(default_factory=dict)
    """The tasks that it has started, and the group of each."""

    def holds(self, token: str) -> bool:
        return self.state is S.RUNNING and self.token == token


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch as it should be; it remembers the last state of tasks that were removed."""

    id: str
    created: int
    max_running: int | None = None
    stop_on_error: int | None = None
    states: dict[str, S] = field(default_factory=dict)
    line: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    done: bool = False
    stopped: bool = False
    work: str | None = None
    removed: int = 0

    def count(self, *states: S) -> int:
        return sum(each in states for each in self.states.values())

    @property
    def ended(self) -> int:
        return sum(each.ended for each in self.states.values())

    @property
    def full(self) -> bool:
        return self.max_running is not None and self.count(*IN_A_SLOT) >= self.max_running


class Model:
    """Everything that is to be in Redis, and what each act makes of it."""

    def __init__(self, max_crashes: int) -> None:
        self.max_crashes = max_crashes
        self.now = 0
        self.tasks: dict[str, Task] = {}
        self.batches: dict[str, Batch] = {}
        self.children: dict[str, dict[str, str]] = {}
        self.owed: dict[str, int] = {}
        self.unique: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        self.concurrent: set[str] = set()
        """Types whose tasks are enqueued in the concurrent lane of their queue."""
        self.counts: Counter[str] = Counter()

    def of(self, *states: S) -> list[Task]:
        return [task for task in self.tasks.values() if task.state in states]

    def lane_of(self, task: Task) -> str:
        return f"{task.queue}+" if task.type in self.concurrent else task.queue

    def running_under(self, limit: str) -> set[str]:
        return {task.id for task in self.of(S.RUNNING) if task.limit == limit}

    def may_start(self, task: Task) -> bool:
        """Whether its limit has room."""
        most = self.limits.get(task.limit or "")
        return most is None or len(self.running_under(task.limit or "")) < most

    # --- submission ---

    def submit(self, new: Task, conflict: str, max_length: int, may_have_queue: bool) -> str:
        """What the sender is told: a state, or why not."""
        if refusal := self._refusal(new):
            return refusal
        if not may_have_queue:
            return "many"
        holder = self.tasks[self.unique[new.unique]] if new.unique in self.unique else None
        if holder and not (conflict == "replace" and holder.state is not S.RUNNING):
            return f"{'existing' if conflict == 'existing' else 'conflict'} {holder.id}"
        pending = sum(task.queue == new.queue for task in self.of(S.PENDING))
        makes_way = holder and holder.state is S.PENDING and holder.queue == new.queue
        if max_length and pending >= max_length and not makes_way:
            return "full"
        if holder:
            self.cancel(holder.id)
        self._store(new)
        return new.state

    def _refusal(self, new: Task) -> str:
        batch = self.batches[new.batch] if new.batch else None
        if batch and (batch.closed or batch.stopped):
            return "closed"
        return next((f"missing {each}" for each in new.parents if each not in self.tasks), "")

    def _store(self, new: Task) -> None:
        verdicts = {each: self._judge(self.tasks[each].state, on, new.policy) for each, on in new.parents.items()}
        new.waits = sum(verdict != "met" for verdict in verdicts.values())
        self.tasks[new.id] = new
        self.counts["submitted"] += 1
        if new.unique:
            self.unique[new.unique] = new.id
        new.state = self._first_state(new, "cancel" in verdicts.values())
        new.lane = self.lane_of(new)
        if new.batch:
            self.batches[new.batch].states[new.id] = new.state
        if new.state.ended:
            self._end(new)
            return
        for parent, verdict in verdicts.items():
            told = {"wait": UNTOLD, "hold": HOLDS}.get(verdict, TOLD)
            self.children.setdefault(parent, {})[new.id] = told

    def _first_state(self, new: Task, unmet: bool) -> S:
        if unmet:
            return S.CANCELLED
        if new.waits:
            return S.BLOCKED
        if new.due is not None and new.due > self.now:
            return S.SCHEDULED
        if new.batch and self.batches[new.batch].full:
            self.batches[new.batch].line[new.id] = self.now
            return S.BLOCKED
        return S.PENDING

    # --- running ---

    def start(self, task: Task, token: str, lease: int) -> None:
        assert task.expires is None or task.expires > self.now, f"{task} was too old to start"
        assert not (task.batch and self.batches[task.batch].stopped), f"{task} is of a batch that was stopped"
        assert self.may_start(task), f"{task} had no room under its limit"
        task.attempt += 1
        task.token, task.lease = token, lease
        if task.unique and task.until == "start":
            self._release_unique(task)
        self._move(task, S.RUNNING)

    def expire_in_claim(self, task: Task) -> None:
        assert task.expires is not None
        assert task.expires <= self.now, f"{task} was not too old to start"
        self._move(task, S.EXPIRED)

    def cancel_in_claim(self, task: Task) -> None:
        assert task.batch
        assert self.batches[task.batch].stopped, f"nobody wanted {task} cancelled"
        self._move(task, S.CANCELLED)

    def extend(self, task_id: str, token: str, begun: bool, lease: int) -> int:
        task = self.tasks.get(task_id)
        if not task or task.token != token or task.state is not S.RUNNING:
            return 1
        task.lease = lease
        task.begun = task.begun or begun
        return 2 if task.wish else 0

    def report(self, task_id: str, token: str, kind: str, delay: int, awaits: str = "") -> int:
        task = self.tasks.get(task_id)
        if not task or task.token != token:
            return 0
        if task.state is not S.RUNNING:
            return 1
        outcome, state = ENDS[kind][0], S(ENDS[kind][1])
        task.crashes += outcome == "crashed"
        task.suspicions += kind == "suspected" and not task.wish
        overruled = task.wish and state in OVERRULED
        if overruled:
            state = S.CANCELLED
        elif state is S.CANCELLED and not task.wish:
            state = S.PENDING  # the wish was withdrawn
        task.history.add(task.attempt)
        if state is S.RETRYING:
            task.failures += outcome == "failed"
            self.counts["retrying"] += 1
            task.due = self.now + delay
        if state is S.PENDING:
            self.counts["interrupted"] += 1
            task.token = ""
        task.begun = False
        if state is S.SCHEDULED:
            state = self._suspend(task, awaits, self.now + delay)
        self._move(task, state)
        return 2 if overruled else 1

    def _suspend(self, task: Task, awaits: str, due: int) -> S:
        """What becomes of a task whose handler waits; it has started in time."""
        self.counts["scheduled"] += 1
        task.expires = None
        kind, _, name = awaits.partition(" ")
        if kind == "children":
            group = [each for each, its in task.groups.items() if its == name and each in self.tasks]
            open_ones = [each for each in group if not self.tasks[each].state.ended]
            for each in open_ones:
                self.children.setdefault(each, {})[task.id] = UNTOLD
            if open_ones:
                task.waits, task.awaits = len(open_ones), awaits
                return S.BLOCKED
        if kind == "children" or (kind == "signal" and task.steps.get(f"signal:{name}") == "signal"):
            task.token = ""
            return S.PENDING
        task.due, task.awaits = due, awaits
        return S.SCHEDULED

    # --- steps ---

    def save_step(self, task_id: str, token: str, name: str, kind: str) -> str:
        task = self.tasks.get(task_id)
        if not task or not task.holds(token):
            return "lost"
        if name in task.steps:
            return "found"
        task.steps[name] = kind
        return "stored"

    def load_steps(self, task_id: str, token: str) -> dict[str, str] | None:
        """The steps that an attempt finds; the sleep that it comes from is over."""
        task = self.tasks.get(task_id)
        if not task or not task.holds(token):
            return None
        kind, _, name = task.awaits.partition(" ")
        if kind == "sleep" and task.steps.get(name) == "sleep":
            task.steps[name] = "slept"
        task.awaits = ""
        return task.steps

    def signal(self, task_id: str, name: str) -> tuple[str, str]:
        task = self.tasks.get(task_id)
        if not task:
            return "", ""
        state = task.state
        if task.steps.get(f"signal:{name}") == "signal":
            return state, "stored"
        if state.ended:
            return state, "ended"
        task.steps[f"signal:{name}"] = "signal"
        if state is S.SCHEDULED and task.awaits == f"signal {name}":
            self._enqueue_or_line(task, self.now)
            task.due = None
        return state, "stored"

    def start_children(self, task_id: str, token: str, group: str, new: list[Task]) -> str:
        said = self.save_step(task_id, token, group, "result")
        if said != "stored":
            return said
        task = self.tasks[task_id]
        for child in new:
            self._store(child)
            task.parents[child.id], task.groups[child.id] = On.END, group
            self.children.setdefault(child.id, {})[task.id] = TOLD
        return said

    def restart(self, task_id: str, token: str, read: list[str]) -> bool:
        task = self.tasks.get(task_id)
        if not task or not task.holds(token):
            return False
        unread = [f"signal:{name}" for name in ("go",) if name not in read]
        task.steps = {each: "signal" for each in unread if task.steps.get(each) == "signal"}
        task.awaits = ""
        for child in task.groups:
            del task.parents[child]
            self.children.get(child, {}).pop(task.id, None)
        task.groups = {}
        return True

    def release(self, task_id: str, token: str) -> int:
        task = self.tasks.get(task_id)
        if not task or task.token != token or task.state is not S.RUNNING:
            return 0
        task.attempt -= 1
        task.token, task.begun = "", False
        if task.wish:
            self._move(task, S.CANCELLED)
            return 1
        if task.unique and task.until == "start":
            self.unique.setdefault(task.unique, task.id)
        self._move(task, S.PENDING)
        return 1

    def reap(self) -> list[tuple[str, str]]:
        """Ends attempts whose lease is over; what became of each."""
        over = sorted((task.lease, task.id) for task in self.of(S.RUNNING) if task.lease <= self.now)
        return [(task_id, self._reap(self.tasks[task_id])) for _, task_id in reversed(over)]

    def _reap(self, task: Task) -> str:
        self.counts["lost"] += 1
        task.history.add(task.attempt)
        task.crashes += task.begun
        task.losses += 1
        task.token, task.begun = "", False
        dead = task.crashes >= self.max_crashes or task.losses >= MOST_LOSSES
        self._move(task, S.CANCELLED if task.wish else S.FAILED if dead else S.PENDING)
        return task.state

    # --- waiting ---

    def promote(self, queue: str) -> int:
        moved = 0
        for state in (S.RETRYING, S.SCHEDULED):
            due = [(task.due or 0, task.id) for task in self.of(state) if task.queue == queue]
            for at, task_id in sorted(due):
                if at <= self.now:
                    self._enqueue_or_line(self.tasks[task_id], 0)
                    moved += 1
        return moved

    def run_now(self, task_id: str) -> bool:
        task = self.tasks.get(task_id)
        if not task or task.state not in (S.SCHEDULED, S.RETRYING):
            return False
        self._enqueue_or_line(task, self.now)
        return True

    def expire(self) -> int:
        old = sorted((task.expires, task.id) for task in self.of(*WAITING) if task.expires is not None)
        expired = 0
        for expires, task_id in old:
            if expires <= self.now and self.tasks[task_id].state in WAITING:
                self._move(self.tasks[task_id], S.EXPIRED)
                expired += 1
        return expired

    def cancel(self, task_id: str) -> str:
        task = self.tasks.get(task_id)
        if not task:
            return "unknown"
        if task.state is S.RUNNING:
            task.wish = True
            return "requested"
        if task.state in WAITING:
            self._move(task, S.CANCELLED)
        return "cancelled" if task.state is S.CANCELLED else "ended"

    # --- dead letters and retention ---

    def requeue(self, task_id: str) -> bool:
        task = self.tasks.get(task_id)
        if not task or task.state is not S.FAILED or self._stopped(task):
            return False
        task.failures = task.crashes = task.losses = task.suspicions = 0
        task.begun = task.wish = False
        task.expires = task.due = None
        task.token = ""
        self.counts["requeued"] += 1
        if task.unique:
            self.unique.setdefault(task.unique, task.id)
        self._enqueue_or_line(task, self.now)
        return True

    def _stopped(self, task: Task) -> bool:
        """Whether its batch lets nobody start."""
        return bool(task.batch and task.batch in self.batches and self.batches[task.batch].stopped)

    def prune(self, state: S, age: int) -> tuple[int, int]:
        """How many are removed, of how many that are old enough."""
        removed = 0
        old = [task for task in self.of(state) if task.ended_at <= self.now - age]
        for task in old:
            if state is S.COMPLETED and self.children.get(task.id):
                task.ended_at = self.now
            else:
                self._remove(task)
                removed += 1
        return removed, len(old)

    def purge(self, task_id: str) -> bool:
        task = self.tasks.get(task_id)
        if not task or task.state is not S.FAILED:
            return False
        self._remove(task)
        return True

    def _remove(self, task: Task) -> None:
        if task.batch and task.batch in self.batches:
            self.batches[task.batch].removed += 1
        self._let_go(task)
        if self.children.get(task.id):
            self.owed.setdefault(f"task:{task.id}", self.now)
        self._release_unique(task)
        del self.tasks[task.id]

    # --- what is owed ---

    def pay(self) -> None:
        """What ended tasks and stopped batches owe to others."""
        while self.owed:
            _, what = min((at, what) for what, at in self.owed.items())
            del self.owed[what]
            kind, _, name = what.partition(":")
            if kind == "task":
                self._tell_children(name)
            elif name in self.batches:
                self._work_on(self.batches[name])

    def batch_work(self, batch: Batch, work: str) -> str:
        if batch.work in ("retry", "cancel"):
            return "busy"
        if work == "cancel":
            self._stop(batch, "cancel")
        else:
            batch.stopped, batch.work = False, "retry"
            self.owed.setdefault(f"batch:{batch.id}", self.now)
        return "begun"

    def close(self, batch: Batch) -> None:
        batch.closed = True
        batch.done = batch.done or batch.ended >= len(batch.states)

    def prune_batches(self, age: int) -> int:
        old = [
            each
            for each in self.batches.values()
            if each.closed and each.removed >= len(each.states) and each.created <= self.now - age
        ]
        for batch in old:
            del self.batches[batch.id]
        return len(old)

    def _work_on(self, batch: Batch) -> None:
        work, batch.work = batch.work, None
        for task_id in list(batch.states):
            task = self.tasks.get(task_id)
            if work == "retry":
                self.requeue(task_id)
            elif work and task and (work == "cancel" or task.state is not S.RUNNING):
                self.cancel(task_id)

    def _stop(self, batch: Batch, work: str) -> None:
        batch.stopped, batch.work = True, work
        self.owed.setdefault(f"batch:{batch.id}", self.now)

    # --- every transition ---

    def _enqueue_or_line(self, task: Task, place: int) -> None:
        batch = self.batches.get(task.batch or "")
        if batch and batch.full:
            before, task.state = task.state, S.BLOCKED
            assert S.BLOCKED in TRANSITIONS[before]
            batch.line[task.id] = place
            self._recount(batch, task, before)
        else:
            self._move(task, S.PENDING)

    def _move(self, task: Task, to: S) -> None:
        before, task.state = task.state, to
        assert to in TRANSITIONS[before], f"{before} to {to} is no way for a task"
        if to is S.PENDING:
            task.lane = self.lane_of(task)
        if task.batch and task.batch in self.batches:
            self.batches[task.batch].line.pop(task.id, None)
            self._recount(self.batches[task.batch], task, before)
        if to.ended:
            self._end(task)

    def _end(self, task: Task) -> None:
        task.ended_at = self.now
        self.counts[task.state] += 1
        self._release_unique(task)
        # A dead letter may be retried, and wants what its parents left for it then.
        if task.state is not S.FAILED:
            self._let_go(task)
        if task.state is S.CANCELLED:
            for child in task.groups:
                self.cancel(child)
        self._tell_children(task.id)

    def _recount(self, batch: Batch, task: Task, before: S) -> None:
        batch.states[task.id] = task.state
        if task.state.ended:
            dead = batch.count(S.FAILED)
            if task.state is S.FAILED and batch.stop_on_error and not batch.stopped and dead >= batch.stop_on_error:
                self._stop(batch, "stop")
            batch.done = batch.done or (batch.closed and batch.ended >= len(batch.states))
        elif before.ended:
            batch.done = False
        if before in IN_A_SLOT and task.state not in IN_A_SLOT:
            self._admit(batch)

    def _admit(self, batch: Batch) -> None:
        while batch.line and not batch.full:
            _, task_id = min((place, task_id) for task_id, place in batch.line.items())
            del batch.line[task_id]
            task = self.tasks[task_id]
            task.state = batch.states[task_id] = S.PENDING
            task.lane = self.lane_of(task)

    # --- parents and children ---

    def _judge(self, state: S | None, on: On, policy: OnParentFailure) -> str:
        """What the state of a parent (None: it is gone) means for a child."""
        if state and not state.ended:
            return "wait"
        if state is S.COMPLETED or on is On.END or policy is OnParentFailure.RELEASE:
            return "met"
        return "hold" if policy is OnParentFailure.WAIT and state is S.FAILED else "cancel"

    def _tell_children(self, parent: str) -> None:
        state = self.tasks[parent].state if parent in self.tasks else None
        if state and not state.ended:
            return
        about = self.children.get(parent, {})
        for child, told in list(about.items()):
            if child in about and (told == UNTOLD or (told == HOLDS and state is not S.FAILED)):
                self._tell(self.tasks[child], parent, state, about)
        if state is None:
            self.children.pop(parent, None)

    def _tell(self, child: Task, parent: str, state: S | None, about: dict[str, str]) -> None:
        verdict = self._judge(state, child.parents[parent], child.policy) if child.state is S.BLOCKED else "past"
        about[child.id] = HOLDS if verdict == "hold" else TOLD
        if verdict == "cancel":
            self._move(child, S.CANCELLED)
        elif verdict == "met":
            child.waits -= 1
            if child.waits <= 0:
                self._free(child)

    def _free(self, child: Task) -> None:
        batch = self.batches.get(child.batch or "")
        if child.due is not None and child.due > self.now:
            self._move(child, S.SCHEDULED)
        elif batch and batch.full:
            batch.line[child.id] = self.now
        else:
            self._move(child, S.PENDING)

    def _let_go(self, task: Task) -> None:
        for parent in task.parents:
            self.children.get(parent, {}).pop(task.id, None)

    def _release_unique(self, task: Task) -> None:
        if task.unique and self.unique.get(task.unique) == task.id:
            del self.unique[task.unique]


def under(limit: str, tasks: Iterable[Task]) -> list[Task]:
    return [task for task in tasks if task.limit == limit]
