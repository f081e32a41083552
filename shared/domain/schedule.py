"""The due times of a schedule, and the handling of missed ones. Independent of Redis.

Cron expressions are read by croniter (a dependency of RQ). Compared with it: cronsim, which keeps Debian's rules for
the days of clock changes, but has no field for seconds. This module corrects croniter on those days: where a local time
comes twice, a fixed time of day runs once, and a time that does not exist runs right after the change. Expressions with
a star for the hour follow real time and run in both hours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from firmq.shared.domain.decode import as_declared
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.task import AS_GIVEN, NewTask, TaskOptions, Webhook
from firmq.shared.domain.task_state import Missed as Missed  # noqa: PLC0414  # part of this module's names
from firmq.shared.domain.task_state import Overlap as Overlap  # noqa: PLC0414

_NAME = re.compile(r"[A-Za-z0-9_-]{1,46}")
_CRON = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[0-9A-Za-z*/,#? -]{9,200}")
LONGEST_INTERVAL = timedelta(days=366)
MOST_COUNTED = 10_000
"""Missed times that are counted one by one; a schedule of every second that was stopped for a week has 600,000."""

NOT_TO_BE_SCHEDULED = "this type is internal and cannot be scheduled: choose another type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(TaskOptions):
    """A task and its due times: either a cron expression or an interval in seconds.

    `data` is JSON text. `missed_limit` bounds how many missed times get a task; the latest ones are chosen.
    """

    name: str
    data: str = "null"
    cron: str | None = None
    interval: int | None = None
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE
    missed_limit: int = 100
    overlap: Overlap = Overlap.ALLOW
    timeout: float | None = None
    expires_in: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError with the mistake and the allowed values."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a schedule name: use 1 to 46 of A-Z a-z 0-9 _ -")
        if (self.cron is None) == (self.interval is None):
            raise ValueError("must have either cron or interval")
        if self.interval is not None and not 1 <= self.interval <= LONGEST_INTERVAL.total_seconds():
            raise ValueError("interval must be 1 to 31622400 seconds")
        if not 1 <= self.missed_limit <= MOST_COUNTED:
            raise ValueError(f"missed_limit must be 1 to {MOST_COUNTED}")
        for each in dataclass_fields(self):
            value, pattern = getattr(self, each.name), each.metadata.get("pattern")
            if pattern and value is not None and not pattern.fullmatch(value):
                raise ValueError(f"{each.name} must match {pattern.pattern}")
        check_zone(self.timezone)
        if self.cron is not None:
            check_cron(self.cron)

    @property
    def spec(self) -> str:
        """Returns the stored form; fields that are unset are left out, as in versions that do not know them."""
        fields = {name: value for name, value in asdict(self).items() if value is not None or name not in _LATER}
        return json.dumps(fields, sort_keys=True)

    @property
    def revision(self) -> str:
        """Returns a digest that is equal for equal schedules."""
        return hashlib.sha256(self.spec.encode()).hexdigest()[:16]

    @property
    def when(self) -> str:
        """Returns the due times in words."""
        return f"{self.cron} ({self.timezone})" if self.cron else f"every {self.interval} s"


_LATER = (*AS_GIVEN, "webhook")


def read_spec(spec: bytes | str) -> Schedule:
    """Returns a schedule from its stored form. Raises one of `UNREADABLE` for a corrupt one."""
    fields = json.loads(spec)
    schedule = as_declared(
        Schedule(
            **{
                **fields,
                "missed": Missed(fields["missed"]),
                "overlap": Overlap(fields["overlap"]),
                "tags": tuple(fields["tags"]),
                "webhook": _webhook(fields.get("webhook")),
            }
        )
    )
    json.loads(schedule.data)
    RetryPolicy().override(schedule.retry)
    return schedule


def _webhook(value: Any) -> Webhook | None:
    """Returns the webhook of a schedule's definition."""
    return Webhook(**{**value, "events": tuple(value.get("events") or ())}) if value else None


def following(schedule: Schedule, after: datetime) -> datetime | None:
    """Returns the first due time later than `after`; None when there is none.

    For an interval `after` must be a due time: each is counted from the one before, so they do not drift.
    """
    if schedule.interval is not None:
        return after + timedelta(seconds=schedule.interval)
    return next(_cron_times(schedule, after), None)


def upcoming(schedule: Schedule, due: datetime, count: int) -> list[datetime]:
    """Returns the next due times, including `due`."""
    return list(islice(_from(schedule, due), count))


def task_for(schedule: Schedule, due: datetime) -> NewTask:
    """Returns the only task of a due time, which its id names."""
    return _task(schedule, f"{schedule.name}-{due.astimezone(UTC):%Y%m%dT%H%M%SZ}", {"due_at": due.isoformat()})


def task_now(schedule: Schedule, task_id: str) -> NewTask:
    """Returns a task of the schedule that was requested outside its due times."""
    return _task(schedule, task_id, {})


def _task(schedule: Schedule, task_id: str, about: Mapping[str, str]) -> NewTask:
    options = {each.name: getattr(schedule, each.name) for each in dataclass_fields(TaskOptions)}
    return NewTask(
        **options | {"tags": (*schedule.tags, f"schedule:{schedule.name}")},
        id=task_id,
        data=schedule.data,
        timeout=timedelta(seconds=schedule.timeout) if schedule.timeout else None,
        expires_in=timedelta(seconds=schedule.expires_in) if schedule.expires_in else None,
        meta={"schedule": schedule.name, **about},
    )


# --- Planning ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a schedule from a due time to the next, with a task or without. `passed` counts missed times."""

    due: datetime
    following: datetime | None
    fire: bool
    passed: int = 0


def plan(schedule: Schedule, due: datetime, now: datetime, grace: timedelta, most: int = 500) -> list[Step]:
    """Returns the steps from a due time up to now, at most `most` of them; the next run continues.

    A time is missed when it is older than `grace`: a housekeeper that takes over within it runs all of them, whatever
    the policy.
    """
    if due > now:
        return []
    if due + grace >= now:
        return _each(schedule, due, now, most)
    if schedule.missed is Missed.ONCE:
        return [_jump(schedule, due, now, fire=True)]
    if schedule.missed is Missed.SKIP:
        first = _jump(schedule, due, now - grace, fire=False)
        rest = _each(schedule, first.following, now, most) if first.following else []
        return [first, *rest]
    return _make_up(schedule, due, now, grace, most)


def _each(schedule: Schedule, due: datetime, now: datetime, most: int) -> list[Step]:
    steps: list[Step] = []
    at: datetime | None = due
    while at is not None and at <= now and len(steps) < most:
        after = following(schedule, at)
        steps.append(Step(due=at, following=after, fire=True))
        at = after
    return steps


def _jump(schedule: Schedule, due: datetime, until: datetime, *, fire: bool) -> Step:
    """Returns the step from a due time to the first one after `until`."""
    if schedule.interval is not None:
        passed = int((until - due) / timedelta(seconds=schedule.interval)) + 1
        after: datetime | None = due + passed * timedelta(seconds=schedule.interval)
    else:
        passed = sum(1 for _ in _up_to(schedule, due, until))
        after = following(schedule, until)
    return Step(due=due, following=after, fire=fire, passed=passed - 1 if fire else passed)


def _make_up(schedule: Schedule, due: datetime, now: datetime, grace: timedelta, most: int) -> list[Step]:
    missed = list(_up_to(schedule, due, now - grace))
    too_many = len(missed) - schedule.missed_limit
    if too_many <= 0:
        return _each(schedule, due, now, most)
    first = missed[too_many]
    return [Step(due=due, following=first, fire=False, passed=too_many), *_each(schedule, first, now, most)]


def _up_to(schedule: Schedule, due: datetime, until: datetime) -> Iterator[datetime]:
    """Yields due times up to an instant; of very many the last ones."""
    if schedule.interval is not None:
        step = timedelta(seconds=schedule.interval)
        count = int((until - due) / step) + 1
        return (due + at * step for at in range(max(0, count - MOST_COUNTED), count))
    return takewhile(lambda at: at <= until, islice(_from(schedule, due), MOST_COUNTED))


def _from(schedule: Schedule, due: datetime) -> Iterator[datetime]:
    yield due
    if schedule.interval is None:
        yield from _cron_times(schedule, due)
    while (step := schedule.interval) is not None:
        due += timedelta(seconds=step)
        yield due


# --- Cron --------------------------------------------------------------------------------------------------------


def _cron_times(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    zone = check_zone(schedule.timezone)
    times = croniter(schedule.cron, after.astimezone(zone), second_at_beginning=True, max_years_between_matches=8)
    once = not _every_hour(schedule.cron or "")
    last = after
    while True:
        try:
            at: datetime = times.get_next(datetime)
        except CroniterError:
            return
        found = at.astimezone(UTC)
        if found > last and not (once and at.fold):
            last = found
            yield found


def _every_hour(cron: str) -> bool:
    """Returns whether the hour is open, so that the expression follows real time on the days of clock changes."""
    if cron.startswith("@"):
        return cron == "@hourly"
    fields = cron.split()
    return fields[-4].startswith("*")


def check_cron(cron: str) -> None:
    # croniter's R and H are refused: they mean random times, which differ at each reading.
    fields = cron.split()
    if not _CRON.fullmatch(cron) or (not cron.startswith("@") and len(fields) not in (5, 6)):
        raise ValueError(
            f"{cron!r} is no cron expression: use 5 fields (minute hour day month weekday), or six with seconds first"
        )
    if any(re.search(r"(?i)\b[rh]\b|[rh]\(", each) for each in fields):
        raise ValueError(f"{cron!r}: R and H (random times) are not supported: write the times")
    try:
        times = croniter(cron, datetime(2024, 1, 1, tzinfo=UTC), second_at_beginning=True, max_years_between_matches=8)
        times.get_next(datetime)
    except CroniterError as error:
        raise ValueError(f"{cron!r} is not a cron expression with a due time: {error}") from None


def check_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is not a time zone: use a name such as Europe/Berlin or UTC") from None
