"""Models of batches: submission, response and display."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.functional_validators import model_validator

from firmq.gateway.schemas.filters import SelectionFilter, StatusWord
from firmq.gateway.schemas.values import NextCursor, PageQuery, SparseView, View
from firmq.shared.domain.task import Conflict, TaskState
from firmq.shared.domain.values import Body
from firmq.shared.stores.selection import Source
from firmq.shared.submission.answers import Task
from firmq.shared.submission.bodies import NewTaskBody


class BatchItemBody(NewTaskBody):
    """A task of a batch."""

    item: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="Name of the task within the batch, for dependencies and for recognizing it when resent."
    )


class FollowUpBody(NewTaskBody):
    """The task that follows a batch; its handler receives the counts of the batch."""

    @model_validator(mode="after")
    def _depends_on_the_batch(self) -> FollowUpBody:
        if self.depends_on is not None:
            raise ValueError("always depends on its batch: leave depends_on out")
        if self.on_conflict is Conflict.EXISTING:
            raise ValueError("has to be a task of its own: use on_conflict refuse or replace")
        return self


class BatchTermsBody(Body):
    """Options of a batch as a whole."""

    name: Annotated[str, Field(max_length=200)] | None = Field(None, description="Display name.")
    max_running: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="How many of its tasks may be pending or running at once; the others are blocked."
    )
    stop_on_error: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Number of dead letters after which the other tasks are cancelled."
    )
    then: FollowUpBody | None = Field(None, description="A task that runs when all others have ended, in any state.")


class BatchBody(BatchTermsBody):
    """Many tasks at once. Each is checked alone, so an invalid task does not affect the others."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"tasks": [{"type": "process", "data": "one"}, {"type": "process", "data": "two"}]}]
        }
    )

    tasks: Annotated[list[Any], Field(min_length=1, max_length=10_000)] = Field(
        description="Tasks as POST /tasks takes them. `item` names a task; `depends_on` can refer to other tasks of "
        "the batch by index or name."
    )


class EarlierTasks(SelectionFilter):
    """Earlier tasks on record in Redis, each of which gives a new one: those that match all fields."""

    status: StatusWord | None = Field(None, description="Null: every status.")
    limit: int | None = Field(
        None, ge=1, description="Maximum number of tasks: the latest of a filter, the first of a batch."
    )
    deleted: Literal[False] = Field(False, description="Deleted tasks cannot be selected.")
    batch_id: str | None = Field(
        None, pattern="^[A-Za-z0-9_-]{1,128}$", description="Of the other fields, only status and limit apply then."
    )

    @property
    def source(self) -> Source:
        """Returns the selection. Raises Refusal for fields of the data that the caller may not see."""
        return Source(self.wanted, self.batch_id)


class NewBatchBody(BatchTermsBody):
    """A batch, with its first tasks or without; or one with a task for each of many earlier ones."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "import", "tasks": [{"type": "process", "data": "one"}]}]}
    )

    tasks: Annotated[list[Any], Field(max_length=10_000)] = Field([], description="The first tasks, as in BatchBody.")
    earlier: EarlierTasks | None = Field(
        None, alias="from", description="The earlier tasks, at most 10,000; the batch is closed when it is stored."
    )
    task: dict[str, Any] | None = Field(
        None,
        description='With `from`: the task for each of them, as POST /tasks takes it. `{"$from": "result.url"}` is '
        "replaced by a value of the earlier task: `id`, `data`, `result`, or a field of these.",
    )

    @model_validator(mode="after")
    def _has_tasks_or_earlier_ones(self) -> NewBatchBody:
        if (self.earlier is None) != (self.task is None):
            raise ValueError("from and task belong together: give both, or neither")
        if self.earlier is not None and self.tasks:
            raise ValueError("has tasks as well as from: give one of them")
        return self


class MoreTasksBody(Body):
    """Further tasks of a batch. Each is checked alone, so an invalid task does not affect the others."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": [{"type": "process", "data": "three"}]}]})

    tasks: Annotated[list[Any], Field(min_length=1, max_length=10_000)] = Field(
        description="Tasks as in BatchBody. `depends_on` can also refer to tasks of earlier requests by name, or by "
        "index if they have no name."
    )
    start: int | None = Field(
        None,
        ge=0,
        le=10**9,
        description="Index in the batch of the first of these tasks; by default they follow all others. A request with "
        "`start` can be resent without an Idempotency-Key: a task is stored once at its index.",
    )


class BatchItem(SparseView):
    """The outcome of one task of a batch, by its index in the batch: its id and state, or a problem.

    A problem together with an id means that Redis did not answer: the task may be stored. GET /tasks/{id} shows it.
    """

    index: int
    task_id: str | None = None
    status: TaskState | None = None
    warnings: list[str] | None = None
    problem: dict[str, Any] | None = None


class BatchAccepted(View):
    """The outcome of submitting a batch."""

    batch_id: str | None
    accepted: int
    refused: int
    items: list[BatchItem]


class BatchView(View):
    """A batch with its progress and counts."""

    batch_id: str
    name: str
    status: Literal["receiving", "running", "ended"]
    progress: float = Field(description="Share of its tasks that have ended, 0 to 1.")
    total: int
    ended: int
    counts: dict[TaskState, int]
    removed: int = Field(
        description="Tasks whose records are removed; they still count in the state in which they ended."
    )
    max_running: int | None
    stop_on_error: int | None
    then: str | None = Field(description="Id of the task that follows the batch.")
    created_at: datetime
    ended_at: datetime | None
    stopped: str | None = Field(description="Reason why the batch was stopped; null if it was not.")
    stopped_at: datetime | None
    work: str | None = Field(description="Operation in progress on all its tasks: cancel, stop or retry.")


class BatchList(View):
    """Batches, newest first."""

    items: list[BatchView]
    next_cursor: NextCursor = None


class BatchItemView(View):
    """A task of a batch with its index; `task` is null when its record is removed."""

    index: int
    task_id: str
    task: Task | None


class BatchItemList(View):
    """Tasks of a batch, in the order in which they were sent."""

    items: list[BatchItemView]
    next_cursor: NextCursor = None


class BatchItemsQuery(PageQuery):
    """Filters for the tasks of a batch."""

    status: TaskState | None = None
