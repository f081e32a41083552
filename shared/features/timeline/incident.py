"""The timeline of an incident: events of the system and changes by users on one axis.

Every source is read up to a bound. Where one was cut, or lacks the beginning of the range, `incomplete` has a
sentence about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

from firmq.shared.domain.clock import instant
from firmq.shared.domain.timeline import ACTORS, Event
from firmq.shared.redis.client import text, translated
from firmq.shared.registry import added
from firmq.shared.stores.audit import KEPT as AUDIT_KEPT
from firmq.shared.stores.audit import Audit, AuditEntry, AuditFilter
from firmq.shared.stores.deploys import Deploys
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.workers import LOST_KEPT, LOST_MOST, Workers

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts

MOST = 200
"""Events of a timeline, the latest ones."""
LONGEST = timedelta(days=31)
USUAL = timedelta(hours=6)
AHEAD = timedelta(days=1)
"""How far after now a range may end."""
GROUPS = 200
"""Groups of dead letters whose onset is looked at, the most frequent ones."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The events of a range, the first one first, and sentences about what is missing."""

    since: datetime
    until: datetime
    events: Sequence[Event]
    incomplete: Sequence[str] = field(default=())


def check_range(since: datetime | None, until: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """Returns a range, by default the last six hours. Raises ValueError with the required change."""
    if until is not None and not _EPOCH <= until <= now + AHEAD:
        raise ValueError("until must be between 1970 and a day from now")
    end = until or now
    begin = since or max(_EPOCH, end - USUAL)
    if not _EPOCH <= begin < end:
        raise ValueError("since must be after 1970, and before until")
    if end - begin > LONGEST:
        raise ValueError(f"the range must be at most {LONGEST.days} days long")
    return begin, end


class Incidents:
    """Reads timelines."""

    def __init__(self, scripts: Scripts, workers: Workers) -> None:
        self.scripts = scripts
        self.workers = workers
        self.more = [source(scripts) for source in added("timeline")]
        self.audit = Audit(scripts.redis)
        self.deploys = Deploys(scripts)
        self.failure_groups = FailureGroups(scripts)

    def now(self) -> datetime:
        """Returns the time of Redis' clock."""
        return instant(self.scripts.now_us())

    def read(self, since: datetime, until: datetime) -> Incident:
        """Returns the events from `since` to `until`. Raises StoreUnavailable."""
        found: list[Event] = []
        missing: list[str] = []
        sources: Sequence[Callable[[datetime, datetime], tuple[Sequence[Event], str]]] = (
            *(self._deployed, self._onsets, self._lost),
            *(each.read for each in self.more),
            self._acts,
        )
        for read in sources:
            events, sentence = read(since, until)
            found += (each for each in events if since <= each.at <= until)
            missing += [sentence] if sentence else []
        found.sort(key=lambda each: each.at)
        if len(found) > MOST:
            missing.append(f"Only the latest {MOST} of {len(found)} events are shown: choose a shorter range.")
        return Incident(since=since, until=until, events=found[-MOST:], incomplete=missing)

    def _deployed(self, since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        found = [
            Event(
                at=each.first_at,
                kind="deploy",
                title=f"Version {each.version} began to serve",
                link=f"/tasks?search={quote(f'version:{each.version}')}",
            )
            for each in self.deploys.all()
        ]
        return found, ""

    def _onsets(self, since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        groups, total = self.failure_groups.page(0, GROUPS)
        found = [
            Event(
                at=each.first_at,
                kind="cause",
                title=f"{each.type} failed for the first time with {each.error}",
                detail=each.pattern or each.message,
                link=f"/dead-letters/{each.key}",
            )
            for each in groups
        ]
        return found, f"Only the {GROUPS} most frequent of {total} causes were examined." if total > GROUPS else ""

    def _lost(self, since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        lost = self.workers.look().lost
        found = [
            Event(
                at=each.last_heartbeat_at,
                kind="worker",
                title=f"The worker {each.name} was lost",
                detail=each.reason or "",
                link="/workers",
            )
            for each in lost
            if each.last_heartbeat_at
        ]
        is_cut = since < self.now() - LOST_KEPT or (len(lost) >= LOST_MOST and found[-1].at > since)
        kept = f"Lost workers are on record for {LOST_KEPT.days} days, the last {LOST_MOST} of them."
        return found, kept if is_cut else ""

    def _acts(self, since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        wanted = AuditFilter(since=since, until=until + timedelta(milliseconds=1))
        entries = list(islice(self.audit.entries(wanted), MOST + 1))
        elsewhere = tuple(start for each in self.more for start in each.tells)
        found = [_of_audit(each) for each in reversed(entries[:MOST]) if not each.what.startswith(elsewhere)]
        if len(entries) > MOST:
            return found, f"Only the latest {MOST} changes that people made are shown: choose a shorter range."
        return found, f"Only about {AUDIT_KEPT:,} changes that people made are on record." if self._cut(since) else ""

    def _cut(self, since: datetime) -> bool:
        """Returns whether the audit record has lost entries that may be after a time."""
        with translated():
            redis, key = self.scripts.redis, self.scripts.keys.AUDIT
            if redis.xlen(key) < AUDIT_KEPT:
                return False
            first = redis.xrange(key, count=1) or []
        return bool(first) and instant(int(text(first[0][0]).partition("-")[0]) * 1000) > since


_NOUNS = {
    "bulk action": "the bulk action",
    "failures of batch": "the failures of the batch",
    "out of queue": "out of the queue",
    "schedule": "the schedule",
    "worker": "the worker",
    "queue": "the queue",
    "batch": "the batch",
    "limit": "the limit",
    "lock": "the lock",
    "type": "the task type",
    "API key": "the API key",
}
_SENTENCES = {
    "ran now": "ran the task {} now",
    "ran schedule now": "ran the schedule {} now",
    "retried with other data": "retried the task {} with other data",
    "redelivered": "repeated the webhook delivery {}",
    "unlocked": "released the {}",
    "stepped down": "made the holder of the {} step down",
}
_OF_TASKS = ("cancelled", "retried", "deleted", "restored", "changed", "signalled")


def _of_audit(entry: AuditEntry) -> Event:
    who = ACTORS.get(entry.who, entry.who)
    link = f"/tasks/{quote(entry.about, safe='')}" if entry.what in _OF_TASKS and entry.about else "/audit"
    title = f"{who} {_done(entry.what, entry.about)}".rstrip()
    return Event(at=entry.at, kind=_kind(entry.what), title=title, detail=entry.detail, link=link)


def _kind(what: str) -> str:
    if what in ("paused queue", "resumed queue", "paused type", "resumed type"):
        return "pause"
    return "limit" if what.endswith("limit") else "action"


def _done(what: str, about: str) -> str:
    """Returns an action as a part of a sentence: "paused the queue low"."""
    if what in _SENTENCES:
        return _SENTENCES[what].format(about)
    if what in _OF_TASKS:
        return f"{what} the task {about}"
    for noun, words in _NOUNS.items():
        if what.endswith(f" {noun}"):
            return f"{what.removesuffix(noun)}{words} {about}"
    return f"{what} {about}"


def as_markdown(incident: Incident) -> str:
    """Returns a timeline as a list in Markdown; times are in UTC."""
    head = f"# Timeline from {_minute(incident.since)} to {_minute(incident.until)} UTC"
    lines = [_line(each) for each in incident.events]
    notes = [f"- {each}" for each in incident.incomplete]
    parts = [[head], lines or ["Nothing happened."], *([["Incomplete:", "", *notes]] if notes else [])]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _line(event: Event) -> str:
    detail = f": {_plain(event.detail)}" if event.detail else ""
    return f"- {event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} {_plain(event.title)}{detail}"


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _plain(value: str) -> str:
    """Returns a text in one line that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(value.split()))[:400]
