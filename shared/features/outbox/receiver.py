"""Takes rows of an outbox from a relay: each becomes one task, however often it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from firmq.shared.domain.task import NewTask
from firmq.shared.domain.traceparent import checked
from firmq.shared.features.outbox.receipts import Receipts
from firmq.shared.stores.queues import Submitted
from firmq.shared.submission.bodies import NewTaskBody, read_body
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import Submitter, TaskFactory, not_in_a_batch, refusal_of

MOST_ROWS = 1000
Item = dict[str, Any]
"""The outcome of one row: the id and state of its task, or its problem."""
RowId = Annotated[str, Field(pattern="^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
"""A ULID. Its random part is chosen where the row is written."""


class OutboxRowBody(NewTaskBody):
    """A row of an outbox: a task as POST /tasks takes it, with the id that it gets."""

    task_id: RowId = Field(description="Id of the task: a ULID, made when the row was written.")
    traceparent: str | None = Field(None, description="W3C traceparent of the program that wrote the row.")


class OutboxReceiver:
    """Validates rows and stores their tasks."""

    def __init__(self, factory: TaskFactory, receipts: Receipts) -> None:
        self.factory = factory
        self.receipts = receipts

    def receive(
        self, values: Sequence[Any], settled: Sequence[str], submitter: Submitter
    ) -> tuple[list[Item], Counter[tuple[str, str]]]:
        """Returns the outcome of each row, and how many tasks were stored by queue and type.

        Raises Refusal when no task types are registered yet, and StoreUnavailable; then all rows may be sent again.
        """
        since = self.factory.type_cache.clock()
        read = [self._read(value, submitter, since) for value in values]
        tasks = [each for each in read if isinstance(each, NewTask)]
        stored = iter(self.receipts.submit(tasks, settled))
        counts: Counter[tuple[str, str]] = Counter()
        items: list[Item] = []
        for at, each in enumerate(read):
            if isinstance(each, Refusal):
                items.append({"index": at, "problem": each.problem})
                continue
            outcome = next(stored)
            counts[each.queue, each.type] += outcome.stored
            items.append({"index": at, **_item(each, outcome)})
        return items, +counts

    def _read(self, value: Any, submitter: Submitter, since: float) -> NewTask | Refusal:
        try:
            body = read_body(OutboxRowBody, value, self.factory.context)
            self.factory.type_cache.check(body.type, body.data, since)
            task = self.factory.new(body, body.task_id, submitter, not_in_a_batch)
        except Refusal as refusal:
            if self.factory.type_cache.refuses_all(refusal):
                raise
            return refusal
        with self.factory.traced(task, checked(body.traceparent), "create") as traced:
            return traced


def _item(task: NewTask, stored: Submitted) -> Item:
    if refusal := refusal_of(task, stored):
        return {"problem": refusal.problem}
    return {"task_id": stored.id} | ({"status": stored.state} if stored.state else {})
