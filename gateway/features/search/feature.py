"""Endpoints that count tasks by the content of their data."""

from __future__ import annotations

from firmq.gateway.auth.visible import demand_visible, is_visible
from firmq.gateway.feature import Feature, Services
from firmq.gateway.features.search.schemas import TOP, BreakdownQuery, BreakdownView, ValuesView, ValueView
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.shared.domain.csv_lines import MEDIA_TYPE
from firmq.shared.features.search.breakdown import Breakdown, Breakdowns, Values, as_csv
from firmq.shared.stores.batches import Batches
from firmq.shared.submission import refusals


class BreakdownRoutes:
    """Who is hit: tasks by fields of their data and by tag."""

    def __init__(self, breakdowns: Breakdowns) -> None:
        self.breakdowns = breakdowns

    @endpoint(
        "GET",
        "/breakdown",
        Across.BREAKDOWN,
        tag="tasks",
        query=BreakdownQuery,
        answers={200: Answer(description="The counts.", model=BreakdownView)},
        problems=(refusals.NOT_FOUND, errors.ASKED_TOO_OFTEN),
    )
    def show(self, query: BreakdownQuery) -> Reply:
        """Counts tasks by the fields of their data and by tag: which customers a failure hits, for example."""
        found = self._read(query)
        content = BreakdownView(
            tasks=found.tasks,
            complete=found.complete,
            large=found.large,
            tags=_view(None, found.tags),
            fields=[_view(name, values) for name, values in found.fields.items() if is_visible(name)],
        )
        return Reply(content=content)

    @endpoint(
        "GET",
        "/breakdown.csv",
        Across.TEXTS,
        tag="tasks",
        query=BreakdownQuery,
        answers={200: Answer(description="All values, the most frequent first.", media_type=MEDIA_TYPE)},
        problems=(refusals.NOT_FOUND, errors.ASKED_TOO_OFTEN),
    )
    def csv(self, query: BreakdownQuery) -> Reply:
        """Exports the counts of `field`, or of the tags, as CSV."""
        content = as_csv(self._read(query), query.field)
        return Reply(content=content, media_type=MEDIA_TYPE)

    def _read(self, query: BreakdownQuery) -> Breakdown:
        """Raises Refusal (403) for a field that the caller may not see."""
        if query.field:
            demand_visible(query.field)
        return self.breakdowns.read(query.source, query.field)


def _view(field: str | None, values: Values) -> ValuesView:
    return ValuesView(
        field=field,
        distinct=len(values.counts),
        often=values.often,
        missing=values.missing,
        values=[ValueView(value=value, tasks=count) for value, count in values.top(TOP)],
    )


def _routes(services: Services) -> list[object]:
    in_redis = services.dead_letters.records  # without the history, whose tasks have no data here
    return [BreakdownRoutes(Breakdowns(in_redis, Batches(services.scripts)))]


FEATURE = Feature(routes=_routes)
