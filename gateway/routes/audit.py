"""Endpoints for the audit record: list, export."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from pydantic import Field

from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.routes.tasks import bad_cursor, note_positions
from firmq.gateway.schemas.values import NextCursor, PageQuery, Query, View
from firmq.shared.domain.csv_lines import MEDIA_TYPE as CSV
from firmq.shared.domain.values import Instant
from firmq.shared.stores.audit import Audit, AuditEntry, AuditFilter, as_csv, as_json_lines

JSON_LINES = "application/x-ndjson"
_CURSOR = re.compile("[0-9]{1,19}-[0-9]{1,19}")


class _Filter(Query):
    """Filters of audit entries. `who`, `what` and `about` match parts of these fields, in any case."""

    who: str | None = Field(None, min_length=1, max_length=200, description="Client, API key or dashboard user.")
    what: str | None = Field(None, min_length=1, max_length=200, description="Action, such as `cancelled`.")
    about: str | None = Field(None, min_length=1, max_length=200, description="Object, such as the id of a task.")
    since: Instant | None = None
    until: Instant | None = None

    def wanted(self) -> AuditFilter:
        """Returns the filter of the store."""
        return AuditFilter(who=self.who, what=self.what, about=self.about, since=self.since, until=self.until)


class AuditQuery(_Filter, PageQuery):
    """Filters and page of audit entries."""


class AuditExportQuery(_Filter):
    """Filters of exported audit entries."""


class AuditEntryView(View):
    """A change that a person or a client made."""

    id: str
    at: datetime
    who: str
    what: str
    about: str
    detail: str


class AuditList(View):
    """Audit entries, newest first."""

    items: list[AuditEntryView]
    next_cursor: NextCursor = None


class AuditRoutes:
    """The last ten thousand changes that were made over the API and in the dashboard."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    @endpoint(
        "GET",
        "/audit",
        Across.PAGES_BY_ENTRY,
        tag="audit",
        query=AuditQuery,
        answers={200: Answer(description="A page of entries, newest first.", model=AuditList)},
    )
    def page(self, query: AuditQuery) -> Reply:
        """Lists changes with their author, time, object and reason."""
        if query.cursor and not _CURSOR.fullmatch(query.cursor):
            raise bad_cursor()
        found, cursor = self.audit.page(query.limit, query.cursor, query.wanted())
        note_positions(each.id for each in found)
        items = [
            AuditEntryView(id=each.id, at=each.at, who=each.who, what=each.what, about=each.about, detail=each.detail)
            for each in found
        ]
        return Reply(content=AuditList(items=items, next_cursor=cursor))

    @endpoint(
        "GET",
        "/audit.csv",
        Across.TEXTS,
        tag="audit",
        query=AuditExportQuery,
        answers={200: Answer(description="All matching entries, newest first.", media_type=CSV)},
    )
    def csv(self, query: AuditExportQuery) -> Reply:
        """Exports changes as CSV. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
        return self._export(query, as_csv, CSV)

    @endpoint(
        "GET",
        "/audit.jsonl",
        Across.TEXTS,
        tag="audit",
        query=AuditExportQuery,
        answers={200: Answer(description="All matching entries, newest first, one per line.", media_type=JSON_LINES)},
    )
    def json_lines(self, query: AuditExportQuery) -> Reply:
        """Exports changes as JSON lines."""
        return self._export(query, as_json_lines, JSON_LINES)

    def _export(
        self, query: _Filter, write: Callable[[Iterable[AuditEntry]], Iterator[bytes]], media_type: str
    ) -> Reply:
        # Read to the end first, so that an error of Redis is answered as one.
        return Reply(content=b"".join(write(self.audit.entries(query.wanted()))), media_type=media_type)
