"""Whatever is done to tasks in whatever order, the scripts make of it what the model says, and no count is wrong.

Hypothesis makes up sequences of acts, does each to the scripts on a real Redis and to `reference.py`, and compares all
that is stored after every one. A sequence that fails is cut down to the shortest that still does, and printed.

`make test` takes a hundred sequences, always the same; with TEST_LONG=1 there are two thousand new ones each time
(MODEL_EXAMPLES says how many).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from firmq.shared.domain.clock import MICROSECONDS, to_us
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.lock import FencingToken
from firmq.shared.domain.step import StepKind, encode_step
from firmq.shared.domain.task import (
    WAITING,
    BatchPlace,
    Conflict,
    NewTask,
    On,
    OnParentFailure,
    Parent,
    TaskState,
    Unique,
)
from firmq.shared.redis.linker import scripts as names_of_scripts
from firmq.shared.redis.rows import Value
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms, batch_close, batch_work
from firmq.shared.stores.dead_letters import purge, requeue
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import Queues, SubmitOutcome, Submitted, cancel, run_now, submit_arguments
from tests.integration.model.recount import CONFIGURED, LANES, MOST_QUEUES, QUEUES, Store, check
from tests.integration.model.reference import Batch, Model, Task
from tests.support.attempt_ends import ENDS, claiming, ended, reported
from tests.support.clock import FakeClock
from tests.support.keys import keys

S = TaskState
LEASE = 10 * MICROSECONDS
MAX_CRASHES = 3
LONG = bool(os.environ.get("TEST_LONG"))
KINDS = ("completed", "retrying", "crashed", "failed", "poisoned", "cancelled", "interrupted", "suspected")
RESULT = b"bnVsbA=="

any_task = st.integers(0, 1000)
some_tasks = st.lists(any_task, min_size=1, max_size=3)
queues = st.sampled_from(QUEUES)
types = st.sampled_from(("noop", "nap"))
"""The second may be of the concurrent lane."""
seconds = st.sampled_from((0, 1, 5, 30))
IS_DURABLE = "signal_send" in names_of_scripts()
"""Whether durable functions, a feature, are there."""


class Life(RuleBasedStateMachine):
    """Acts on tasks, each done to Redis and to the model."""

    redis: Redis
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.clock = FakeClock()
        self.scripts = Scripts(self.redis, self.clock)
        self.model = Model(MAX_CRASHES)
        self.model.now = self.clock.now_us
        self.store = Store(self.redis)
        self.nap_changes_its_lane()
        self.claims: list[tuple[str, str, Sequence[str], list[str]]] = []
        self.handed_out: list[tuple[str, str, str]] = []
        self.without_entry: set[str] = set()
        self.numbers = 0
        self.by_pattern = False

    # --- helpers ---

    def next_name(self, what: str) -> str:
        self.numbers += 1
        return f"{what}{self.numbers:04}"

    def one(self, pick: int, *states: S) -> str:
        """A task in one of these states; of none if there is none."""
        found = [task.id for task in self.model.tasks.values() if task.state in (states or S)]
        return found[pick % len(found)] if found else "unknown"

    def limited(self) -> bool:
        return bool(self.model.limits) or any(self.store.throttled(queue) for queue in QUEUES)

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        Life.steps += 1
        self.store = Store(self.redis)
        self.without_entry &= {task.id for task in self.model.of(S.PENDING)}
        check(self.store, self.model, self.without_entry)

    # --- time ---

    @rule(passed=st.sampled_from((1, 999, 1_000_000, 6_000_000, 31_000_000, 3_600_000_000)))
    def time_passes(self, passed: int) -> None:
        self.clock.advance(timedelta(microseconds=passed))
        self.model.now = self.clock.now_us

    # --- submission ---

    @rule(
        queue=queues,
        kind=types,
        delay=st.none() | seconds,
        expires=st.none() | seconds,
        tags=st.sampled_from(((), ("a",), ("a", "b"))),
        room=st.sampled_from((0, 0, 0, 2)),
        again=st.booleans(),
    )
    def submit(
        self, queue: str, kind: str, delay: int | None, expires: int | None, tags: Sequence[str], room: int, again: bool
    ) -> None:
        self.send(self.new(queue, delay, expires, type=kind, tags=tuple(tags)), room=room, again=again)

    @rule(queue=queues, kind=types, delay=st.none() | seconds, key=st.sampled_from("pq"),
          until=st.sampled_from(("start", "end")), conflict=st.sampled_from(list(Conflict)),
          room=st.sampled_from((0, 2)))  # fmt: skip
    def submit_unique(
        self, queue: str, kind: str, delay: int | None, key: str, until: str, conflict: str, room: int
    ) -> None:
        task = self.new(queue, delay, None, type=kind, unique=f"{kind}:{key}", until=until)
        self.send(task, conflict=conflict, room=room, again=False)

    @precondition(lambda self: self.model.tasks)
    @rule(queue=queues, kind=types, delay=st.none() | seconds, expires=st.none() | seconds, parents=some_tasks,
          on=st.sampled_from(list(On)), policy=st.sampled_from(list(OnParentFailure)), again=st.booleans())  # fmt: skip
    def submit_child(
        self,
        queue: str,
        kind: str,
        delay: int | None,
        expires: int | None,
        parents: list[int],
        on: On,
        policy: OnParentFailure,
        again: bool,
    ) -> None:
        chosen = dict.fromkeys((self.one(pick) for pick in parents), on)
        self.send(self.new(queue, delay, expires, type=kind, parents=chosen, policy=policy), again=again)

    @rule(queue=queues, kind=types, limit=st.sampled_from("xy"), delay=st.none() | seconds, again=st.booleans())
    def submit_limited(self, queue: str, kind: str, limit: str, delay: int | None, again: bool) -> None:
        self.send(self.new(queue, delay, None, type=kind, limit=limit), again=again)

    @precondition(lambda self: self.model.batches)
    @rule(queue=queues, kind=types, pick=any_task, delay=st.none() | seconds, count=st.integers(1, 4),
          parent=st.none() | any_task)  # fmt: skip
    def submit_to_batch(
        self, queue: str, kind: str, pick: int, delay: int | None, count: int, parent: int | None
    ) -> None:
        batch = list(self.model.batches.values())[pick % len(self.model.batches)]
        for _ in range(count):
            parents = {} if parent is None or not self.model.tasks else {self.one(parent): On.SUCCESS}
            self.send(self.new(queue, delay, None, type=kind, batch=batch.id, parents=parents), again=False)

    def new(self, queue: str, delay: int | None, expires: int | None, **about: Any) -> Task:
        now = self.model.now
        return Task(
            id=self.next_name("task"),
            queue=queue,
            due=None if delay is None else now + delay * MICROSECONDS,
            expires=None if expires is None else now + (expires + 1) * MICROSECONDS,
            **about,
        )

    def send(self, task: Task, *, conflict: str = "refuse", room: int = 0, again: bool) -> None:
        new = self.as_submitted(task, conflict)
        queues = Queues(self.scripts, dict.fromkeys(CONFIGURED, 1), room, MOST_QUEUES)
        known = self.store.members(keys.QUEUES)
        may_have_queue = task.queue in known | {*CONFIGURED} or len(known) < MOST_QUEUES
        [said] = queues.submit([new])
        assert _in_words(said) == self.model.submit(task, conflict, room, may_have_queue)
        if again and said.state is not None:
            before = Store(self.redis).found
            [second] = queues.submit([new])
            assert (second.id, second.state) == (said.id, said.state)
            assert Store(self.redis).found == before

    def as_submitted(self, task: Task, conflict: str = "refuse") -> NewTask:
        now, batch = self.model.now, self.model.batches.get(task.batch or "")
        return NewTask(
            id=task.id,
            type=task.type,
            data="null",
            queue=task.queue,
            delay=None if task.due is None else timedelta(microseconds=task.due - now),
            expires_in=None if task.expires is None else timedelta(microseconds=task.expires - now),
            tags=task.tags,
            unique=Unique(key=task.unique.partition(":")[2], until=task.until, on_conflict=Conflict(conflict))  # type: ignore[arg-type]
            if task.unique
            else None,
            limit_key=task.limit,
            parents=tuple(Parent(task_id=each, on=on) for each, on in task.parents.items()),
            on_parent_failure=task.policy,
            batch=BatchPlace(batch_id=batch.id, index=self.numbers) if batch else None,
        )

    @rule(age=seconds)
    def prune_queues(self, age: int) -> None:
        before = self.store.members(keys.QUEUES)
        removed = maintenance.queues_prune(self.scripts, CONFIGURED, age)
        left = Store(self.redis).members(keys.QUEUES)
        assert len(before - left) == removed
        gone = {task.queue for task in self.model.tasks.values() if not task.state.ended} & (before - left)
        assert not gone, "a queue was removed that has tasks"

    # --- batches ---

    @rule(most=st.none() | st.integers(1, 3), stop=st.none() | st.integers(1, 2))
    def open_batch(self, most: int | None, stop: int | None) -> None:
        batch = Batch(id=self.next_name("batch"), created=self.model.now, max_running=most, stop_on_error=stop)
        self.model.batches[batch.id] = batch
        assert Batches(self.scripts).open(batch.id, BatchTerms(max_running=most, stop_on_error=stop))

    @precondition(lambda self: self.model.batches)
    @rule(pick=any_task)
    def close_batch(self, pick: int) -> None:
        batch = list(self.model.batches.values())[pick % len(self.model.batches)]
        assert batch_close(self.scripts, batch.id)
        self.model.close(batch)

    @precondition(lambda self: any(batch.states for batch in self.model.batches.values()))
    @rule(pick=any_task, work=st.sampled_from(("cancel", "retry")))
    def work_on_batch(self, pick: int, work: str) -> None:
        batch = list(self.model.batches.values())[pick % len(self.model.batches)]
        assert batch_work(self.scripts, batch.id, work, "a reason") == self.model.batch_work(batch, work)

    @precondition(lambda self: self.model.batches)
    @rule(age=seconds)
    def prune_batches(self, age: int) -> None:
        silence = to_us(timedelta(days=900))
        pruned = maintenance.batch_prune(self.scripts, silence, age * MICROSECONDS, 100)
        assert pruned == self.model.prune_batches(age * MICROSECONDS)

    # --- limits ---

    @rule(limit=st.sampled_from("xy"), most=st.none() | st.integers(0, 2))
    def set_limit(self, limit: str, most: int | None) -> None:
        if most is None:
            assert Limits(self.scripts).delete(f"key:{limit}") == (limit in self.model.limits)
            self.model.limits.pop(limit, None)
        else:
            Limits(self.scripts).put(f"key:{limit}", Limit(concurrency=most))
            self.model.limits[limit] = most

    # --- workers ---

    @rule()
    def nap_changes_its_lane(self) -> None:
        """A worker with another version of the type comes; what is enqueued stays where it is."""
        self.model.concurrent ^= {"nap"}
        change = self.redis.sadd if self.model.concurrent else self.redis.srem
        change(keys.CONCURRENT_TYPES, "nap")

    @rule(worker=st.sampled_from("vw"), want=st.sampled_from((1, 1, 2, 10)), first=queues,
          suffix=st.sampled_from(("", "+")), by_pattern=st.booleans(), again=st.booleans())  # fmt: skip
    def claim(self, worker: str, want: int, first: str, suffix: str, by_pattern: bool, again: bool) -> None:
        """Of both lanes of a worker each has claims of its own."""
        self.by_pattern = by_pattern
        token = self.next_name("token")
        order = [queue + suffix for queue in sorted(QUEUES, key=lambda name: name != first)]
        self.model.pay()
        owed_nothing = not self.store.found.get(keys.DEFERRED_WORK)
        may_free = self.claim_may_free_others()
        certain = owed_nothing and not self.limited() and not may_free
        expected = self.first_in_line(order, want) if certain and not by_pattern else None
        taken, more = self.ask(worker, token, want, order)
        assert len(set(taken)) == len(taken) <= want
        after = Store(self.redis)
        self.accept(taken, token, after)
        if expected is not None:
            assert taken[: len(expected)] == expected, "the oldest go first"
        if len(taken) < want and not more and not may_free:  # freed tasks have woken somebody, maybe this worker
            left = [
                task
                for task in self.model.of(S.PENDING)
                if task.id not in self.without_entry
                and _place(task, after) in order
                # A worker names a queue with throttled tasks after its next look.
                and not (by_pattern and task.queue not in CONFIGURED and task.id in after.throttled(task.queue))
            ]
            assert not [task for task in left if self.model.may_start(task)], "somebody could have been started"
        self.claims.append((worker, token, order, taken))
        self.handed_out += [(task_id, token, worker) for task_id in taken]
        if again:
            self.claim_again()

    def ask(self, worker: str, token: str, want: int, order: Sequence[str]) -> tuple[list[str], bool]:
        turns = [part for lane in order for part in (lane, want if lane == order[0] else 0)]
        if self.by_pattern:  # the queues that are not configured come by a pattern
            named = [lane for lane in order if lane.rstrip("+") in CONFIGURED]
            turns = [part for lane in named for part in (lane, want)]
        kind = "+" if order[0].endswith("+") else ""
        patterns = "^normal$ ^gpu%..*$" if self.by_pattern else ""
        arguments = claiming(worker, token, LEASE, want, 1 << 20, *turns, kind=kind, patterns=patterns)
        _, unreadable, more, tasks, *_ = self.scripts.call("claim", *arguments)
        assert unreadable == []
        return [row[0].decode() for row in tasks], bool(more)

    def first_in_line(self, order: Sequence[str], want: int) -> list[str]:
        waiting = {task.id for task in self.model.of(S.PENDING) if not self.ends_in_claim(task)}
        return [each for lane in order for each in self.store.tickets(lane) if each in waiting][:want]

    def ends_in_claim(self, task: Task) -> bool:
        """A claim that meets it does not start it."""
        too_old = task.expires is not None and task.expires <= self.model.now
        return too_old or bool(task.batch and self.model.batches[task.batch].stopped)

    def claim_may_free_others(self) -> bool:
        """Somebody waits for the end of a task that ends in a claim, and may stand before those who wait now."""
        ending = [task for task in self.model.of(S.PENDING) if self.ends_in_claim(task)]
        return any(task.batch or self.model.children.get(task.id) for task in ending)

    def accept(self, taken: Sequence[str], token: str, after: Store) -> None:
        """The claim's choice: whom it met that could not be started, which may have freed others, and who was."""
        while met := [
            task for task in self.model.of(S.PENDING) if after.record(task.id)["state"] in (S.EXPIRED, S.CANCELLED)
        ]:
            if after.record(met[0].id)["state"] == S.EXPIRED:
                self.model.expire_in_claim(met[0])
            else:
                self.model.cancel_in_claim(met[0])
        for task_id in taken:
            self.model.start(self.model.tasks[task_id], token, self.model.now + LEASE)

    def claim_again(self) -> None:
        """The answer got lost, and the worker asks with the token that it had."""
        worker, token, order, taken = self.claims[-1]
        still = [each for each in taken if self.model.tasks[each].token == token]
        before = Store(self.redis).without_passing()
        if taken:
            assert self.ask(worker, token, 10, order)[0] == still
            assert Store(self.redis).without_passing() == before

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task, kind=st.sampled_from(KINDS), delay=seconds, again=st.booleans())
    def report(self, pick: int, kind: str, delay: int, again: bool) -> None:
        """By whoever ever got a task: most hold its lease, some lost it long ago."""
        task_id, token, worker = self.holder(pick)
        fields: dict[str, Value | None] = {"result": RESULT} if kind == "completed" else {"traceback": RESULT}
        if kind != "completed":
            fields["error"] = '{"type":"E","message":"m","place":"p","pattern":"m"}'
        if ENDS[kind][1] == S.RETRYING:
            fields["delay_us"] = delay * MICROSECONDS
        if kind == "suspected":
            fields["suspicions"] = self.model.tasks[task_id].suspicions + 1 if task_id in self.model.tasks else 1
        end = ended(task_id, token, kind, '{"outcome":"failed"}', **fields)
        call = reported(end, worker=worker)
        expected = self.model.report(task_id, token, kind, delay * MICROSECONDS)
        assert self.scripts.call("report", *call) == [expected]
        if again and expected:
            before = Store(self.redis).found
            assert self.scripts.call("report", *call)[0] < 2
            assert Store(self.redis).found == before

    # --- steps ---

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task, name=st.sampled_from("ab"))
    def work(self, pick: int, name: str) -> None:
        task_id, token, _ = self.holder(pick)
        self.save_step(task_id, token, name, "result")

    def save_step(self, task_id: str, token: str, name: str, kind: str) -> None:
        said, *_ = self.scripts.call("step_save", task_id, token, name, step(kind), 100, 10_000, "")
        assert said.decode() == self.model.save_step(task_id, token, name, kind)

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task)
    def load_steps(self, pick: int) -> None:
        task_id, token, _ = self.holder(pick)
        _, *found = self.scripts.call("step_load", task_id, token)
        expected = self.model.load_steps(task_id, token)
        if expected is None:
            assert found == []
        else:
            names, kinds = found[1::2], [json.loads(each)["kind"] for each in found[2::2]]
            assert {name.decode(): kind for name, kind in zip(names, kinds, strict=True)} == expected

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task, awaits=st.sampled_from(("sleep nap", "signal go", "children g")), delay=seconds,
          again=st.booleans())  # fmt: skip
    def suspend(self, pick: int, awaits: str, delay: int, again: bool) -> None:
        task_id, token, worker = self.holder(pick)
        kind, name = awaits.split()
        if kind != "children":
            wait = {"sleep": "sleep", "signal": "wait"}[kind]
            self.save_step(task_id, token, name if kind == "sleep" else f"signal:{name}", wait)
        due = self.model.now + delay * MICROSECONDS
        call = reported(ended(task_id, token, "suspended", due_us=due, awaits=awaits), worker=worker)
        expected = self.model.report(task_id, token, "suspended", delay * MICROSECONDS, awaits)
        assert self.scripts.call("report", *call) == [expected]
        if again and expected:
            before = Store(self.redis).found
            assert self.scripts.call("report", *call)[0] < 2
            assert Store(self.redis).found == before

    @precondition(lambda self: IS_DURABLE and self.model.tasks)
    @rule(pick=any_task, asleep=st.booleans())
    def signal(self, pick: int, asleep: bool) -> None:
        task_id = self.one(pick, *((S.SCHEDULED,) if asleep else S))
        said = self.scripts.call("signal_send", task_id, "go", '"me"', "1", 100, 10_000)
        assert tuple(each.decode() for each in said) == self.model.signal(task_id, "go")

    @precondition(lambda self: IS_DURABLE and self.handed_out)
    @rule(pick=any_task, queue=queues, count=st.integers(0, 3), delay=st.none() | seconds)
    def start_children(self, pick: int, queue: str, count: int, delay: int | None) -> None:
        known = self.store.members(keys.QUEUES)
        if queue not in known | {*CONFIGURED}:
            return
        task_id, token, _ = self.holder(pick)
        new = [self.new(queue, delay, None) for _ in range(count)]
        arguments = [part for each in new for part in submit_arguments(self.as_submitted(each))]
        bounds = Queues(self.scripts, dict.fromkeys(CONFIGURED, 1), 0, MOST_QUEUES).bounds
        begun = (task_id, token, "g", step("result"), 100, 10_000, "", 0, "", "g", bounds)
        for _ in range(2):
            said = self.scripts.call("children_start", *begun, *arguments)[0].decode()
            assert said == self.model.start_children(task_id, token, "g", new)

    @precondition(lambda self: IS_DURABLE and self.handed_out)
    @rule(pick=any_task, read=st.booleans(), again=st.booleans())
    def restart(self, pick: int, read: bool, again: bool) -> None:
        task_id, token, _ = self.holder(pick)
        names = ["go"] if read else []
        for _ in range(1 + again):
            said = self.scripts.call("steps_restart", task_id, token, "[]", 0, *names)
            assert (said[0] == b"stored") == self.model.restart(task_id, token, names)

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task, begun=st.booleans())
    def extend(self, pick: int, begun: bool) -> None:
        task_id, token, _ = self.holder(pick)
        expected = self.model.extend(task_id, token, begun, self.model.now + LEASE)
        assert self.scripts.call("extend", LEASE, task_id, token, str(int(begun)), "") == [expected]

    @precondition(lambda self: self.handed_out)
    @rule(pick=any_task, again=st.booleans())
    def release(self, pick: int, again: bool) -> None:
        task_id, token, _ = self.holder(pick)
        assert self.scripts.call("release", task_id, token, "") == self.model.release(task_id, token)
        if again:
            assert self.scripts.call("release", task_id, token, "") == 0

    def holder(self, pick: int) -> tuple[str, str, str]:
        """Who ever got a task; three times of four one who holds it still."""
        held = [each for each in self.handed_out if each[0] in self.model.tasks and self.holds(*each[:2])]
        those = held if held and pick % 4 else self.handed_out
        return those[pick // 4 % len(those)]

    def holds(self, task_id: str, token: str) -> bool:
        task = self.model.tasks[task_id]
        return task.state is S.RUNNING and task.token == token

    # --- housekeeping ---

    @rule()
    def workers_die(self) -> None:
        """All that run, at once: nothing is extended until the leases are over."""
        self.clock.advance(timedelta(microseconds=LEASE + 1))
        self.model.now = self.clock.now_us
        self.reap()

    @rule()
    def reap(self) -> None:
        reaped = [(each.id, each.state) for each in maintenance.reap(self.scripts, 100, MAX_CRASHES)]
        expected = self.model.reap()
        assert [each for each, _ in reaped] == [each for each, _ in expected]
        assert reaped == expected

    @rule(queue=queues)
    def promote(self, queue: str) -> None:
        assert maintenance.promote(self.scripts, queue, 100)[0] == self.model.promote(queue)

    @rule()
    def expire(self) -> None:
        assert maintenance.expire(self.scripts, 100) == self.model.expire()

    @rule()
    def run_deferred(self) -> None:
        self.model.pay()
        maintenance.run_deferred(self.scripts, 100)

    @rule(state=st.sampled_from([each for each in S if each.ended]), age=seconds)
    def prune(self, state: S, age: int) -> None:
        assert maintenance.prune(self.scripts, state, age * MICROSECONDS, 100) == self.model.prune(
            state, age * MICROSECONDS
        )

    @precondition(lambda self: self.store.tickets("normal") + self.store.tickets("normal+"))
    @rule(pick=any_task, twice=st.booleans())
    def a_stranger_meddles_with_a_ticket(self, pick: int, twice: bool) -> None:
        tickets = [(lane, ticket) for lane in ("normal", "normal+") for ticket in self.store.tickets(lane)]
        lane, ticket = tickets[pick % len(tickets)]
        if twice:
            self.redis.rpush(keys.rq_queue(lane), ticket)
        else:
            self.redis.lrem(keys.rq_queue(lane), 0, ticket)
            self.without_entry.add(ticket)

    @rule()
    def recover(self) -> None:
        # Tasks of one step stand in their index a microsecond apart.
        self.time_passes(1000)
        store = Store(self.redis)
        found = {each: lane for lane in LANES for each in store.tickets(lane)}
        lost = [task for task in self.model.of(S.PENDING) if task.id in self.without_entry and task.id not in found]
        assert sum(maintenance.recover(self.scripts, queue, 0, 100) for queue in QUEUES) == len(lost)
        for task in lost:
            task.lane = self.model.lane_of(task)
        for task_id in self.without_entry & found.keys():
            self.model.tasks[task_id].lane = found[task_id]
        self.without_entry.clear()

    @rule()
    def check_all(self) -> None:
        """Of a sound system it changes nothing, and finds nothing wrong."""
        before = Store(self.redis).without_passing()
        for _ in range(3):
            _, wrong = maintenance.check_consistency(self.scripts, QUEUES, LEASE, 10_000, FencingToken())
            assert wrong == {}
        assert Store(self.redis).without_passing() == before

    # --- people ---

    @precondition(lambda self: self.model.tasks)
    @rule(pick=any_task, waiting=st.booleans(), again=st.booleans())
    def cancel(self, pick: int, waiting: bool, again: bool) -> None:
        task_id = self.one(pick, *(WAITING if waiting else S))
        for _ in range(1 + again):
            assert cancel(self.scripts, task_id, "a reason")[1] == self.model.cancel(task_id)

    @precondition(lambda self: self.model.of(S.SCHEDULED, S.RETRYING))
    @rule(pick=any_task)
    def run_now(self, pick: int) -> None:
        task_id = self.one(pick, S.SCHEDULED, S.RETRYING)
        assert run_now(self.scripts, task_id)[1] == self.model.run_now(task_id)

    @precondition(lambda self: self.model.of(S.FAILED))
    @rule(pick=any_task, again=st.booleans())
    def requeue(self, pick: int, again: bool) -> None:
        task_id = self.one(pick, S.FAILED)
        for _ in range(1 + again):
            assert requeue(self.scripts, [task_id])[0][1] == self.model.requeue(task_id)

    @precondition(lambda self: self.model.tasks)
    @rule(pick=any_task, dead=st.booleans())
    def purge(self, pick: int, dead: bool) -> None:
        task_id = self.one(pick, *((S.FAILED,) if dead else S))
        assert purge(self.scripts, S.FAILED, [task_id])[0][1] == self.model.purge(task_id)


def step(kind: str) -> bytes:
    """The record of a step."""
    return encode_step(StepKind(kind), b"null", attempt=1, started_us=1)


def _place(task: Task, store: Store) -> str:
    """The lane that a pending task is in: who waits for a limit stays in the lane in which a claim met it."""
    return store.record(task.id).get("wait_queue", task.lane).split("|")[0]


def _in_words(said: Submitted) -> str:
    if said.outcome in (SubmitOutcome.STORED, SubmitOutcome.KNOWN):
        return str(said.state)
    about = {
        SubmitOutcome.EXISTING: f" {said.id}",
        SubmitOutcome.CONFLICT: f" {said.id}",
        SubmitOutcome.MISSING_PARENT: f" {said.missing_parent}",
    }
    return f"{said.outcome}{about.get(said.outcome, '')}"


def test_the_scripts_and_the_model_tell_the_same_life(redis_client: Redis) -> None:
    Life.redis, Life.steps = redis_client, 0
    run_state_machine_as_test(Life, settings=chosen())
    assert Life.steps >= 3000


def chosen(examples: int = int(os.environ.get("MODEL_EXAMPLES", "2000")) if LONG else 100) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=50,
        derandomize=not LONG,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
