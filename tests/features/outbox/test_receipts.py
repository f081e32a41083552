"""Tasks of an outbox are stored exactly once, also when their records were removed in between."""

from __future__ import annotations

from datetime import timedelta

import pytest

from firmq.shared.domain.task import Conflict, NewTask, TaskState, Unique, new_task_id
from firmq.shared.features.outbox.keys import OutboxKeys
from firmq.shared.features.outbox.receipts import KEEP, Receipts
from firmq.shared.stores.queues import SubmitOutcome
from tests.support.keys import keys
from tests.support.store import Store

DAY = timedelta(days=1)


@pytest.fixture
def receipts(store: Store) -> Receipts:
    return Receipts(store.scripts, DAY, bounds="3")


def task(**options: object) -> NewTask:
    return NewTask(id=new_task_id(), type="process", data="1", queue="normal", **options)  # type: ignore[arg-type]


def test_a_row_that_is_sent_twice_is_one_task(store: Store, receipts: Receipts) -> None:
    one, two = task(), task()
    first = receipts.submit([one, two])
    again = receipts.submit([one, two])
    assert [each.state for each in first] == [TaskState.PENDING] * 2
    assert [each.stored for each in first] == [True, True]
    assert [(each.outcome, each.state) for each in again] == [(SubmitOutcome.KNOWN, TaskState.PENDING)] * 2
    assert store.redis.zcard(keys.pending("normal")) == 2


def test_a_row_is_recognized_after_the_removal_of_its_record(store: Store, receipts: Receipts) -> None:
    one = task()
    receipts.submit([one])
    store.redis.delete(keys.rq_job(one.id), keys.TASKS, keys.pending("normal"), keys.rq_queue("normal"))
    [again] = receipts.submit([one])
    assert (again.outcome, again.state) == (SubmitOutcome.KNOWN, None)
    assert not store.redis.exists(keys.rq_job(one.id))


def test_a_receipt_expires_only_after_its_row_is_settled(store: Store, receipts: Receipts) -> None:
    one = task()
    receipts.submit([one])
    assert timedelta(milliseconds=store.redis.pttl(OutboxKeys.beside(keys).receipt(one.id))) > KEEP - DAY
    receipts.submit([], [one.id])
    assert timedelta(milliseconds=store.redis.pttl(OutboxKeys.beside(keys).receipt(one.id))) <= DAY


def test_a_refused_row_leaves_no_receipt(store: Store, receipts: Receipts) -> None:
    rows = [task() for _ in range(4)]
    assert [each.outcome for each in receipts.submit(rows)] == [SubmitOutcome.STORED] * 3 + [SubmitOutcome.FULL]
    assert not store.redis.exists(OutboxKeys.beside(keys).receipt(rows[3].id))
    store.redis.delete(keys.pending("normal"))
    [later] = receipts.submit(rows[3:])
    assert later.stored


def test_a_row_with_the_unique_key_of_another_task_has_the_receipt_of_that(store: Store, receipts: Receipts) -> None:
    holder = task(unique=Unique(key="k"))
    other = task(unique=Unique(key="k", on_conflict=Conflict.EXISTING))
    refused = task(unique=Unique(key="k"))
    stored, existing, conflict = receipts.submit([holder, other, refused])
    assert stored.stored
    assert (existing.existing, existing.id) == (True, holder.id)
    assert conflict.outcome is SubmitOutcome.CONFLICT
    assert receipts.submit([other])[0].outcome is SubmitOutcome.KNOWN
    assert store.redis.zcard(keys.TASKS) == 1
