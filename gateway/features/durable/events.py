"""The endpoint that streams the output of a task, as Server-Sent Events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from flask import g

from firmq.gateway.events.broadcaster import NewEvents, Watch
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Reply, endpoint
from firmq.gateway.routes.events import ANSWERS, EventRoutes
from firmq.shared.domain.redaction import Redaction
from firmq.shared.errors import TaskNotFound
from firmq.shared.features.durable.output import START, OutputEntry, OutputPage, Outputs
from firmq.shared.submission import refusals

OUTPUT, HIDDEN_OUTPUT = "output", "hidden output"
"""Kinds of subjects: the output of a task as it is, and as callers with a personal key see it."""
_EVENT_ID = re.compile(r"\d{1,20}-\d{1,20}")
_END = ".end"
"""Follows the id of the last chunk in the id of the event `end`."""


@dataclass(frozen=True, slots=True)
class OutputObservation:
    """A page of the output of a task."""

    page: OutputPage
    ended: bool
    redaction: Redaction | None = None
    """Hides fields that a client with a personal key may not see."""

    def after(self, last_event_id: str | None) -> NewEvents:
        """Returns the events of the page, which begins after that one."""
        if last_event_id and last_event_id.endswith(_END):
            return NewEvents(b"", last_event_id, ended=True)
        events, last = b"".join(map(self._event, self.page.entries)), self.page.last
        if not self.ended or self.page.more:
            return NewEvents(events, last, more=self.page.more)
        return NewEvents(events + b"event: end\nid: %b\ndata: {}\n\n" % (last + _END).encode(), last + _END, ended=True)

    def _event(self, entry: OutputEntry) -> bytes:
        if entry.chunk is None:
            name, data = b"truncated", b'{"attempt":%d,"truncated":true}' % entry.attempt
        else:
            name, data = b"output", b'{"attempt":%d,"chunk":%b}' % (entry.attempt, self._visible(entry.chunk))
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, entry.id.encode(), data)

    def _visible(self, chunk: bytes) -> bytes:
        if self.redaction is None:
            return chunk
        try:
            return json.dumps(self.redaction.hide(json.loads(chunk)), ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return b"null"


def last_chunk(last_event_id: str | None) -> str:
    """Returns the id of the last chunk that a client has."""
    return last_event_id if last_event_id and _EVENT_ID.fullmatch(last_event_id) else START


class OutputRoutes:
    """Streams of output."""

    def __init__(self, events: EventRoutes, outputs: Outputs, redaction: Redaction) -> None:
        self.events = events
        self.outputs = outputs
        events.poller.kinds[OUTPUT] = partial(self._read, None)
        events.poller.kinds[HIDDEN_OUTPUT] = partial(self._read, redaction)

    def _read(self, redaction: Redaction | None, wanted: Sequence[tuple[Watch, bool]]) -> Iterator[OutputObservation]:
        pages = self.outputs.after([(name, last_chunk(last)) for ((_, name), last), _ in wanted])
        for (_, ended), page in zip(wanted, pages, strict=True):
            yield OutputObservation(page, ended, redaction)

    @endpoint(
        "GET",
        "/tasks/{task_id}/stream",
        Across.ID,
        tag="tasks",
        answers=ANSWERS,
        problems=(refusals.NOT_FOUND, errors.BUSY),
        events=True,
    )
    def output(self, task_id: str) -> Reply:
        """Streams the handler's output (`emit`) as Server-Sent Events until the task has ended.

        Events `output` have `attempt` and `chunk`, in the order in which they were emitted, from the first one on. A
        repeated attempt appends to the chunks of the previous one. The event `truncated` means that the task reached
        MAX_OUTPUT_BYTES, and `end` is the last one. The output is removed with the task.
        """
        return self.events.watch((HIDDEN_OUTPUT if g.get("redaction") else OUTPUT, task_id), TaskNotFound)
