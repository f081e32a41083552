"""Models of breakdowns of tasks by their content."""

from __future__ import annotations

from pydantic import Field

from firmq.gateway.schemas.filters import TaskFilter
from firmq.gateway.schemas.values import Query, View
from firmq.shared.stores.selection import Source

TOP = 100


class BreakdownQuery(Query, TaskFilter):
    """Selects the tasks that match all filters, as in GET /tasks, or a batch's tasks with a status."""

    field: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Field of the data, such as `customer.id`; null: the fields that the first tasks have.",
    )
    batch_id: str | None = Field(
        None, pattern="^[A-Za-z0-9_-]{1,128}$", description="Of other filters, only status applies then."
    )

    @property
    def source(self) -> Source:
        """Returns which tasks are meant."""
        return Source(self.wanted, self.batch_id)


class ValueView(View):
    """A value, and how many tasks have it."""

    value: str
    tasks: int


class ValuesView(View):
    """The values of one field, or the tags."""

    field: str | None = Field(description="Path of the field in the data; null for the tags.")
    distinct: int = Field(description="Number of different values.")
    often: int = Field(description="Number of these that more than three tasks have.")
    missing: int = Field(description="Tasks without a value.")
    values: list[ValueView] = Field(description="The most frequent values, at most 100.")


class BreakdownView(View):
    """How many tasks have which content."""

    tasks: int = Field(description="Number of tasks that were counted.")
    complete: bool = Field(description="Whether these are all; at most the latest 10,000 are counted.")
    large: int = Field(description="Further tasks with more than 64 kB of data, which are not counted.")
    tags: ValuesView
    fields: list[ValuesView]
