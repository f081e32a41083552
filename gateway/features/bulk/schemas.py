"""Models of bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from firmq.gateway.schemas.filters import SelectionFilter
from firmq.gateway.schemas.values import View
from firmq.shared.domain.values import Body, QueueName, TaskId, one_of
from firmq.shared.features.bulk.store import MOST_CANARIES, MOST_RATE, MOST_SELECTED, Verb
from firmq.shared.submission.answers import Task

USUAL_RATE = 100
VerbWord = Annotated[str, AfterValidator(one_of(Verb)), WithJsonSchema({"enum": [each.value for each in Verb]})]


class BulkFilter(SelectionFilter):
    """Selects tasks that match all fields. `since` and `until` bound the time of entering the status."""


class BulkPreviewBody(Body):
    """An action on many tasks: the matches of a filter, or named tasks."""

    action: VerbWord = Field(
        description="cancel: waiting tasks, and with the status `running` running ones; run_now: scheduled and "
        "retrying tasks; move: waiting tasks, to another queue; retry: dead letters; delete: ended tasks; "
        "restore: cancelled or deleted tasks."
    )
    filter: BulkFilter | None = None
    task_ids: list[TaskId] | None = Field(None, min_length=1, max_length=MOST_SELECTED)
    to: QueueName | None = Field(None, description="For move: the queue to move to; it must exist.")
    patch: dict[str, Any] | None = Field(
        None,
        description="For retry: a JSON merge patch (RFC 7396) that changes the data of each dead letter first. The "
        "action is refused if the changed data of one of the first 500 is not valid; later ones of this kind remain "
        "dead letters.",
    )


class BulkActionBody(BulkPreviewBody):
    """An action on many tasks, to be carried out in the background."""

    rate: int = Field(USUAL_RATE, ge=1, le=MOST_RATE, description="Tasks per second.")
    canary: int | None = Field(
        None,
        ge=1,
        le=MOST_CANARIES,
        description="For retry: how many to retry first; the others follow while 95 % of the retried tasks complete.",
    )
    reason: str | None = Field(None, min_length=1, max_length=500, description="For the audit record and the tasks.")


class ChangeView(View):
    """How a patch would change the data of a dead letter."""

    task_id: str
    before: Any
    after: Any
    problem: str | None = Field(description="Why the changed data is not valid for the task.")


class BulkPreview(View):
    """The effect that an action would have now."""

    count: int = Field(description="Number of tasks.")
    exact: bool = Field(description="Whether the count is exact; it is estimated when very many tasks are examined.")
    sample: list[Task] = Field(description="Some of the tasks.")
    changes: list[ChangeView] = Field(description="With a patch: the changes of some of them, the impossible first.")
    checked: int = Field(description="With a patch: number of tasks whose changed data was checked.")
    unfit: int = Field(description="Number of invalid ones among these: the action would be refused.")


class BulkActionView(View):
    """A bulk action with its progress."""

    action_id: str
    action: Verb
    what: str = Field(description="Description of the tasks.")
    to: str | None = Field(description="For move: the queue to move to.")
    status: str = Field(description="running, paused, aborted or finished.")
    rate: int = Field(description="Tasks per second.")
    canary: int | None = Field(description="How many tasks are retried first.")
    stopped_because: str | None = Field(description="Why it stopped automatically; its status is then `aborted`.")
    total: int = Field(description="Number of tasks at the beginning.")
    exact: bool = Field(description="Whether `total` is exact or an estimate.")
    done: int = Field(description="Tasks processed.")
    skipped: int = Field(description="Tasks that could not be processed any more.")
    unfit: int = Field(description="With a patch: skipped tasks whose changed data is not valid.")
    outcomes: dict[str, int] = Field(
        description="For retry: retried tasks by outcome: completed, failed_same, failed_other, cancelled, "
        "expired, removed."
    )
    waiting: int = Field(description="For retry: retried tasks that have not ended.")
    created_by: str
    created_at: datetime
    ended_at: datetime | None


class BulkActionList(View):
    """The last hundred bulk actions, newest first."""

    items: list[BulkActionView]
    unreadable: list[str] = Field(description="Ids of actions whose records are corrupt; they have stopped.")


class EmptyQueueBody(Body):
    """How to empty a queue."""

    rate: int = Field(USUAL_RATE, ge=1, le=MOST_RATE, description="Tasks per second.")
    reason: str | None = Field(None, min_length=1, max_length=500, description="For the audit record and the tasks.")
