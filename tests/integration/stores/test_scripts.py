"""Each script by itself: what it moves, what it refuses, and that the second time changes nothing."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from firmq.shared.domain.clock import to_us
from firmq.shared.domain.lock import NO_LOCK
from firmq.shared.domain.task import RQ_STATUS, TRANSITIONS, BatchPlace, NewTask, On, Parent, TaskState, new_task_id
from firmq.shared.errors import IllegalTransition, TaskNotFound
from firmq.shared.redis import linker, scripts
from firmq.shared.redis.client import text
from firmq.shared.redis.linker import CONFIRMING, source, sources, with_quarantine
from firmq.shared.redis.scripts import digest
from firmq.shared.stores import maintenance
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.dead_letters import purge, requeue
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.tasks import discard
from firmq.worker.engine.claimed_task import ClaimedTask
from firmq.worker.executors.ipc import LOCAL, EndedAttempt
from firmq.worker.features.rq.claimed_job import ClaimedJob
from firmq.worker.features.rq.job_end import RQJobEnd
from tests.support.attempt_ends import claiming, ended, report
from tests.support.keys import keys
from tests.support.store import LEASE, SECOND, WEIGHTS, Store

# --- the map of keys and the table of states ---


def test_no_script_spells_a_key() -> None:
    for name, script in sources().items():
        assert not re.search(r"['\"](?:firmq|rq):", script), name


def test_every_script_whose_write_is_confirmed_can_be_loaded(store: Store) -> None:
    stores = (Path(scripts.__file__).parent.parent / "stores").glob("*.py")
    confirmed = [
        name
        for each in stores
        for name in re.findall(r'(?:call_(?:answered|accepted)\(\s*|yield )"(\w+)"', each.read_text())
    ]
    assert {"submit", "submit_one_once", "requeue"} <= set(confirmed)
    for name in confirmed:
        assert store.redis.script_load(source(name + CONFIRMING, keys)) == digest(name + CONFIRMING, keys)


def test_every_script_can_be_loaded_with_quarantine_too(store: Store) -> None:
    """Lua has room for 200 local names, and the text of the quarantine adds some."""
    for name in sources():
        if not name.startswith("_"):
            assert store.redis.script_load(with_quarantine(name, keys)), name


def test_lua_and_python_know_the_same_status_for_rq() -> None:
    text = sources()["_prelude"]
    table = text[text.index("RQ_STATUS = {") :]
    in_lua = dict(re.findall(r"(\w+) = '(\w+)'", table[: table.index("}")]))
    assert in_lua == {state.value: status for state, status in RQ_STATUS.items()}


def test_lua_and_python_know_the_same_transitions() -> None:
    text = sources()["_prelude"].partition("LEGAL = [[")[2].partition("]]")[0]
    assert sorted(text.split()) == sorted(f"{old}>{new}" for old, news in TRANSITIONS.items() for new in news)


def test_lua_reads_the_fields_of_an_attempt_that_python_sends() -> None:
    sent = {"id", "token", *EndedAttempt._fields} - LOCAL
    assert set(re.findall(r"\bended\.(\w+)", sources()["report"])) == sent
    assert set(re.findall(r"\be\.(\w+)", sources()["_job_end"])) == {"written_by_rq", *RQJobEnd.__slots__}


def test_a_worker_knows_the_fields_of_a_task_that_lua_gives() -> None:
    given = set(re.findall(r"'(\w+)'", sources()["_task_fields"].partition("{")[2]))
    assert given < {each.name for each in fields(ClaimedTask)}
    read = sources()["_claim_describe"].partition("local job =")[2].partition("if job.err")[0]
    assert ("claimed_us", "dependents", *re.findall(r"'([a-z_]+)'", read)) == ClaimedJob._fields


def test_a_field_of_one_attempt_is_not_read_for_the_next(store: Store) -> None:
    first, second = store.submit(2)
    store.claim(2)
    ends = (ended(first, "t1", "interrupted", losses=4, suspicions=2), ended(second, "t1", "interrupted"))
    assert report(store.scripts, *ends) == [1, 1]
    assert [store.state(each) for each in (first, second)] == [TaskState.RETRYING, TaskState.PENDING]
    assert store.redis.hmget(keys.rq_job(first), "losses", "suspicions") == [b"4", b"2"]
    assert store.redis.hmget(keys.rq_job(second), "losses", "suspicions") == [None, None]


def test_a_returned_task_has_waited_since_it_was_enqueued(store: Store) -> None:
    [task] = store.submit(1)
    enqueued = store.redis.zscore(keys.pending("normal"), task)
    store.claim(1)
    store.clock.advance(timedelta(seconds=5))
    assert report(store.scripts, ended(task, "t1", "interrupted", enqueued_us=int(enqueued or 0))) == [1]
    assert store.redis.zscore(keys.pending("normal"), task) == enqueued


@pytest.mark.parametrize("old", TaskState)
def test_an_illegal_transition_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch, old: TaskState) -> None:
    script = (
        "-- @include _prelude\ntransition(ARGV[2], ARGV[3], ARGV[4], 'normal', ARGV[3] == 'retrying' and now or nil)"
    )
    texts = {**sources(), "transition_of": script}
    monkeypatch.setattr(linker, "sources", lambda: texts)
    before = store.snapshot()
    for new in set(TaskState) - TRANSITIONS[old]:
        with pytest.raises(ResponseError, match=f"cannot change from {old} to {new}"):
            store.scripts.call("transition_of", "t1", old, new)
    assert store.snapshot() == before


# --- submit ---


def test_a_task_sent_twice_is_stored_once(store: Store) -> None:
    task = NewTask(id=new_task_id(), type="noop", data="null", queue="normal")
    store.queues.submit([task])
    before = store.snapshot()
    assert [each.state for each in store.queues.submit([task])] == [TaskState.PENDING]
    assert store.snapshot() == before


def test_a_delayed_task_is_scheduled_and_one_due_already_is_pending(store: Store) -> None:
    [later] = store.submit(delay=timedelta(seconds=5))
    [now] = store.submit(delay=timedelta(0))
    assert store.state(later) is TaskState.SCHEDULED
    assert store.state(now) is TaskState.PENDING


def test_a_full_queue_refuses_tasks_and_others_accept_them(store: Store) -> None:
    queues = Queues(store.scripts, WEIGHTS, max_length=2)
    tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue="normal") for _ in range(4)]
    other = NewTask(id=new_task_id(), type="noop", data="null", queue="high")
    states = [each.state for each in queues.submit([*tasks, other])]
    assert states == [TaskState.PENDING, TaskState.PENDING, None, None, TaskState.PENDING]
    assert not store.redis.exists(keys.rq_job(tasks[3].id))


def test_a_full_queue_takes_no_task_that_comes_alone_either(store: Store) -> None:
    queues = Queues(store.scripts, WEIGHTS, max_length=2)
    tasks = [NewTask(id=new_task_id(), type="noop", data="null", queue="normal") for _ in range(3)]
    states = [queues.submit([task])[0].state for task in tasks]
    assert states == [TaskState.PENDING, TaskState.PENDING, None]
    assert not store.redis.exists(keys.rq_job(tasks[2].id))


def test_what_is_for_later_takes_no_place_from_what_comes_with_it(store: Store) -> None:
    def new(**options: Any) -> NewTask:
        return NewTask(id=new_task_id(), type="noop", data="null", queue="normal", **options)

    scheduled = [new(delay=timedelta(hours=1)) for _ in range(3)]
    blocked = [new(parents=(Parent(task_id=scheduled[0].id, on=On.SUCCESS),)) for _ in range(3)]
    answers = Queues(store.scripts, WEIGHTS, max_length=2).submit([*scheduled, *blocked, new(), new(), new()])
    expected = [*[TaskState.SCHEDULED] * 3, *[TaskState.BLOCKED] * 3, TaskState.PENDING, TaskState.PENDING, None]
    assert [each.state for each in answers] == expected


def test_the_bell_never_holds_more_than_64_rings(store: Store) -> None:
    store.submit(500)
    assert store.redis.llen(keys.wakeup("normal")) == 64


# --- claim ---


def test_a_claim_sent_again_with_its_token_gives_the_same_tasks(store: Store) -> None:
    store.submit(5)
    first = store.claim(3)
    before = store.snapshot()
    assert store.claim(3) == first
    assert store.snapshot() == before
    store.clock.advance(timedelta(seconds=4))
    store.claim(3)
    leases = [store.redis.zscore(keys.LEASES, each) for each in first]
    assert set(leases) == {store.clock.now_us + LEASE}, "its leases count from the last time"
    assert set(store.claim(3, token="t2")).isdisjoint(first)


def test_stale_tickets_are_passed_over(store: Store) -> None:
    ids = store.submit(6)
    for each in ids[:4]:
        store.queues.cancel(each, "")
    store.redis.lpush(keys.rq_queue("normal"), *ids)
    assert store.claim(6) == sorted(ids[4:], key=ids.index) or set(store.claim(6)) == set(ids[4:])


def test_thousands_of_stale_queue_entries_delay_no_claim(store: Store) -> None:
    for task_id in store.submit(4000):
        store.queues.cancel(task_id, "")
    [living] = store.submit()
    assert store.claim(2) == [living]


def test_after_many_stale_tickets_the_worker_is_asked_to_come_again(store: Store) -> None:
    store.redis.rpush(keys.rq_queue("normal"), *[f"stale{n}" for n in range(6000)])
    [living] = store.submit()
    looks = 0
    while not (reply := store.scripts.call("claim", *claiming("w", f"t{looks}", LEASE, 2, 1 << 20, "normal", 2)))[3]:
        assert reply[2] == 1
        looks += 1
        assert looks < 12
    assert looks > 0
    assert [text(row[0]) for row in reply[3]] == [living]


def test_a_claim_for_a_machine_of_any_size_is_bounded_and_every_task_of_it_has_a_lease(store: Store) -> None:
    store.submit(6000)
    taken = store.claim(32_768)
    assert len(taken) == 500
    assert store.redis.zcard(keys.LEASES) == 500


def test_a_task_too_old_to_start_expires_instead_of_running(store: Store) -> None:
    [task_id] = store.submit(expires_in=timedelta(seconds=5))
    store.clock.advance(timedelta(seconds=6))
    assert store.claim() == []
    assert store.state(task_id) is TaskState.EXPIRED


def test_a_claim_stops_when_the_data_grows_too_large(store: Store) -> None:
    data = '"' + "x" * 400_000 + '"'
    tasks = [NewTask(id=new_task_id(), type="noop", data=data, queue="normal") for _ in range(6)]
    store.queues.submit(tasks)
    assert store.claim(6) == [task.id for task in tasks[:3]]
    assert store.claim(6, token="t2") == [task.id for task in tasks[3:]], "the rest keeps its order"


def test_claims_follow_the_quotas_and_then_fill_up(store: Store) -> None:
    normal, high = store.submit(10), store.submit(2, "high")
    reply = store.scripts.call("claim", *claiming("w", "t", LEASE, 6, 1 << 20, "high", 1, "normal", 2))
    taken = [row[0].decode() for row in reply[3]]
    assert taken[:3] == [high[0], *normal[:2]]
    assert set(taken[3:]) == {high[1], *normal[2:4]}


# --- report ---


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("completed", TaskState.COMPLETED),
        ("retrying", TaskState.RETRYING),
        ("crashed", TaskState.RETRYING),
        ("failed", TaskState.FAILED),
        ("poisoned", TaskState.FAILED),
        ("cancelled", TaskState.CANCELLED),
        ("interrupted", TaskState.PENDING),
    ],
)
def test_a_report_moves_the_task_once_however_often_it_is_sent(store: Store, kind: str, state: TaskState) -> None:
    [task_id] = store.submit()
    store.claim()
    if kind == "cancelled":
        store.queues.cancel(task_id, "not needed")
    assert store.report(task_id, kind) == 1
    assert store.state(task_id) is state
    assert state in TRANSITIONS[TaskState.RUNNING]
    before = store.snapshot()
    store.report(task_id, kind)
    assert store.snapshot() == before
    assert store.redis.zcard(keys.LEASES) == 0
    assert store.redis.zcard(keys.rq_started("normal")) == 0


def test_a_withdrawn_request_to_cancel_cancels_nothing(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.queues.cancel(task_id, "a mistake")
    assert store.extend(task_id) == 2
    store.queues.restore(task_id)
    assert store.extend(task_id) == 0
    assert store.report(task_id, "cancelled") == 1  # its worker had stopped it before
    assert store.claim(token="t2") == [task_id]
    assert store.report(task_id, "completed", token="t2") == 1
    assert store.state(task_id) is TaskState.COMPLETED
    assert store.records.get(task_id).summary.failures == 0


def test_a_report_without_the_lease_writes_nothing(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    before = store.snapshot()
    assert store.report(task_id, "completed", token="stolen") == 0
    assert store.snapshot() == before


def test_a_lease_that_is_over_but_not_given_away_may_still_report(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.clock.advance(timedelta(minutes=1))
    assert store.report(task_id, "completed") == 1


def test_a_wish_to_cancel_beats_a_retry_but_not_a_success(store: Store) -> None:
    failing, succeeding = store.submit(2)
    store.claim(2)
    for each in (failing, succeeding):
        store.queues.cancel(each, "changed my mind")
    assert store.report(failing, "retrying", delay_us=SECOND) == 2, "the worker counts it as cancelled"
    assert store.report(succeeding, "completed") == 1
    assert store.state(failing) is TaskState.CANCELLED
    assert store.state(succeeding) is TaskState.COMPLETED


@pytest.mark.parametrize("kind", ["crashed", "poisoned"])
def test_a_crash_counts_also_when_the_task_was_to_be_cancelled(store: Store, kind: str) -> None:
    [task_id] = store.submit()
    store.claim()
    store.queues.cancel(task_id, "changed my mind")
    assert store.report(task_id, kind) == 2
    assert store.state(task_id) is TaskState.CANCELLED
    assert store.records.get(task_id).summary.crashes == 1


def test_only_the_last_fifty_attempts_are_kept(store: Store) -> None:
    [task_id] = store.submit()
    for n in range(60):
        store.claim(token=f"t{n}")
        store.report(task_id, "retrying", token=f"t{n}")
        maintenance.promote(store.scripts, "normal", 10)
    attempts = store.records.get(task_id).attempts
    assert [attempt.number for attempt in attempts] == list(range(11, 61))


# --- leases ---


def test_a_lease_is_extended_for_its_holder_only(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    assert store.extend(task_id) == 0
    assert store.extend(task_id, token="other") == 1
    store.queues.cancel(task_id, "")
    assert store.extend(task_id) == 2


def test_an_ended_lease_puts_the_task_in_front_of_its_queue(store: Store) -> None:
    first, *rest = store.submit(3)
    store.claim()
    store.extend(first, begun="1")
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    [(task_id, kind, queue, worker, state, crashes, *_)] = maintenance.reap(store.scripts, 10, 3)
    assert (task_id, kind, queue, worker, state, crashes) == (first, "noop", "normal", "w", "pending", 1)
    assert store.claim(3, token="t2") == [first, *rest]
    assert store.report(first, "completed", token="t1") == 0, "the old holder is refused"


def test_a_task_that_had_perhaps_not_begun_is_not_charged_with_a_crash(store: Store) -> None:
    [task_id] = store.submit()
    for n in range(5):
        store.claim(token=f"t{n}")
        store.clock.advance(timedelta(microseconds=LEASE + 1))
        maintenance.reap(store.scripts, 10, 3)
    summary = store.records.get(task_id).summary
    assert (summary.state, summary.crashes) == (TaskState.PENDING, 0)


def test_a_task_whose_workers_keep_dying_is_dead_lettered_as_poison(store: Store) -> None:
    [task_id] = store.submit()
    for n in range(3):
        store.claim(token=f"t{n}")
        store.extend(task_id, token=f"t{n}", begun="1")
        store.clock.advance(timedelta(microseconds=LEASE + 1))
        maintenance.reap(store.scripts, 10, 3)
    detail = store.records.get(task_id)
    assert detail.summary.state is TaskState.FAILED
    assert detail.summary.error is not None
    assert detail.summary.error.type == "PoisonTask"
    assert len(detail.attempts) == 3


def test_what_a_worker_lost_is_counted_while_the_worker_is_on_record(store: Store) -> None:
    store.submit(3)
    for register, worker in ((keys.WORKERS, "live"), (keys.LOST_WORKERS, "lost")):
        store.redis.zadd(register, {worker: 1})
    for worker in ("live", "lost", "gone"):
        store.claim(token=worker, worker=worker)
    store.clock.advance(timedelta(microseconds=LEASE + 1))
    assert len(maintenance.reap(store.scripts, 10, 3)) == 3
    assert store.redis.zrange(keys.REASSIGNED, 0, -1, withscores=True) == [(b"live", 1), (b"lost", 1)]


PATIENCE = 3 * SECOND


def reap(store: Store, after: int) -> list[str]:
    """What housekeeping ends that looks so much later (in microseconds)."""
    store.clock.advance(timedelta(microseconds=after))
    return [each.id for each in maintenance.reap(store.scripts, 10, 3, lease_us=LEASE, patience_us=PATIENCE)]


@pytest.fixture
def kept(store: Store) -> Store:
    """A store whose leases have been looked after for a while."""
    for _ in range(LEASE // SECOND + 2):
        reap(store, SECOND)
    return store


def test_before_leases_were_ever_looked_after_none_is_judged(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    assert reap(store, 5 * LEASE) == []
    assert [reap(store, SECOND) for _ in range(LEASE // SECOND + 1)][-1] == [task_id]


def test_an_outage_ends_no_lease_of_a_worker_that_comes_back(kept: Store) -> None:
    [task_id] = kept.submit()
    for n in range(6):
        kept.claim(token=f"t{n}")
        kept.extend(task_id, token=f"t{n}", begun="1")
        for away in (LEASE + SECOND, 100 * LEASE):
            assert reap(kept, away) == []
            assert reap(kept, LEASE - SECOND) == [], "it has a whole lease to come back"
            assert kept.extend(task_id, token=f"t{n}") == 0
            assert [reap(kept, SECOND) for _ in range(5)] == [[]] * 5
            assert kept.extend(task_id, token=f"t{n}") == 0
        assert kept.report(task_id, "interrupted", token=f"t{n}") == 1
    summary = kept.records.get(task_id).summary
    assert (summary.state, summary.crashes) == (TaskState.PENDING, 0)


def test_a_worker_that_died_in_an_outage_loses_its_lease_one_lease_later(kept: Store) -> None:
    [task_id] = kept.submit()
    kept.claim()
    assert reap(kept, 2 * LEASE) == []
    assert [reap(kept, SECOND) for _ in range(LEASE // SECOND + 1)][-1] == [task_id]


def test_without_an_outage_a_lease_ends_when_it_is_over(kept: Store) -> None:
    [task_id] = kept.submit()
    kept.claim()
    assert [reap(kept, PATIENCE) for _ in range(3)] == [[], [], []]
    assert reap(kept, SECOND) == [task_id]


def test_outages_that_follow_each_other_keep_no_lease_alive_for_ever(kept: Store) -> None:
    [task_id] = kept.submit()
    kept.claim()
    ended = [reap(kept, 2 * PATIENCE) for _ in range(12)]
    assert [] in ended
    assert [task_id] in ended


def test_a_clock_set_back_makes_no_lease_last_longer_than_the_walk_over_all_takes(kept: Store) -> None:
    [task_id] = kept.submit()
    kept.claim()
    reap(kept, -3600 * SECOND)
    maintenance.check_consistency(kept.scripts, list(WEIGHTS), LEASE, 1000, NO_LOCK)
    assert reap(kept, SECOND) == []
    assert [reap(kept, SECOND) for _ in range(LEASE // SECOND - 1)][-1] == [task_id]


def test_what_is_given_back_keeps_its_place_and_costs_no_attempt(store: Store) -> None:
    ids = store.submit(4)
    assert store.claim(3) == ids[:3]
    flat = [part for task_id in ids[:3] for part in (task_id, "t1", "")]
    assert store.scripts.call("release", *flat) == 3
    assert store.scripts.call("release", *flat) == 0
    assert store.claim(4, token="t2") == ids
    assert store.records.get(ids[0]).summary.attempt == 1


# --- due times, expiry, retention ---


def test_what_was_lost_can_neither_be_given_back_nor_extended(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.clock.advance(timedelta(seconds=30))
    assert [reaped.id for reaped in maintenance.reap(store.scripts, 10, 3)] == [task_id]
    assert store.claim(token="t2", worker="w2") == [task_id]
    before = store.snapshot()
    assert store.scripts.call("release", task_id, "t1", "") == 0
    assert store.extend(task_id, "t1") == 1
    assert store.snapshot() == before


def test_due_tasks_move_in_the_order_in_which_they_fell_due(store: Store) -> None:
    late, early = store.submit(delay=timedelta(seconds=9)), store.submit(delay=timedelta(seconds=3))
    assert maintenance.promote(store.scripts, "normal", 10)[0] == 0
    store.clock.advance(timedelta(seconds=10))
    moved, lateness_us, due = maintenance.promote(store.scripts, "normal", 10)
    assert (moved, lateness_us, due) == (2, 7 * SECOND, None)
    assert store.claim(2) == [*early, *late]


def test_waiting_tasks_expire_in_every_waiting_state(store: Store) -> None:
    [pending] = store.submit(expires_in=timedelta(seconds=5))
    [scheduled] = store.submit(expires_in=timedelta(seconds=5), delay=timedelta(hours=1))
    [kept] = store.submit()
    store.clock.advance(timedelta(seconds=6))
    assert maintenance.expire(store.scripts, 10) == 2
    assert [store.state(each) for each in (pending, scheduled, kept)] == [
        TaskState.EXPIRED,
        TaskState.EXPIRED,
        TaskState.PENDING,
    ]


def test_after_its_retention_nothing_is_left_of_a_task(store: Store) -> None:
    empty = set(store.snapshot())
    [done] = store.submit(tags=("a", "b"), expires_in=timedelta(hours=1))
    [failed] = store.submit(tags=("a",))
    [cancelled] = store.submit()
    store.claim(2)
    store.report(done, "completed")
    store.report(failed, "failed")
    store.queues.cancel(cancelled, "")
    store.clock.advance(timedelta(days=2))
    for state in ("completed", "failed", "cancelled"):
        assert maintenance.prune(store.scripts, state, to_us(timedelta(days=1)), 10) == (1, 1)
    store.redis.delete(keys.wakeup("normal"), keys.rq_queue("normal"))
    stays = (b"firmq:throughput", b"firmq:first-seen")
    left = {key for key in store.snapshot() if not any(each in key for each in stays)} - empty
    assert left == {keys.RQ_QUEUES.encode(), keys.QUEUES.encode()}


def test_what_runs_is_never_removed(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.clock.advance(timedelta(days=400))
    for state in TaskState:
        if state.ended:
            maintenance.prune(store.scripts, state, 0, 10)
    assert store.state(task_id) is TaskState.RUNNING


# --- people ---


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
def test_a_waiting_task_is_cancelled_at_once_and_once(store: Store, delay: timedelta | None) -> None:
    [task_id] = store.submit(delay=delay)
    assert store.queues.cancel(task_id, "r") is TaskState.CANCELLED
    assert store.queues.cancel(task_id, "r") is TaskState.CANCELLED
    assert store.claim() == []


def test_what_has_ended_cannot_be_cancelled(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.report(task_id, "completed")
    with pytest.raises(IllegalTransition, match="completed"):
        store.queues.cancel(task_id, "")
    with pytest.raises(TaskNotFound):
        store.queues.cancel("unknown", "")


def test_a_dead_letter_is_requeued_once_with_all_its_retries(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.report(task_id, "poisoned")
    assert requeue(store.scripts, [task_id, "unknown"]) == [("failed", True, ""), ("", False, "")]
    assert requeue(store.scripts, [task_id]) == [("pending", False, "")]
    summary = store.records.get(task_id).summary
    assert (summary.failures, summary.crashes, summary.attempt) == (0, 0, 1)
    assert store.claim(token="t2") == [task_id]


def test_a_dead_letter_that_is_sent_back_every_night_keeps_its_last_ten_results(store: Store) -> None:
    [task_id] = store.submit()
    for night in range(15):
        store.claim(token=f"t{night}")
        record = '{"outcome":"failed"}'
        error = '{"type":"E","message":"m"}'
        end = ended(task_id, f"t{night}", "failed", record, error=error, traceback=f"traceback {night}")
        assert report(store.scripts, end) == [1]
        requeue(store.scripts, [task_id])
    results = store.redis.xrevrange(keys.rq_results(task_id)) or []
    kept = [fields[b"exc_string"] for _, fields in results if fields]
    assert kept == [f"traceback {night}".encode() for night in range(14, 4, -1)]


def test_a_requeue_that_is_sent_again_after_a_lost_answer_is_told_that_it_was_done(store: Store) -> None:
    [task_id] = store.submit()
    store.claim()
    store.report(task_id, "poisoned")
    command = ("requeue", "", "the command's own", "", task_id)
    assert store.scripts.call(*command) == store.scripts.call(*command) == [[b"failed", 1]]
    assert store.claim(token="t2") == [task_id]
    store.report(task_id, "poisoned", token="t2")
    assert store.scripts.call(*command) == [[b"failed", 1]]
    assert store.records.state(task_id) is TaskState.FAILED


def test_only_dead_letters_are_purged(store: Store) -> None:
    dead, waiting = store.submit(2)
    store.claim()
    store.report(dead, "failed")
    assert purge(store.scripts, "failed", [dead, waiting, dead]) == [("failed", True), ("pending", False), ("", False)]


def test_a_batch_ends_although_the_record_of_one_of_its_tasks_was_removed_as_unreadable(store: Store) -> None:
    batches = Batches(store.scripts)
    batches.open("b", BatchTerms())
    [task_id] = store.submit(batch=BatchPlace(batch_id="b", index=0))
    batches.close("b")
    store.redis.hdel(keys.rq_job(task_id), "state", "description")
    assert discard(store.scripts, task_id, list(WEIGHTS))
    batch = batches.get("b")
    assert (batch.status, batch.counts[TaskState.FAILED], batch.counts[TaskState.PENDING]) == ("ended", 1, 0)


# --- recovery ---


def test_recovery_puts_back_exactly_the_tickets_that_are_missing(store: Store) -> None:
    ids = store.submit(50)
    for each in ids[10:20]:
        store.redis.lrem(keys.rq_queue("normal"), 0, each)
    store.clock.advance(timedelta(minutes=1))
    assert maintenance.recover(store.scripts, "normal", 10 * SECOND, 200) == 10
    assert maintenance.recover(store.scripts, "normal", 10 * SECOND, 200) == 0
    assert sorted(store.claim(100)) == sorted(ids)


def test_recovery_clears_stale_tickets_of_a_queue_in_which_nothing_waits(store: Store) -> None:
    for task_id in store.submit(1000):
        store.queues.cancel(task_id, "")
    assert maintenance.recover(store.scripts, "normal", 10 * SECOND, 200) == 0
    assert store.redis.llen(keys.rq_queue("normal")) == 0


@pytest.mark.parametrize("field", ["failures", "crashes", "attempt"])
def test_a_damaged_number_in_a_record_does_not_keep_its_outcome_from_being_written(store: Store, field: str) -> None:
    damaged, sound = store.submit(2)
    store.claim(2)
    store.redis.hset(keys.rq_job(damaged), field, "abc")
    record = '{"outcome":"failed"}'
    error = '{"type":"E","message":"m"}'
    ends = (ended(each, "t1", "retrying", record, error=error) for each in (damaged, sound))
    assert report(store.scripts, *ends) == [1, 1]
    assert store.state(damaged) is store.state(sound) is TaskState.RETRYING


def test_recovery_leaves_young_tasks_alone(store: Store) -> None:
    store.submit(3)
    store.redis.delete(keys.rq_queue("normal"))
    assert maintenance.recover(store.scripts, "normal", 10 * SECOND, 200) == 0


def test_recovery_sees_through_stale_tickets_in_front(store: Store) -> None:
    ids = store.submit(5)
    store.redis.lpush(keys.rq_queue("normal"), *[f"stale{n}" for n in range(600)])
    store.clock.advance(timedelta(minutes=1))
    for _ in range(5):
        assert maintenance.recover(store.scripts, "normal", 10 * SECOND, 200) == 0
    assert store.redis.lrange(keys.rq_queue("normal"), 0, -1) == [each.encode() for each in ids]
