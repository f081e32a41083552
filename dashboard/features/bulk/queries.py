"""The data and changes of the pages of bulk actions."""

from __future__ import annotations

from collections.abc import Sequence

from firmq.dashboard.context import PageContext
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.task import TaskSummary
from firmq.shared.features.bulk.amending import Amendments, Change
from firmq.shared.features.bulk.store import BulkAction, BulkActions, Count, Plan, Verb, takes
from firmq.shared.stores.tasks import Filter

_QUICK = 0.5


class BulkQueries:
    """The read side of these pages, with the store that they change. Every method raises StoreUnavailable."""

    def __init__(self, context: PageContext) -> None:
        stores, settings = context.stores, context.settings
        self.store = BulkActions(stores.dead_letters.scripts, stores.dead_letters, settings.max_queue_length)
        self.amendments = Amendments(self.store, stores.type_cache, Redaction(settings.dashboard_redact))
        self.cache = context.queries.cache

    def all(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest bulk actions, and the ids of corrupt ones."""
        return self.cache.get("bulk actions", self.store.all)

    def open(self) -> list[BulkAction]:
        """Returns the bulk actions that have not ended."""
        return [each for each in self.all()[0] if each.open]

    def get(self, action_id: str) -> BulkAction | None:
        """Returns a bulk action, at most half a second old, as its page shows progress; None if there is none."""
        return self.cache.get(("bulk action", action_id), lambda: self.store.get(action_id), _QUICK)

    def selected(self, plan: Plan, most: int) -> tuple[Count, Sequence[TaskSummary]]:
        """Returns how many tasks a bulk action would take now, and some of them."""
        if plan.selection.ids:
            found = self.store.sample(plan, len(plan.selection.ids))
            return Count(len(found), exact=True), found[:most]
        return self.store.count(plan), self.store.sample(plan, most)

    def changes(self, plan: Plan) -> list[Change]:
        """Returns how a bulk action would change the data of the first of its tasks."""
        return self.amendments.preview(plan)

    def verbs(self, wanted: Filter) -> list[Verb]:
        """Returns the bulk actions that can take tasks of a filter."""
        return [verb for verb in Verb if (verb is Verb.RESTORE or not wanted.deleted) and takes(verb, wanted.state)]
