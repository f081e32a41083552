"""The stored schedules, by name: changed at run time, and turned into tasks, each due time once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.decode import UNREADABLE, fits, whole
from firmq.shared.domain.schedule import NOT_TO_BE_SCHEDULED, Schedule, Step, following, plan, read_spec, task_for
from firmq.shared.domain.task import INTERNAL_TYPES
from firmq.shared.errors import CorruptRecord, ScheduleChanged, ScheduleNotFound
from firmq.shared.redis.client import raw, text, translated
from firmq.shared.stores.queues import TOO_MANY_QUEUES, submit_arguments
from firmq.shared.stores.tasks import encode_cursor, member_of

if TYPE_CHECKING:
    from firmq.shared.domain.lock import FencingToken
    from firmq.shared.domain.task import NewTask
    from firmq.shared.errors import FirmqError
    from firmq.shared.redis.scripts import Argument, Scripts
    from firmq.shared.stores.spans import Spans

log = logging.getLogger(__name__)

PAGE_BYTES = 4 << 20
"""Bytes of the schedules of a page, after which it ends."""
FROM_FILE = "file"
FROM_API = "api"
NOT_READABLE = "the stored schedule is corrupt: delete it and create it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule with its history. `due` is None while it is paused, and when it has no next time."""

    schedule: Schedule
    source: str
    due: datetime | None
    paused: Mapping[str, str] | None
    last_due: datetime | None
    last_task: str | None
    fired: int
    missed: int
    overlaps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of a schedule: the task of a due time, and its state, "removed" if it was deleted before its end."""

    task_id: str
    due: datetime
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """Some schedules by name, the names of corrupt ones, and the cursor of the next page (a name)."""

    items: Sequence[StoredSchedule]
    unreadable: Sequence[str]
    after: str | None


@dataclass(slots=True)
class Fired:
    """Outcome of one run: tasks created, due times missed, skipped for an overlap, refused, lateness in seconds."""

    tasks: int = 0
    missed: int = 0
    overlaps: int = 0
    refused: int = 0
    lateness: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Changes by a file: names, and for changed ones the old and new values."""

    created: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __str__(self) -> str:
        parts = (("created", self.created), ("changed", self.changed), ("removed", self.removed))
        said = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
        return said or "nothing changed"


class ScheduleStore:
    """The schedules in Redis."""

    def __init__(self, scripts: Scripts, bounds: str = "0", tracing: Spans | None = None) -> None:
        """`bounds` as in `Queues`."""
        self.scripts = scripts
        self.tracing = tracing
        self.bounds = bounds

    # --- reading ---

    def get(self, name: str) -> StoredSchedule:
        """Returns one schedule. Raises ScheduleNotFound, or CorruptRecord."""
        with self.scripts.quarantining({self.scripts.keys.schedule(name): "hash"}):
            fields = self.scripts.redis.hgetall(self.scripts.keys.schedule(name))
        found = _read(fields)
        if found is None:
            raise self._missing_or_corrupt(name)
        return found

    def _missing_or_corrupt(self, name: str) -> FirmqError:
        with translated():
            listed = self.scripts.redis.zscore(self.scripts.keys.SCHEDULES, name) is not None
        return CorruptRecord(NOT_READABLE, name=name) if listed else ScheduleNotFound(name=name)

    def page(self, limit: int, after: str = "") -> SchedulePage:
        """Returns some schedules by name, which have not much more than PAGE_BYTES together."""
        redis = self.scripts.redis
        with translated():
            behind = b"(" + member_of(after) if after else "-"
            found = redis.zrangebylex(self.scripts.keys.SCHEDULES, behind, "+", start=0, num=limit + 1)
        names = list(dict.fromkeys(text(name) for name in found[:limit]))
        wanted = {self.scripts.keys.schedule(name): "hash" for name in names}
        with self.scripts.quarantining(wanted), redis.pipeline(transaction=False) as pipeline:
            for key in wanted:
                pipeline.hstrlen(key, "spec")
            fitting = max(1, sum(size <= PAGE_BYTES for size in accumulate(pipeline.execute())))
            for key in list(wanted)[:fitting]:
                pipeline.hgetall(key)
            records = pipeline.execute()
        read = {name: _read(record) for name, record in zip(names, records, strict=False)}
        return SchedulePage(
            items=[item for item in read.values() if item],
            unreadable=[name for name, item in read.items() if item is None],
            after=encode_cursor(raw(found[len(read) - 1]), b"\xff") if len(found) > len(read) > 0 else None,
        )

    def runs(self, names: Sequence[str]) -> list[list[Run]]:
        """Returns the last runs of each of these schedules, at most 30, the oldest first; states as last noted."""
        wanted = {self.scripts.keys.schedule_runs(name): "hash" for name in names}
        with self.scripts.quarantining(wanted), self.scripts.redis.pipeline(transaction=False) as pipeline:
            for key in wanted:
                pipeline.hgetall(key)
            return [sorted(_runs(found), key=lambda run: run.due) for found in pipeline.execute()]

    # --- changing ---

    def put(
        self,
        schedule: Schedule,
        source: str = FROM_API,
        expected: str | None = None,
        entry: tuple[str, float] | None = None,
    ) -> str:
        """Creates or changes a schedule by name; returns created, changed or unchanged.

        `expected` is the revision that it must have, "" for a name that must be free. Raises ScheduleChanged otherwise,
        and when `entry`, the id and the time of an entry of rq-scheduler that it replaces, is not there any more.
        """
        with translated():
            due = str(round(entry[1] * 1_000_000)) if entry else self._first_due(schedule)
            about = (schedule.name, schedule.spec, schedule.revision, source, due)
            condition = () if expected is None else (expected, *(entry or ()))
            happened, before = map(text, self.scripts.call_answered("schedule_put", *about, *condition))
        if happened == "other":
            raise ScheduleChanged(name=schedule.name)
        if happened != "unchanged":
            log.info("schedule %s %s: %s", schedule.name, happened, _difference(before, schedule))
        return happened

    def delete(self, name: str) -> None:
        """Removes a schedule; its tasks stay. Raises ScheduleNotFound."""
        with translated():
            if not _schedule_delete(self.scripts, name):
                raise ScheduleNotFound(name=name)

    def pause(self, name: str, reason: str) -> StoredSchedule:
        """Stops its tasks until it is resumed; due times that pass meanwhile are dropped."""
        stored = self.get(name)
        with translated():
            note = json.dumps({"reason": reason})
            _schedule_pause(self.scripts, name, stored.schedule.revision, note, "")
        return self.get(name)

    def resume(self, name: str) -> StoredSchedule:
        """Resumes it with its next due time from now."""
        stored = self.get(name)
        with translated():
            due = self._first_due(stored.schedule)
            _schedule_pause(self.scripts, name, stored.schedule.revision, "", due)
        return self.get(name)

    def declare(self, schedules: Iterable[Schedule]) -> Diff:
        """Applies the schedules of a file; removes schedules of an earlier file that it no longer has."""
        declared = {each.name: each for each in schedules}
        happened = {name: self.put(each, FROM_FILE) for name, each in declared.items()}
        removed = [name for name in self._from_file() if name not in declared and self._forget(name)]
        return Diff(
            created=tuple(name for name, what in happened.items() if what == "created"),
            changed=tuple(name for name, what in happened.items() if what == "changed"),
            removed=tuple(removed),
        )

    # --- firing ---

    def fire_due(self, fencing_token: FencingToken, grace: timedelta, fired: Fired, most: int = 100) -> bool:
        """Turns the due times of at most `most` schedules into tasks, and counts them in `fired`.

        Returns whether to call again at once: there were `most`, and not all have to wait (a corrupt one, or one
        whose queue is full, is still due). Raises LockLost as soon as the lock is lost.
        """
        now_us, rows = _schedule_due(self.scripts, most)
        moved = 0
        for name, revision, spec, due in rows:
            try:
                schedule, due_at = read_spec(spec), instant(whole(due))
            except UNREADABLE as error:
                log.error("schedule %s is corrupt and skipped: %s", name, error)
                continue
            if schedule.type in INTERNAL_TYPES:
                refused = self._refuse(schedule, revision)
                fired.refused += refused
                moved += refused
                continue
            try:
                for step in plan(schedule, due_at, instant(now_us), grace):
                    if not self._take(fencing_token, schedule, revision, step, now_us, fired):
                        break
                    moved += 1
            except ResponseError as error:
                log.error("schedule %s: its task cannot be created: %s", name, error)
        return len(rows) == most and moved > 0

    def follow(self, fencing_token: FencingToken, most: int = 40) -> bool:
        """Notes how runs of at most `most` schedules ended; returns whether to call again. Raises LockLost."""
        return int(self.scripts.call("schedule_follow", fencing_token.lock, fencing_token.token, most)) == most

    def _refuse(self, schedule: Schedule, revision: str) -> bool:
        """Pauses a schedule of webhooks, which only an earlier version could store."""
        note = json.dumps({"reason": NOT_TO_BE_SCHEDULED})
        log.error("schedule %s is paused: %s", schedule.name, NOT_TO_BE_SCHEDULED)
        return _schedule_pause(self.scripts, schedule.name, revision, note, "")

    def _take(
        self, fencing_token: FencingToken, schedule: Schedule, revision: str, step: Step, now_us: int, fired: Fired
    ) -> bool:
        """Carries out one step; returns whether the next one may follow."""
        what = self._fire(fencing_token, schedule, revision, step)
        if what == "many":
            log.error("schedule %s: %s", schedule.name, TOO_MANY_QUEUES.format(queue=schedule.queue))
        if what in ("changed", "full", "many"):
            return False
        fired.tasks += what == "fired"
        fired.overlaps += what == "overlap"
        fired.missed += step.passed
        if what == "fired":
            fired.lateness.append((now_us - instant_us(step.due)) / 1_000_000)
        if step.passed:
            log.warning("schedule %s: %d due times were missed and get no task", schedule.name, step.passed)
        return True

    def _fire(self, fencing_token: FencingToken, schedule: Schedule, revision: str, step: Step) -> str:
        if not step.fire:
            return self._move_on(fencing_token, schedule, revision, step, None)
        task = task_for(schedule, step.due)
        if self.tracing is None:
            return self._move_on(fencing_token, schedule, revision, step, task)
        with self.tracing.firing(task, schedule.name) as (joined, tell):
            what = self._move_on(fencing_token, schedule, revision, step, joined)
            tell(what)
            return what

    def _move_on(
        self, fencing_token: FencingToken, schedule: Schedule, revision: str, step: Step, new: NewTask | None
    ) -> str:
        task = submit_arguments(new) if new else ()
        limit: tuple[Argument, ...] = (self.bounds,) if step.fire else ()
        return schedule_fire(
            self.scripts,
            fencing_token,
            schedule.name,
            revision,
            str(instant_us(step.due)),
            str(instant_us(step.following)) if step.following else "",
            step.passed,
            schedule.overlap,
            *limit,
            *task,
        )

    def _first_due(self, schedule: Schedule) -> str:
        now = instant(self.scripts.now_us()).replace(microsecond=0)
        due = following(schedule, now)
        return str(instant_us(due)) if due else ""

    def _from_file(self) -> list[str]:
        after, names = "", []
        while True:
            page = self.page(500, after)
            names += [each.schedule.name for each in page.items if each.source == FROM_FILE]
            if page.after is None:
                return names
            after = page.after

    def _forget(self, name: str) -> bool:
        with translated():
            return _schedule_delete(self.scripts, name, FROM_FILE)


def _difference(before: str, schedule: Schedule) -> str:
    """Returns the changes, field by field."""
    new = json.loads(schedule.spec)
    if not before:
        return schedule.when
    try:
        old = dict(json.loads(before))
    except UNREADABLE:
        return f"{schedule.when}; the previous version was corrupt"
    return ", ".join(
        f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in {**old, **new} if old.get(key) != new.get(key)
    )


def _read(fields: Mapping[bytes | str, bytes | str]) -> StoredSchedule | None:
    """Returns a schedule; None when it is corrupt."""
    try:
        return _stored({text(name): raw(value) for name, value in fields.items()})
    except UNREADABLE:
        return None


def _stored(about: Mapping[str, bytes]) -> StoredSchedule:
    paused = json.loads(about["paused"]) if about.get("paused") else None
    if not fits(paused, Mapping[str, str] | None):
        raise TypeError("paused must be an object")
    due = about.get("due")
    return StoredSchedule(
        schedule=read_spec(about["spec"]),
        source=text(about.get("source", b"")),
        due=_due(due) if due and not paused else None,
        paused=paused,
        last_due=instant(whole(about["last_due"])) if "last_due" in about else None,
        last_task=text(about["last_task"]) if "last_task" in about else None,
        fired=whole(about.get("fired", 0)),
        missed=whole(about.get("missed", 0)),
        overlaps=whole(about.get("overlaps", 0)),
    )


def _runs(fields: Mapping[bytes | str, bytes | str]) -> Iterator[Run]:
    """Yields the runs of a schedule without corrupt ones."""
    for task_id, value in fields.items():
        due, _, state = text(value).partition(" ")
        with suppress(*UNREADABLE):
            yield Run(task_id=text(task_id), due=instant(whole(due)), state=state)


def _due(stored: bytes) -> datetime:
    """Returns a due time. Raises ValueError for one so late that the following ten may be outside the calendar."""
    us = whole(stored)
    if us > _LATEST_DUE:
        raise ValueError("its due time is outside the calendar")
    return instant(us)


_LATEST_DUE = instant_us(datetime(9900, 1, 1, tzinfo=UTC))


def _schedule_delete(scripts: Scripts, name: str, source: str = "") -> bool:
    """Removes a schedule (only one from `source`, if given); returns whether it existed."""
    return bool(scripts.call_answered("schedule_delete", name, source))


def _schedule_pause(scripts: Scripts, name: str, revision: str, reason: str, due: str) -> bool:
    """Pauses or resumes a schedule; returns False when it is gone or was changed."""
    return bool(scripts.call_answered("schedule_pause", name, revision, reason, due))


def _schedule_due(scripts: Scripts, limit: int) -> tuple[int, list[tuple[str, str, bytes, str]]]:
    """Returns the time (µs), and the due schedules: name, revision, spec, due time (µs)."""
    now, *rows = scripts.call("schedule_due", limit)
    return int(now), [(text(name), text(rev), spec, text(due)) for name, rev, spec, due in rows]


def schedule_fire(scripts: Scripts, fencing_token: FencingToken, *arguments: Argument) -> str:
    """Creates the task of one due time and advances the schedule; returns the outcome."""
    return text(scripts.call("schedule_fire", fencing_token.lock, fencing_token.token, *arguments))
