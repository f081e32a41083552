"""Models of the endpoint for relays of outboxes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from firmq.gateway.schemas.batches import BatchItem
from firmq.gateway.schemas.values import View
from firmq.shared.domain.values import Body
from firmq.shared.features.outbox.receiver import MOST_ROWS, RowId


class OutboxBody(Body):
    """Rows of an outbox. Each is checked alone, so an invalid row does not affect the others.

    A relay sends an empty list every ten seconds, so that `GET /health` can report that it is running."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"rows": [{"task_id": "01M82JGNYEJVCZ811RC767H676", "type": "process", "data": "one"}], "settled": []}
            ]
        }
    )

    rows: Annotated[list[Any], Field(max_length=MOST_ROWS)] = Field(
        description="Tasks as POST /tasks takes them, each with a `task_id` (a ULID) and optionally a `traceparent`."
    )
    settled: Annotated[list[RowId], Field(max_length=MOST_ROWS)] = Field(
        [], description="Ids of tasks whose rows will not be sent again: receipts are kept for IDEMPOTENCY_TTL only."
    )


class OutboxAccepted(View):
    """The outcome of each row: the id and state of its task (no state: its record has been removed), or a problem."""

    items: list[BatchItem]
