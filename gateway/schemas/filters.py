"""The filter of tasks that lists, counts and bulk actions share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, WithJsonSchema, field_validator

from firmq.gateway.auth.visible import demand_visible
from firmq.shared.domain.search import LONGEST, parse_data
from firmq.shared.domain.step import SIGNAL_NAME
from firmq.shared.domain.task import TaskState
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from firmq.shared.domain.values import AnyQueueName, Body, Instant, one_of
from firmq.shared.stores.tasks import Filter, filter_of

_AGE = 100 * 365 * 86_400
StatusWord = Annotated[
    str, AfterValidator(one_of(TaskState)), WithJsonSchema({"enum": [each.value for each in TaskState]})
]


class TaskFilter(BaseModel):
    """Selects tasks that match all fields."""

    id: str | None = Field(None, pattern="^[A-Za-z0-9_-]{1,128}$", description="The beginning or the end of the id.")
    status: TaskState | None = None
    type: str | None = Field(None, max_length=100)
    queue: AnyQueueName | None = None
    tag: str | None = Field(None, max_length=64)
    submitted_by: str | None = Field(None, max_length=100)
    error: str | None = Field(
        None, min_length=1, max_length=200, description="A part of `type: message`; case does not matter."
    )
    cause: str | None = Field(None, pattern="^[0-9a-z]{1,64}$", description="Key of a group of dead letters.")
    worker: str | None = Field(None, min_length=1, max_length=200, description="Worker of the last attempt.")
    app_version: str | None = Field(
        None, min_length=1, max_length=64, description="APP_VERSION of the worker of the last attempt."
    )
    signal: str | None = Field(
        None, pattern=rf"^(\*|{SIGNAL_NAME.pattern})$", description="Tasks that wait for this signal, or for any (*)."
    )
    older_than: float | None = Field(None, gt=0, le=_AGE, description="Minimum age in seconds, since the creation.")
    newer_than: float | None = Field(None, gt=0, le=_AGE, description="Maximum age in seconds, since the creation.")
    min_score: float | None = Field(None, ge=0, le=HIGHEST_SCORE, description="Lowest score.")
    max_score: float | None = Field(None, ge=0, le=HIGHEST_SCORE, description="Highest score.")
    data: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST,
        description="Fields of the data with values, such as `customer.id:42`: at most four, separated by spaces.",
    )
    since: Instant | None = None
    until: Instant | None = None
    deleted: bool = Field(False, description="Deleted tasks that can be restored, by the time of their deletion.")
    search: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST,
        description="Words as in the search of the dashboard, such as `type:charge-card age>1h`.",
    )

    @field_validator("data")
    @classmethod
    def _is_data(cls, value: str | None) -> str | None:
        parse_data(value or "")
        return value

    @field_validator("search")
    @classmethod
    def _is_search(cls, value: str | None, info: ValidationInfo) -> str | None:
        filter_of(_given(info.data), value or "")
        return value

    @property
    def wanted(self) -> Filter:
        """Returns the filter. Raises Refusal for fields of the data that the caller may not see."""
        found = filter_of(_given(self.__dict__), self.search or "")
        for each in found.data:
            demand_visible(each.path)
        return found


class SelectionFilter(Body, TaskFilter):
    """Selects tasks that match all fields. `since` and `until` bound the time of entering the status."""

    status: StatusWord | None = Field(None, description="Null: every status to which the action applies.")  # type: ignore[assignment]
    type: str | None = Field(None, min_length=1, max_length=100)
    tag: str | None = Field(None, min_length=1, max_length=64)
    submitted_by: str | None = Field(None, min_length=1, max_length=100)
    deleted: bool = Field(False, description="For restore: deleted tasks in place of cancelled ones.")
    limit: int | None = Field(None, ge=1, le=10**9, description="Maximum number of tasks; the oldest are taken.")
    partition: int | None = Field(
        None, ge=0, description="Needed with several partitions: the number of the one that has the tasks."
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a filter that have a value, but for the search."""
    found: dict[str, Any] = {
        name: values.get(name) for name in TaskFilter.model_fields if name not in ("status", "search", "data")
    }
    found["state"] = TaskState(values["status"]) if values.get("status") else None
    for name in ("older_than", "newer_than"):
        found[name] = timedelta(seconds=values.get(name) or 0)
    found["data"] = parse_data(values.get("data") or "")
    return {name: value for name, value in found.items() if value or isinstance(value, float)}
