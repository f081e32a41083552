"""The page of breakdowns, the links to it, and suggestions while a search is typed."""

from __future__ import annotations

from collections.abc import Callable

from firmq.dashboard.context import PageContext
from firmq.dashboard.feature import Feature
from firmq.dashboard.features.search.pages import blueprint
from firmq.shared.features.search.breakdown import Breakdown, Breakdowns
from firmq.shared.stores.selection import Source


def _breakdowns(context: PageContext) -> Callable[..., Breakdown]:
    """Returns a function that breaks tasks down; what it returns is cached as for pages."""
    breakdowns, cache = Breakdowns(context.stores.tasks, context.stores.batches), context.queries.cache

    def read(source: Source, named: str | None, most: int | None = None) -> Breakdown:
        key = ("breakdown", source, named, most)
        return cache.get(key, lambda: breakdowns.read(source, named, most), size=lambda found: found.size)

    return read


FEATURE = Feature(
    name="search",
    blueprint=blueprint,
    open=_breakdowns,
    slots={
        "tasks.actions": "search/tasks.html",
        "batch.links": "search/batch.html",
        "dead_letter_group.links": "search/group.html",
    },
)
