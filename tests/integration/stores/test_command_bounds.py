"""What one call of a script costs Redis at most: counted for every script, with the worst that it can be given.

A script holds up everybody else while it runs. A thousand commands are about 1.5 ms.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from firmq.shared.domain import task_data
from firmq.shared.domain.limit import Limit
from firmq.shared.domain.step import StepKind, encode_step
from firmq.shared.domain.task import (
    RQ_JOB_TYPE,
    BatchPlace,
    NewTask,
    On,
    Parent,
    TaskState,
    Unique,
    Webhook,
    new_task_id,
)
from firmq.shared.features.history.unarchived import EndedTask, Unarchived
from firmq.shared.redis.linker import scripts
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.queues import CHUNK, Queues, submit_arguments
from firmq.shared.stores.task_types import types_publish
from firmq.shared.stores.workers import announce
from firmq.worker.features.rq.adopter import ADOPTED_AT_ONCE, AT_ONCE, LIMITS_AT_ONCE, MOST_ADOPTED
from firmq.worker.features.rq.job_end import RQJobEnd
from tests.support.attempt_ends import claiming, ended, reported
from tests.support.features import rows
from tests.support.keys import keys
from tests.support.store import LEASE, NULL, Store

Worst = Callable[[Store], tuple[Any, ...]]
"""Prepares the worst that a script can meet, and returns its arguments."""

WORST: dict[str, list[tuple[int, Worst]]] = {}
"""Of each script: how many commands a call may send, and what for."""


def worst(name: str, most: int) -> Callable[[Worst], Worst]:
    def note(prepare: Worst) -> Worst:
        WORST.setdefault(name, []).append((most, prepare))
        return prepare

    return note


def commands_of(store: Store, name: str, arguments: tuple[Any, ...]) -> int:
    store.redis.config_resetstat()
    store.scripts.call(name, *arguments)
    said = store.redis.info("commandstats")
    beside = {"cmdstat_evalsha", "cmdstat_eval", "cmdstat_config|resetstat", "cmdstat_info", "cmdstat_config"}
    return sum(row["calls"] for command, row in said.items() if command not in beside)


def _cases() -> list[Any]:
    return [
        pytest.param(name, most, prepare, id=f"{name}-{prepare.__name__}")
        for name, cases in sorted(WORST.items())
        for most, prepare in cases
    ]


# --- claim ---


def claim(want: int, **more: Any) -> tuple[Any, ...]:
    options = {"next_token": new_task_id(), **more}
    return claiming("w", new_task_id(), LEASE, want, 4 << 20, "high", 0, "normal", want, **options)


@worst("claim", 2200)
def behind_a_limited_type(store: Store) -> tuple[Any, ...]:
    store.submit(3000)
    Limits(store.scripts).put("type:noop", Limit(concurrency=1))
    store.claim()
    return claim(1)


@worst("claim", 2200)
def many_plain_tasks(store: Store) -> tuple[Any, ...]:
    store.submit(2000)
    return claim(500)


@worst("claim", 2800)
def foreign_jobs_and_stale_entries(store: Store) -> tuple[Any, ...]:
    for at in range(4000):
        if at % 2:
            store.redis.hset(keys.rq_job(f"rq-{at}"), "status", "queued")
        store.redis.rpush(keys.rq_queue("normal"), f"rq-{at}")
    return claim(500)


@worst("claim", 2500)
def tenants_and_limits_that_wait(store: Store) -> tuple[Any, ...]:
    limits = Limits(store.scripts)
    for at in range(40):
        limits.put(f"key:k{at}", Limit(concurrency=100, count=10_000.0, per=1.0, burst=10_000.0))
    for at in range(600):
        store.submit(limit_key=f"k{at % 40}", fair_key=f"tenant-{at % 50}")
    return claim(500)


@worst("claim", 2500)
def tasks_with_scores(store: Store) -> tuple[Any, ...]:
    for at in range(600):
        store.submit(score=float(at % 100), fair_key=f"tenant-{at % 50}" if at % 2 else None)
    store.submit(600)
    return claim(500)


@worst("claim", 2500)
def tasks_that_no_filter_lets_pass(store: Store) -> tuple[Any, ...]:
    for at in range(1200):
        store.submit(score=float(at), fair_key=f"tenant-{at}")
    store.submit(1200)
    return claim(500, next_token="", scores=(5000, store.clock.now_us // 1000 - 5000))


@worst("claim", 2300)
def tenants_who_have_gone(store: Store) -> tuple[Any, ...]:
    store.submit(fair_key="living")
    store.redis.zadd(keys.wait_queues("normal|"), {f"gone-{number}": number for number in range(12_000)})
    return claim(1)


@worst("claim", 2300)
def tenants_who_have_gone_from_the_line_of_a_limit(store: Store) -> tuple[Any, ...]:
    Limits(store.scripts).put("type:noop", Limit(concurrency=5))
    store.redis.zadd(keys.wait_queues("normal|type:noop"), {f"gone-{number}": number for number in range(12_000)})
    store.redis.zadd(keys.LIMITS_DUE, {"type:noop": 1})
    return claim(1)


@worst("claim", 2300)
def limits_whose_lines_are_elsewhere(store: Store) -> tuple[Any, ...]:
    for at in range(3000):
        store.redis.zadd(keys.LIMITS_DUE, {f"key:k{at}": 1})
        store.redis.zadd(keys.wait_queues(f"low|key:k{at}"), {"": 1})
    store.redis.sadd(keys.RQ_QUEUES, *map(keys.rq_queue, ("high", "normal", "low")))
    return claim(1)


@worst("claim", 2600)
def tasks_of_a_batch_that_are_too_old(store: Store) -> tuple[Any, ...]:
    batches = Batches(store.scripts)
    batches.open("b", BatchTerms())
    new = [noop(batch=BatchPlace(batch_id="b", index=at), expires_in=timedelta(seconds=1)) for at in range(1000)]
    store.queues.submit(new)
    store.clock.advance(timedelta(seconds=2))
    return claim(500)


@worst("claim", 3500)
def what_ended_tasks_owe(store: Store) -> tuple[Any, ...]:
    family(store, 2000)
    return claim(500)


@worst("claim", 4500)
def a_task_of_a_thousand_parents(store: Store) -> tuple[Any, ...]:
    parents = store.submit(1000)
    tied = tuple(Parent(task_id=each, on=On.END) for each in parents)
    store.queues.submit([noop(parents=tied)])
    while store.records.counts()[TaskState.COMPLETED] < len(parents):
        token = new_task_id()
        for each in store.claim(100, token=token):
            store.report(each, "completed", token)
    while store.redis.exists(keys.DEFERRED_WORK):
        maintenance.run_deferred(store.scripts, 200)
    return claim(1)


@worst("claim", 2300)
def one_behind_queues_that_have_no_executor_left(store: Store) -> tuple[Any, ...]:
    store.queues = Queues(store.scripts, {"normal": 1, **{f"long{at}": 1 for at in range(63)}})
    store.submit(10_000, "long0")
    for at in range(1, 63):
        store.submit(40, f"long{at}", fair_key=f"tenant-{at}")
    store.submit()
    quotas, most = [part for at in range(63) for part in (f"long{at}", 1)], {f"long{at}": at % 2 for at in range(63)}
    return claiming("w", new_task_id(), LEASE, 500, 4 << 20, *quotas, "normal", 1, next_token=new_task_id(), most=most)


# --- the rest of a task's life ---


def noop(**options: Any) -> NewTask:
    return NewTask(id=new_task_id(), type="noop", data="null", queue="normal", **options)


HOOK = Webhook(url="http://example.org/hook")
TAGS = tuple(f"tag-{at}" for at in range(16))


def family(store: Store, size: int) -> str:
    """A dead letter whose children, all with webhooks and in a batch, are still to be cancelled."""
    [parent] = store.submit()
    batches = Batches(store.scripts)
    batches.open("b", BatchTerms(max_running=10))
    children = [
        noop(parents=(Parent(task_id=parent, on=On.SUCCESS),), webhook=HOOK, batch=BatchPlace(batch_id="b", index=at))
        for at in range(size)
    ]
    store.queues.submit(children)
    store.claim(1, token="parent")
    store.report(parent, "failed", "parent")
    return parent


def heavy(store: Store, count: int) -> list[str]:
    """Tasks with all that a task can have."""
    for name in ("type:noop", "key:k"):
        Limits(store.scripts).put(name, Limit(concurrency=5000, count=10_000.0, per=1.0, burst=10_000.0))
    batches = Batches(store.scripts)
    batches.open("heavy", BatchTerms(max_running=count))
    new = [
        noop(
            limit_key="k",
            tags=TAGS,
            webhook=HOOK,
            batch=BatchPlace(batch_id="heavy", index=at),
            unique=Unique(key=f"u{at}", until="end"),
            expires_in=timedelta(hours=1),
        )
        for at in range(count)
    ]
    store.queues.submit(new)
    return [task.id for task in new]


def claimed(store: Store, count: int) -> list[tuple[str, str]]:
    """Heavy tasks that run, each with its token."""
    heavy(store, count)
    running: list[tuple[str, str]] = []
    while len(running) < count:
        token = new_task_id()
        running += [(each, token) for each in store.claim(count - len(running), token=token)]
    return running


@worst("submit", 4000)
def tasks_with_all_that_a_task_can_have(store: Store) -> tuple[Any, ...]:
    heavy(store, 1)
    place = [BatchPlace(batch_id="heavy", index=at + 10) for at in range(250)]
    new = [
        noop(
            batch=each,
            tags=TAGS,
            webhook=HOOK,
            limit_key="k",
            fair_key=f"t{each.index}",
            unique=Unique(key=f"n{each.index}"),
        )
        for each in place
    ]
    return (0, *(part for task in new for part in submit_arguments(task)))


@worst("submit_outbox", 6000)
def rows_with_all_that_a_task_can_have(store: Store) -> tuple[Any, ...]:
    return (0, 1000, 1000, 0, *tasks_with_all_that_a_task_can_have(store)[1:])


@worst("submit_outbox", 300)
def settled_rows(store: Store) -> tuple[Any, ...]:
    return (0, 1000, 1000, CHUNK, *(new_task_id() for _ in range(CHUNK)))


@worst("report", 7000)
def a_full_call_of_failures(store: Store) -> tuple[Any, ...]:
    running = claimed(store, 128)
    about = {"error": '{"type":"E","message":"m"}', "traceback": "trace"}
    return reported(*(ended(id_, token, "failed", **about) for id_, token in running))


@worst("release", 5000)
def a_full_call_of_tasks_given_back(store: Store) -> tuple[Any, ...]:
    return tuple(part for id_, token in claimed(store, 128) for part in (id_, token, ""))


@worst("extend", 1000)
def a_full_call_of_leases(store: Store) -> tuple[Any, ...]:
    return (LEASE, *(part for id_, token in claimed(store, 128) for part in (id_, token, "1", "{}")))


@worst("reap", 11000)
def leases_that_are_over(store: Store) -> tuple[Any, ...]:
    for id_, token in claimed(store, 200):
        store.extend(id_, token, "1")
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    return (200, 1, "", "")


@worst("expire", 9000)
def deadlines_that_are_over(store: Store) -> tuple[Any, ...]:
    heavy(store, 250)
    store.clock.advance(timedelta(hours=2))
    return (200, "", "")


@worst("promote", 2000)
def tasks_that_are_due(store: Store) -> tuple[Any, ...]:
    store.queues.submit([noop(delay=timedelta(seconds=1), tags=TAGS) for _ in range(600)])
    store.clock.advance(timedelta(seconds=2))
    return ("normal", 500, "", "")


@worst("promote", 2700)
def tasks_with_a_score_that_are_due(store: Store) -> tuple[Any, ...]:
    store.queues.submit([noop(delay=timedelta(seconds=1), score=float(at)) for at in range(300)])
    store.clock.advance(timedelta(seconds=2))
    return ("normal", 200, "", "")


@worst("prune", 7000)
def ended_tasks_with_many_tags(store: Store) -> tuple[Any, ...]:
    for each in heavy(store, 200):
        store.queues.cancel(each, "enough")
        store.redis.hset(keys.rq_job(each), "tags", json.dumps(["t"] * 500))
    return ("cancelled", 0, "", 200, "", "")


@worst("waiting", 4500)
def many_kinds_of_waiting(store: Store) -> tuple[Any, ...]:
    behind_lines_that_it_cannot_serve(store)
    return (1500, "high", "normal", "low", "other")


@worst("purge", 100)
def a_record_with_half_a_million_tags(store: Store) -> tuple[Any, ...]:
    [task] = store.submit()
    store.queues.cancel(task, "enough")
    store.redis.hset(keys.rq_job(task), "tags", json.dumps([f"tag-{at}" for at in range(500_000)]))
    return ("cancelled", 0, task)


@worst("purge", 8500)
def dead_letters_with_all_they_can_have(store: Store) -> tuple[Any, ...]:
    running = claimed(store, 200)
    for id_, token in running:
        store.report(id_, "failed", token)
    return ("failed", 1000, *(id_ for id_, _ in running))


@worst("requeue", 6000)
def dead_letters_sent_back(store: Store) -> tuple[Any, ...]:
    running = claimed(store, 200)
    for id_, token in running:
        store.report(id_, "failed", token)
    return ("", "nonce", "", *(id_ for id_, _ in running))


@worst("requeue", 7500)
def dead_letters_sent_back_with_a_score(store: Store) -> tuple[Any, ...]:
    span, nonce, _, *ids = dead_letters_sent_back(store)
    return (span, nonce, "5", *ids)


@worst("run_deferred", 8000)
def children_of_a_dead_letter(store: Store) -> tuple[Any, ...]:
    family(store, 2000)
    return (200, "", "")


@worst("recover", 1800)
def stale_and_foreign_entries(store: Store) -> tuple[Any, ...]:
    foreign_jobs_and_stale_entries(store)
    return ("normal", 0, 200, "", "")


@worst("restore_entries", 100)
def a_page_of_lost_entries(store: Store) -> tuple[Any, ...]:
    lost = store.submit(1000)
    store.clock.advance(timedelta(seconds=1))
    return ("normal", 0, "", "", *lost)


@worst("check_consistency", 5000)
def a_step_of_the_walk(store: Store) -> tuple[Any, ...]:
    listed = {each: at for at, each in enumerate(heavy(store, 200))}
    store.redis.delete(keys.pending("normal"), keys.throttled("normal"), keys.rq_queue("normal"), keys.LIMITS)
    store.redis.zadd(keys.ended(TaskState.CANCELLED), listed)
    return ("", "", LEASE, 100, "high", "normal")


@worst("check_consistency", 5000)
def blocked_tasks_with_half_a_million_parents(store: Store) -> tuple[Any, ...]:
    family(store, 1)
    [child] = store.submit()
    store.redis.delete(keys.pending("normal"), keys.TASKS)
    store.redis.zadd(keys.TASKS, {child: 1})
    store.redis.zadd(keys.BLOCKED, {child: 1})
    parents = [[f"{at}", "end"] for at in range(500_000)]
    store.redis.hset(keys.rq_job(child), mapping={"state": "blocked", "parents": json.dumps(parents)})
    return ("", "", LEASE, 100, "high", "normal")


@worst("foreign_move", 1300)
def parked_jobs(store: Store) -> tuple[Any, ...]:
    foreign_jobs_and_stale_entries(store)
    for _ in range(10):
        store.claim(500, token=new_task_id())
    return ("normal", "imports", 200)


@worst("read", 700)
def a_page_of_records(store: Store) -> tuple[Any, ...]:
    return tuple(heavy(store, 200))


@worst("page", 1100)
def a_page_on_which_little_matches(store: Store) -> tuple[Any, ...]:
    store.submit(2000)
    return ("", "", 200, 1000, "failed", *[""] * 7, keys.TASKS)


@worst("page", 1200)
def a_page_of_a_search_that_little_matches(store: Store) -> tuple[Any, ...]:
    store.submit(2000)
    wanted = {"error": "x", "worker": "w", "version": "1", "data": [{"path": ["n"], "text": "x"}]}
    return ("", "", 200, 1000, *[""] * 7, json.dumps(wanted), keys.TASKS)


@worst("cancel", 2500)
def a_parent_with_many_children(store: Store) -> tuple[Any, ...]:
    [parent] = store.submit()
    store.queues.submit([noop(parents=(Parent(task_id=parent, on=On.END),), tags=TAGS) for _ in range(1000)])
    return (parent, "enough")


# --- task types ---


def idle(store: Store, workers: int, *types: str) -> None:
    """So many idle workers, each with a set of its own that has these types."""
    for number in range(workers):
        entries = [(name, f"v-{number}-{name}", "{}") for name in types]
        types_publish(store.scripts, f"set-{number}", "h", True, entries)
        worker = f"w-{number}" if number else "w"
        announce(store.scripts, worker, 60, "{}", '["normal"]', '["state", "idle"]', 60, f"set-{number}", "h")
        store.redis.zadd(keys.PARKED_CLAIMS, {worker: number})


@worst("claim", 2800)
def tasks_of_types_that_it_lacks(store: Store) -> tuple[Any, ...]:
    idle(store, 20, "other")
    new = [replace(noop(), type=f"type-{number}") for number in range(1000)]
    store.queues.submit(new)
    return claim(500)


@worst("claim", 2800)
def behind_lines_that_it_cannot_serve(store: Store) -> tuple[Any, ...]:
    tasks_of_types_that_it_lacks(store)
    for _ in range(20):
        store.scripts.call("claim", *claim(500))
    return claim(500)


@worst("report", 6500)
def refusals(store: Store) -> tuple[Any, ...]:
    idle(store, 20, "noop")
    ids = store.submit(128)
    store.claim(128)
    return reported(*(ended(each, "t1", "refused", error='{"message":"no"}', version="v-0-noop") for each in ids))


@worst("refused", 2500)
def refusals_that_are_final(store: Store) -> tuple[Any, ...]:
    store.scripts.call("report", *refusals(store))
    store.clock.advance(timedelta(minutes=2))
    idle(store, 1, "noop")
    return ("", "", 50)


@worst("types_publish", 10)
def a_part_of_a_large_set(store: Store) -> tuple[Any, ...]:
    return ("set", "h", "1", *(part for at in range(500) for part in (f"type-{at}", f"v-{at}", "{}")))


@worst("types_prune", 60)
def a_large_set_beside_many(store: Store) -> tuple[Any, ...]:
    store.scripts.call("types_publish", *a_part_of_a_large_set(store))
    store.clock.advance(timedelta(days=1))
    idle(store, 40, "other")
    return ("", "", 60_000_000, 200)


@worst("types_read", 60)
def many_sets(store: Store) -> tuple[Any, ...]:
    idle(store, 40, "other")
    return ()


@worst("types_waiting", 4500)
def many_types_wait(store: Store) -> tuple[Any, ...]:
    behind_lines_that_it_cannot_serve(store)
    return ()


@worst("queues_prune", 1600)
def many_queues_without_a_task(store: Store) -> tuple[Any, ...]:
    store.redis.zadd(keys.QUEUES, {f"queue-{at}": 1 for at in range(200)})
    store.redis.sadd(keys.RQ_QUEUES, *(keys.rq_queue(f"other-{at}") for at in range(200)))
    return ("", "", 60_000_000, "high", "normal")


def among_many_queues(store: Store) -> None:
    """Two hundred queues of both lanes, of which few have tasks; those that have wait for many limits and types."""
    behind_lines_that_it_cannot_serve(store)
    limits_whose_lines_are_elsewhere(store)
    store.redis.sadd(keys.RQ_QUEUES, *(keys.rq_queue(f"queue-{at}{lane}") for at in range(200) for lane in ("", "+")))
    store.redis.zadd(keys.QUEUES, {f"queue-{at}": 1 for at in range(200)})


@worst("claim", 2600)
def one_among_many_queues(store: Store) -> tuple[Any, ...]:
    among_many_queues(store)
    return claim(1)


@worst("claim", 2600)
def many_queues_with_tasks_that_it_does_not_name(store: Store) -> tuple[Any, ...]:
    for at in range(200):
        store.submit(20, f"queue-{at}")
    return claim(500, patterns="^.*$")


@worst("claim", 2600)
def many_queues_of_others_with_tasks(store: Store) -> tuple[Any, ...]:
    many_queues_with_tasks_that_it_does_not_name(store)
    return claim(500, patterns="^gpu%-.*$")


@worst("counts", 900)
def counts_of_as_many_queues_as_there_may_be(store: Store) -> tuple[Any, ...]:
    return tuple(keys.pending(f"queue-{at}") for at in range(200 * 4))


@worst("queues_look", 10)
def many_empty_queues(store: Store) -> tuple[Any, ...]:
    store.redis.zadd(keys.QUEUES, {f"queue-{at}": 1 for at in range(200)})
    return ()


@worst("queues_look", 900)
def every_other_queue_has_tasks(store: Store) -> tuple[Any, ...]:
    for at in range(0, 200, 2):
        store.submit(1, f"queue-{at:03}")
    store.redis.zadd(keys.QUEUES, {f"queue-{at:03}": 1 for at in range(200)})
    return ()


@worst("types_waiting", 4500)
def types_that_wait_among_many_queues(store: Store) -> tuple[Any, ...]:
    among_many_queues(store)
    return ()


@worst("refused", 1500)
def refused_among_many_queues(store: Store) -> tuple[Any, ...]:
    among_many_queues(store)
    return ("", "", 50)


@worst("limit_read", 300)
def limits_among_many_queues(store: Store) -> tuple[Any, ...]:
    among_many_queues(store)
    for at in range(20):
        Limits(store.scripts).put(f"key:k{at}", Limit(concurrency=1))
    return ()


@worst("page", 100)
def a_page_of_many_empty_queues(store: Store) -> tuple[Any, ...]:
    store.submit()
    indexes = [key(f"queue-{at}") for at in range(200) for key in (keys.pending, keys.throttled)]
    return ("", "", 50, 1000, *[""] * 8, keys.pending("normal"), *indexes)


def ended_for_history(store: Store) -> list[EndedTask]:
    waiting = Unarchived(store.scripts)
    waiting.take(1)
    for id_, token in claimed(store, 200):
        store.report(id_, "completed", token)
    return waiting.take(200)


@worst("history_take", 500)
def many_ends(store: Store) -> tuple[Any, ...]:
    assert len(ended_for_history(store)) == 200
    return (200, "", "", 1000, 60, "")


@worst("history_done", 700)
def as_many_stored(store: Store) -> tuple[Any, ...]:
    return ("", "", *(part for end in ended_for_history(store) for part in (end.member, end.score)))


@worst("history_off", 1100)
def all_given_up(store: Store) -> tuple[Any, ...]:
    store.redis.zadd(keys.UNARCHIVED, {f"task-{at}": at for at in range(1200)})
    return (1000,)


def steps_of_a_task(store: Store, kind: str) -> tuple[Any, ...]:
    [task_id] = store.submit()
    store.claim()
    record = encode_step(StepKind(kind), b"1", attempt=1, started_us=1)
    store.redis.hset(keys.rq_job(task_id), mapping={f"step:{number}": record for number in range(10_000)})
    return (task_id, "t1")


@worst("step_load", 50)
def many_steps(store: Store) -> tuple[Any, ...]:
    return steps_of_a_task(store, "result")


@worst("step_load", 50)
def many_failed_steps(store: Store) -> tuple[Any, ...]:
    return steps_of_a_task(store, "error")


# --- scripts that do one thing, whatever there is ---

TASK = submit_arguments(noop())
FEW: dict[str, tuple[Any, ...]] = {
    "amend": ("id", "[]", "", "nonce"),
    "announce": ("w", 60, "{}", '["normal"]', '["state", "idle"]', 60, "a set", "host"),
    "audit": (100, "who", "what", "about", "detail"),
    "batch_close": ("b",),
    "batch_discard": ("b",),
    "batch_extend": ("b", 1000, "", "digest"),
    "batch_open": ("b", "name", "", "", ""),
    "batch_page": ("", "", 200),
    "batch_prune": (1, 1, 100, "", ""),
    "batch_work": ("b", "cancel", "enough"),
    "failure_groups": ("", 0, 100),
    "change": ("id", "high", "+1000000", "[]", 1000, "5"),
    "discard": ("id", "high", "normal"),
    "key_use": ("k", "1.0", "1.0", 1),
    "limit_declare": ("1", "type:noop", '{"concurrency":1}'),
    "limit_delete": ("type:noop",),
    "limit_put": ("type:noop", '{"concurrency":1}'),
    "limit_read": (),
    "limit_share": ("type:noop", '{"concurrency":1}'),
    "lock_acquire": ("timeout", "nonce", "hk", 30_000_000, 1000, "thread"),
    "lock_extend": ("timeout", "token", 1000),
    "lock_force": ("timeout", "", "who", "reason", 1000),
    "lock_read": ("timeout",),
    "lock_release": ("timeout", "token"),
    "pause": ("type:noop", ""),
    "request_begin": ("digest", "print", "who", 1000, 1000, "seed", "[]"),
    "request_end": ("digest", "who", "answer"),
    "restore": ("id",),
    "run_now": ("id",),
    "schedule_delete": ("s", ""),
    "schedule_due": (100,),
    "schedule_fire": ("", "", "s", "1", "1", "2", 0, "allow", *TASK),
    "schedule_pause": ("s", "1", "{}", ""),
    "schedule_put": ("s", "{}", "1", "api", "1", "[]", "normal", "noop", "{}"),
    "step_load": ("id", "token"),
    "step_save": ("id", "token", "name", "{}", 1000, 1 << 20, ""),
    "submission_check": (),
    "submit_once": ("digest", "print", 1000, 0, *TASK),
    "submit_one": (0, *TASK[:-1]),
    "workers_lost": (1, 100, '["normal"]', "w", 1),
    "submit_one_once": ("digest", "print", 1000, 0, *TASK[:-1]),
    **dict(rows("FEW")),
}


@pytest.mark.parametrize("name", sorted(FEW))
def test_a_script_for_one_thing_sends_few_commands(store: Store, name: str) -> None:
    Batches(store.scripts).open("b", BatchTerms())
    store.submit(500)
    assert commands_of(store, name, FEW[name]) <= 100


def rq_jobs(store: Store, count: int) -> list[str]:
    ids = [f"job-{at}" for at in range(count)]
    for each in ids:
        store.redis.hset(keys.rq_job(each), mapping={"status": "queued", "origin": "imports", "timeout": "180"})
        store.redis.rpush(keys.rq_queue("imports"), each)
    return ids


def adoption(name: str = "imports") -> tuple[Any, ...]:
    call = task_data.encode(RQ_JOB_TYPE, "@")
    return (name, "normal", RQ_JOB_TYPE, call, MOST_ADOPTED, 1, *(new_task_id() for _ in range(ADOPTED_AT_ONCE)))


@worst("rq_adopt", 2000)
def jobs_of_rq_that_are_due(store: Store) -> tuple[Any, ...]:
    store.redis.zadd(keys.rq_scheduled("imports"), dict.fromkeys(rq_jobs(store, 1000), 1))
    return adoption()


def rate_limited_jobs(store: Store, count: int, limits: int) -> list[str]:
    """Jobs that wait for slots of so many rate limits, each with the slots of ended jobs."""
    ids = rq_jobs(store, count)
    for at, each in enumerate(ids):
        limit = f"limit-{at % limits}"
        fields: dict[Any, Any] = {"status": "rate_limited", "rate_limit_key": limit, "rate_limit_concurrency": 1000}
        store.redis.hset(keys.rq_job(each), mapping=fields)
        store.redis.sadd(keys.RQ_RATE_LIMITS, limit)
        store.redis.hset(keys.rq_rate_limit(limit), "concurrency", 1000)
        store.redis.zadd(keys.rq_rate_limit(f"{limit}:rate_limited"), {each: at})
        store.redis.zadd(keys.rq_rate_limit(f"{limit}:allowed"), {f"ended-{each}": at})
    store.redis.delete(keys.rq_queue("imports"))
    return ids


@worst("rq_adopt", 3000)
def jobs_of_rq_that_are_due_and_rate_limited(store: Store) -> tuple[Any, ...]:
    store.redis.zadd(keys.rq_scheduled("imports"), dict.fromkeys(rate_limited_jobs(store, 1000, 3), 1))
    return adoption()


@worst("rq_stop", 7100)
def jobs_that_all_run(store: Store) -> tuple[Any, ...]:
    for at in range(MOST_ADOPTED):
        store.redis.hset(keys.rq_job(f"job-{at}"), mapping={"status": "started"})
        store.redis.hset(
            keys.rq_job(f"task-{at}"), mapping={"state": "running", "worker_name": "w", "origin": "normal"}
        )
        store.redis.hset(keys.RQ_ADOPTED, f"task-{at}", f" job-{at}")
    return ("w", "", "", "failed")


@worst("rq_slots", 1800)
def many_rate_limits_of_rq(store: Store) -> tuple[Any, ...]:
    rate_limited_jobs(store, 1000, 20)
    return (LIMITS_AT_ONCE,)


@worst("rq_entry", 40)
def an_entry_of_rq_scheduler_with_a_rate_limit(store: Store) -> tuple[Any, ...]:
    [job] = rate_limited_jobs(store, 1, 1)
    store.redis.hset(keys.rq_job(job), "origin", "imports")
    store.redis.zadd(keys.RQ_SCHEDULER_ENTRIES, {job: 1})
    return ("", "", job, "1.0", 61, b"meta")


def adopted(store: Store) -> None:
    rq_jobs(store, 2 * MOST_ADOPTED)
    while store.scripts.call("rq_adopt", *adoption()) > 0:
        pass
    assert store.redis.hlen(keys.RQ_ADOPTED) == MOST_ADOPTED


@worst("claim", 2600)
def tasks_of_jobs_of_rq(store: Store) -> tuple[Any, ...]:
    adopted(store)
    return claim(500)


@worst("report", 2500)
def ends_of_jobs_of_rq(store: Store) -> tuple[Any, ...]:
    rq_jobs(store, 128)
    store.scripts.call("rq_adopt", *adoption())
    running = store.claim(128)
    end = RQJobEnd(1, 2, 500, "x", registered=True, value=NULL.decode()).encode()
    return reported(*(ended(each, "t1", "completed", result=NULL, rq_job_end=end) for each in running))


@worst("rq_ended", 1200)
def many_jobs_of_rq(store: Store) -> tuple[Any, ...]:
    adopted(store)
    return (AT_ONCE,)


@worst("rq_return", 3500)
def many_jobs_of_rq_that_wait(store: Store) -> tuple[Any, ...]:
    adopted(store)
    return (AT_ONCE,)


@worst("schedule_follow", 2600)
def schedules_whose_runs_have_gone(store: Store) -> tuple[Any, ...]:
    for at in range(500):
        store.redis.hset(keys.schedule_runs(f"s{at}"), mapping={f"{at}-{run}": f"{run} pending" for run in range(30)})
        store.redis.zadd(keys.SCHEDULES_FOLLOWED, {f"s{at}": at})
    return ("", "", 40)


@worst("rq_hand_over", 350)
def a_started_job_of_rq_with_many_executions(store: Store) -> tuple[Any, ...]:
    rq_jobs(store, 1)
    arguments = adoption()
    store.scripts.call("rq_adopt", *arguments)
    store.redis.hset(keys.rq_job("job-0"), "status", "started")
    store.redis.zadd(keys.rq_executions("job-0"), {f"e{at}": at for at in range(500)})
    return (arguments[5], "job-0", "", "")


@worst("rq_unstick", 450)
def many_jobs_that_a_killed_rq_worker_had_taken(store: Store) -> tuple[Any, ...]:
    rq_jobs(store, 500)
    store.redis.rename(keys.rq_queue("imports"), keys.rq_queue("imports:intermediate"))
    return ("imports",)


@worst("rq_fail", 250)
def a_job_of_rq_with_many_executions(store: Store) -> tuple[Any, ...]:
    rq_jobs(store, 1)
    arguments = adoption()
    store.scripts.call("rq_adopt", *arguments)
    store.redis.zadd(keys.rq_executions("job-0"), {f"e{at}": at for at in range(500)})
    return (arguments[5], "failed", "", new_task_id(), RQ_JOB_TYPE, arguments[3])


for _name, _most, _prepare in rows("WORST"):
    worst(_name, _most)(_prepare)


@pytest.mark.registration
def test_every_script_is_counted() -> None:
    assert sorted({*WORST, *FEW, "quarantine"}) == list(
        scripts()
    )  # mend asks for the type of each key that there is one of


@pytest.mark.parametrize(("name", "most", "prepare"), _cases())
def test_a_call_sends_no_more_commands_than_it_may(store: Store, name: str, most: int, prepare: Worst) -> None:
    arguments = prepare(store)
    sent = commands_of(store, name, arguments)
    print(f"{name:12} {prepare.__name__:50} {sent} of {most}")
    assert sent <= most
