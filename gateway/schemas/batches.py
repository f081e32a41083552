"""Batches: as they are submitted, answered and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.functional_validators import model_validator

from gateway.schemas.submission import NewTaskBody
from gateway.schemas.tasks import TaskView
from gateway.schemas.values import Body, NextCursor, PageQuery, Query, SparseView, View
from shared.domain.task import TaskState


class BatchItemBody(NewTaskBody):
    """A task of a batch."""

    item: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="A name within the batch, for other tasks to depend on, and to know it by when sent again."
    )


class FollowUpBody(NewTaskBody):
    """The task that follows a batch; its handler has the counts of the batch."""

    @model_validator(mode="after")
    def _depends_on_the_batch(self) -> FollowUpBody:
        if self.depends_on is not None:
            raise ValueError("depends on the batch: leave depends_on out")
        return self


class BatchTermsBody(Body):
    """What holds for a batch as a whole."""

    name: Annotated[str, Field(max_length=200)] | None = Field(None, description="What people know it by.")
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="How many of its tasks may wait for a worker or run at once; the others are blocked."
    )
    stop_on_error: Annotated[int, Field(ge=1)] | None = Field(
        None, description="When so many of its tasks have failed for good, the others are cancelled."
    )
    then: FollowUpBody | None = Field(None, description="A task that runs when all have ended, however they ended.")


class BatchBody(BatchTermsBody):
    """Many tasks at once; each is checked by itself, so one that is wrong does not sink the rest."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tasks": [{"type": "process", "data": "one"}, {"type": "process", "data": "two"}]}]
        }
    )

    tasks: Annotated[list[Any], Field(min_length=1, max_length=10_000)] = Field(
        description="Tasks as POST /tasks takes them; `item` may name one, and `depends_on` may say which others of "
        "the batch must end first, by their place or their name."
    )


class BatchLineBody(Body):
    """The first line of a stream may say what holds for the whole batch; every other line is a task."""

    batch: BatchTermsBody


class BatchItem(SparseView):
    """What became of one task of a batch, in the place in which it was sent: its id and state, or a problem.

    A problem beside an id means that Redis did not answer: the task may be stored, and GET /tasks/{id} tells.
    """

    task_id: str | None = None
    status: TaskState | None = None
    warnings: list[str] | None = None
    problem: dict[str, Any] | None = None


class BatchAccepted(View):
    """What became of a batch."""

    batch_id: str | None
    accepted: int
    refused: int
    items: list[BatchItem]


class BatchLine(SparseView):
    """A line of the answer to a stream: what became of one line of the request, by its place among the tasks.

    The first line has only the `batch_id`; the last has `complete`, and how many were accepted and refused. Without it
    the answer was cut off: send the rest again.
    """

    batch_id: str | None = None
    index: int | None = None
    task_id: str | None = None
    status: TaskState | None = None
    warnings: list[str] | None = None
    problem: dict[str, Any] | None = None
    complete: bool | None = None
    accepted: int | None = None
    refused: int | None = None


class BatchView(View):
    """A batch at a glance."""

    batch_id: str
    name: str
    status: Literal["receiving", "running", "ended"]
    progress: float = Field(description="The share of its tasks that has ended.")
    total: int
    ended: int
    counts: dict[TaskState, int]
    removed: int = Field(description="Tasks whose records are gone; they count where they ended.")
    max_running: int | None
    stop_on_error: int | None
    then: str | None = Field(description="The task that follows.")
    created_at: datetime
    ended_at: datetime | None
    stopped: str | None = Field(description="Why none of its tasks starts any more.")
    stopped_at: datetime | None
    work: str | None = Field(description="What goes on with all of them: cancel, stop or retry.")


class BatchList(View):
    """Batches, newest first."""

    items: list[BatchView]
    next_cursor: NextCursor = None


class BatchItemView(View):
    """A task in its place in a batch; `task` is null when its record is gone."""

    index: int
    task_id: str
    task: TaskView | None


class BatchItemList(View):
    """Tasks of a batch in the order in which they were sent."""

    items: list[BatchItemView]
    next_cursor: NextCursor = None


class BatchItemsQuery(PageQuery):
    """Which tasks of a batch."""

    status: TaskState | None = None


class BatchQuery(Query):
    """Where a stream goes on."""

    start: int = Field(0, ge=0, le=10**9, description="For a stream of the rest: the place of its first task.")
