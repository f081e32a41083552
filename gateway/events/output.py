"""The output of a task as Server-Sent Events."""

from __future__ import annotations

import json
from dataclasses import dataclass

from firmq.gateway.events.broadcaster import NewEvents
from firmq.shared.domain.redaction import Redaction
from firmq.shared.stores.output import START, OutputEntry, OutputPage, parse_entry_id

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
    return last_event_id if last_event_id and parse_entry_id(last_event_id) else START


def entry_order(entry_id: str) -> tuple[int, int]:
    """Returns a key that sorts ids of chunks."""
    return parse_entry_id(entry_id) or (0, 0)
