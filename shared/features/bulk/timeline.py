"""The events of bulk actions in the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from firmq.shared.domain.timeline import ACTORS, Event, Source
from firmq.shared.features.bulk.store import KEPT, BulkAction, Verb, latest

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Scripts


def events(scripts: Scripts) -> Source:
    """Returns the source of these events."""

    def read(since: datetime, until: datetime) -> tuple[Sequence[Event], str]:
        actions, unreadable = latest(scripts)
        found = [event for each in actions for event in _of(each)]
        is_cut = len(actions) >= KEPT and actions[-1].begun_at > since
        sentences = [f"Only the last {KEPT} bulk actions are on record."] if is_cut else []
        sentences += [f"{len(unreadable)} bulk actions cannot be read."] if unreadable else []
        return found, " ".join(sentences)

    return Source(read, tells=("started bulk", "started undo"))


def _of(action: BulkAction) -> Iterator[Event]:
    who, link = ACTORS.get(action.by, action.by), f"/bulk/{action.id}"
    noun = "dead letter" if action.verb is Verb.RETRY else "task"
    about = "" if action.exact else "about "
    count = f"{about}{action.total:,} {noun}{'s' if action.total != 1 else ''}"
    target = f" to the queue {action.to}" if action.to else ""
    title = f"{who} began to {action.verb.replace('_', ' ')} {count}{target}"
    yield Event(at=action.begun_at, kind="bulk", title=title, detail=action.what, link=link)
    if action.ended_at:
        how = "stopped by itself" if action.why else "was aborted" if action.state == "aborted" else "finished"
        by = f"{who[:1].lower()}{who[1:]}" if action.by in ACTORS and action.by != "the REST API" else action.by
        title = f"The bulk action of {by} {how}, with {action.done:,} of {count} done"
        yield Event(at=action.ended_at, kind="bulk", title=title, detail=action.why or action.what, link=link)
