"""Batches: tasks that were submitted together, and actions on all of them at once.

Each script that moves a task of a batch updates the batch's counts in the same step (`_batch_counts.lua`); reading them
costs the same for ten tasks or a million. Cancelling and retrying continue in small steps after they have begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from firmq.shared.domain.clock import instant
from firmq.shared.domain.decode import whole_or_none
from firmq.shared.domain.task import TaskState, TaskSummary
from firmq.shared.errors import BatchBusy, BatchNotFound
from firmq.shared.redis.client import text, translated
from firmq.shared.redis.quarantine import without_corrupt
from firmq.shared.stores.record_fields import SUMMARY_FIELDS, read_summary
from firmq.shared.stores.tasks import cursor_of, read_cursor

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

LOOK_AT = 1000
"""Tasks that one page may examine while it filters."""
CHUNK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """The terms of a whole batch; `then` is the task that follows when all have ended."""

    name: str = ""
    max_running: int | None = None
    stop_on_error: int | None = None
    then: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A summary of a batch.

    `counts` is the number of its tasks by state, with the last state of those whose records were `removed`; `closed`
    whether all of it was sent; `stopped` why none of its tasks starts any more; `work` the action in progress on all of
    them: cancel, stop or retry.
    """

    id: str
    terms: BatchTerms
    created_at: datetime
    total: int
    ended: int
    removed: int
    counts: Mapping[TaskState, int]
    closed: bool
    done_at: datetime | None
    stopped: str | None
    stopped_at: datetime | None
    work: str | None

    @property
    def status(self) -> Literal["receiving", "running", "ended"]:
        """Returns receiving, running or ended."""
        if not self.closed:
            return "receiving"
        return "ended" if self.ended >= self.total else "running"

    @property
    def progress(self) -> float:
        """Returns the share of the tasks submitted so far that has ended."""
        return self.ended / self.total if self.total else float(self.closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One task in its place; without a summary when its record is removed."""

    index: int
    task_id: str
    summary: TaskSummary | None


class Batches:
    """The batches in one Redis."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.keys = scripts.keys

    def open(self, batch_id: str, terms: BatchTerms) -> bool:
        """Opens a new or an existing batch; returns whether it is new."""
        with translated():
            limits = _number(terms.max_running), _number(terms.stop_on_error)
            return bool(self.scripts.call_answered("batch_open", batch_id, terms.name, *limits, terms.then or ""))

    def discard(self, batch_id: str) -> None:
        """Removes a batch without tasks."""
        with translated():
            self.scripts.call("batch_discard", batch_id)

    def extend(self, batch_id: str, count: int, start: int | None, request: str) -> int:
        """Reserves indexes for `count` more tasks, from `start` on if given. Returns the first index.

        `request` is the digest of an idempotency key, or "": its repetitions get the same indexes. Raises
        BatchNotFound.
        """
        with translated():
            first = self.scripts.call("batch_extend", batch_id, count, _number(start), request)
        if first is None:
            raise BatchNotFound(id=batch_id)
        return int(first)

    def close(self, batch_id: str) -> None:
        """Closes a batch: all of it was sent."""
        with translated():
            batch_close(self.scripts, batch_id)

    def get(self, batch_id: str) -> Batch:
        """Returns one batch. Raises BatchNotFound."""
        with self.scripts.quarantining({self.keys.batch(batch_id): "hash"}):
            fields = self.scripts.redis.hgetall(self.keys.batch(batch_id))
        if not fields:
            raise BatchNotFound(id=batch_id)
        return _read(batch_id, {text(name): text(value) for name, value in fields.items()})

    def some(self, ids: Sequence[str]) -> list[Batch]:
        """Returns the given batches that exist, in one round trip."""
        if not ids:
            return []
        wanted = dict.fromkeys(map(self.keys.batch, ids), "hash")
        with self.scripts.quarantining(wanted), self.scripts.redis.pipeline(transaction=False) as pipeline:
            for each in ids:
                pipeline.hgetall(self.keys.batch(each))
            found = pipeline.execute()
        return [
            _read(name, {text(field): text(value) for field, value in fields.items()})
            for name, fields in zip(ids, found, strict=True)
            if fields
        ]

    def page(self, limit: int, cursor: str | None = None) -> tuple[list[Batch], str | None, list[str]]:
        """Returns some batches, newest first, the cursor of the next page, and the cursor after each batch.

        Raises ValueError for an invalid cursor.
        """
        with translated():
            reply = self.scripts.call("batch_page", *read_cursor(cursor), limit)
        names, scores = reply[::2], reply[1::2]
        batches = self.some(list(map(text, names[:limit])))
        places = {text(name): cursor_of(text(score), name) for name, score in zip(names, scores, strict=True)}
        next_cursor = places[text(names[limit - 1])] if len(names) > limit else None
        return batches, next_cursor, [places[each.id] for each in batches]

    def items(
        self, batch_id: str, limit: int, after: int = -1, state: TaskState | None = None
    ) -> tuple[list[BatchItem], int | None]:
        """Returns some of its tasks in their order, and the cursor of the next page.

        A page examines a thousand tasks at most: when few are in the wanted state it may be short and not the last.
        """
        found: list[BatchItem] = []
        looked = 0
        while looked < LOOK_AT:
            rows = self._rows(batch_id, after, CHUNK if state else min(CHUNK, limit - len(found)))
            looked += max(len(rows), 1)
            for item in rows:
                after = item.index
                if state is None or (item.summary and item.summary.state is state):
                    found.append(item)
                if len(found) == limit:
                    return found, after
            if not rows:
                return found, None
        return found, after

    def cancel(self, batch_id: str, reason: str) -> None:
        """Cancels its waiting tasks and requests the running ones to stop; from here on none of them starts.

        Raises BatchNotFound, and BatchBusy while an earlier cancel or retry is in progress.
        """
        self._begin(batch_id, "cancel", reason)

    def retry_failed(self, batch_id: str) -> None:
        """Requeues all its dead letters. Raises the same errors as `cancel`."""
        self._begin(batch_id, "retry", "")

    def _begin(self, batch_id: str, work: str, reason: str) -> None:
        with translated():
            answer = batch_work(self.scripts, batch_id, work, reason)
        if answer == "unknown":
            raise BatchNotFound(id=batch_id)
        if answer == "busy":
            raise BatchBusy(id=batch_id)

    def _rows(self, batch_id: str, after: int, count: int) -> list[BatchItem]:
        redis = self.scripts.redis
        with self.scripts.quarantining({self.keys.batch_items(batch_id): "zset"}):
            listed = redis.zrangebyscore(
                self.keys.batch_items(batch_id), f"({after}", "(+inf", start=0, num=count, withscores=True
            )
            rows = cast("list[tuple[bytes, float]]", listed)
            with redis.pipeline(transaction=False) as pipeline:
                for name, _ in rows:
                    pipeline.hmget(self.keys.rq_job(text(name)), SUMMARY_FIELDS)
                values = without_corrupt(pipeline.execute(raise_on_error=False), None)
        return [_item(text(name), int(at), each) for (name, at), each in zip(rows, values, strict=True)]


def _item(task_id: str, index: int, values: Any) -> BatchItem:
    known = isinstance(values, list) and any(value is not None for value in values)
    return BatchItem(index=index, task_id=task_id, summary=read_summary(task_id, values) if known else None)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _read(batch_id: str, fields: Mapping[str, str]) -> Batch:
    def number(name: str) -> int | None:
        return whole_or_none(fields.get(name))  # None also for a corrupt value

    def moment(name: str) -> datetime | None:
        try:
            return instant(float(fields[name]))
        except (KeyError, ValueError):
            return None

    return Batch(
        id=batch_id,
        terms=BatchTerms(
            name=fields.get("name", ""),
            max_running=number("max_running"),
            stop_on_error=number("stop_on_error"),
            then=fields.get("then"),
        ),
        created_at=moment("created_at") or instant(0),
        total=number("total") or 0,
        ended=number("ended") or 0,
        removed=number("removed") or 0,
        counts={state: number(state) or 0 for state in TaskState},
        closed="closed" in fields,
        done_at=moment("done_at"),
        stopped=fields.get("stopped"),
        stopped_at=moment("stopped_at"),
        work=fields.get("work"),
    )


def batch_close(scripts: Scripts, batch_id: str) -> bool:
    """Closes a batch: all of it was sent. Returns whether it exists."""
    return bool(scripts.call_answered("batch_close", batch_id))


def batch_work(scripts: Scripts, batch_id: str, work: str, reason: str) -> str:
    """Begins to cancel or to retry its tasks; returns begun, busy or unknown."""
    return text(scripts.call_answered("batch_work", batch_id, work, reason))
