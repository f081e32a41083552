"""Endpoints for the progress of batches and for actions on all tasks of a batch."""

from __future__ import annotations

from firmq.gateway import present, schemas
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.gateway.routes.tasks import bad_cursor, note_positions
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.batches import Batches
from firmq.shared.submission import reading, refusals


class BatchRoutes:
    """Endpoints of existing batches."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    @endpoint(
        "GET",
        "/batches",
        Across.PAGES,
        tag="batches",
        query=schemas.PageQuery,
        answers={200: Answer(description="A page of batches, newest first.", model=schemas.BatchList)},
    )
    def page(self, query: schemas.PageQuery) -> Reply:
        """Lists batches with their counts, newest first."""
        try:
            found, cursor, positions = self.batches.page(query.limit, query.cursor)
        except ValueError:
            raise bad_cursor() from None
        note_positions(positions)
        return Reply(content=schemas.BatchList(items=[present.batch(each) for each in found], next_cursor=cursor))

    @endpoint(
        "GET",
        "/batches/{batch_id}",
        Across.ID,
        tag="batches",
        answers={200: Answer(description="The batch.", model=schemas.BatchView)},
        problems=(refusals.NOT_FOUND,),
    )
    def show(self, batch_id: str) -> Reply:
        """Shows the progress of a batch: its number of tasks in each state. The cost is the same for any size."""
        return Reply(content=present.batch(self.batches.get(batch_id)))

    @endpoint(
        "GET",
        "/batches/{batch_id}/tasks",
        Across.ID,
        tag="batches",
        query=schemas.BatchItemsQuery,
        answers={
            200: Answer(description="A page of its tasks, in the order of submission.", model=schemas.BatchItemList)
        },
        problems=(refusals.NOT_FOUND,),
    )
    def items(self, batch_id: str, query: schemas.BatchItemsQuery) -> Reply:
        """Lists the tasks of a batch in the order of submission. A page may be short and not the last."""
        if query.cursor is not None and not (query.cursor.isascii() and query.cursor.isdigit()):
            raise bad_cursor()
        self.batches.get(batch_id)
        after = int(query.cursor) if query.cursor else -1
        found, behind = self.batches.items(batch_id, query.limit, after, query.status)
        items = [
            schemas.BatchItemView(
                index=each.index, task_id=each.task_id, task=reading.task(each.summary) if each.summary else None
            )
            for each in found
        ]
        cursor = None if behind is None else str(behind)
        return Reply(content=schemas.BatchItemList(items=items, next_cursor=cursor))

    @endpoint(
        "DELETE",
        "/batches/{batch_id}",
        Across.ID,
        tag="batches",
        scope=Scope.OPERATE,
        act=AuditAction("cancelled batch", "{batch_id}"),
        query=schemas.CancelQuery,
        answers={202: Answer(description="The batch is stopped: no more of its tasks start.", model=schemas.BatchView)},
        problems=(refusals.NOT_FOUND, errors.BATCH_BUSY),
    )
    def cancel(self, batch_id: str, query: schemas.CancelQuery) -> Reply:
        """Cancels all tasks of a batch. No more tasks start, and running ones are requested to stop.

        Waiting tasks are cancelled in steps; `work` is null when all are done.
        """
        self.batches.cancel(batch_id, query.reason)
        return Reply(content=present.batch(self.batches.get(batch_id)), status=202)

    @endpoint(
        "POST",
        "/batches/{batch_id}/retry",
        Across.ID,
        tag="batches",
        scope=Scope.OPERATE,
        act=AuditAction("retried failures of batch", "{batch_id}"),
        answers={202: Answer(description="Its dead letters are requeued in steps.", model=schemas.BatchView)},
        problems=(refusals.NOT_FOUND, errors.BATCH_BUSY),
    )
    def retry(self, batch_id: str) -> Reply:
        """Retries all dead letters of a batch. A stopped batch continues."""
        self.batches.retry_failed(batch_id)
        return Reply(content=present.batch(self.batches.get(batch_id)), status=202)
