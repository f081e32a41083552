"""The pages of bulk actions, and their buttons on the pages of tasks and dead letters."""

from __future__ import annotations

from urllib.parse import quote

from firmq.dashboard.feature import Feature
from firmq.dashboard.features.bulk.pages import blueprint
from firmq.dashboard.features.bulk.queries import BulkQueries


def _audit_link(what: str, about: str) -> str:
    return f"/bulk/{quote(about, safe='')}" if "bulk" in what else ""


FEATURE = Feature(
    name="bulk",
    blueprint=blueprint,
    open=BulkQueries,
    navigation=(("/tasks", "/bulk", "Bulk actions"),),
    pages_of_id=("bulk",),
    slots={
        "tasks.actions": "bulk/filter_menu.html",
        "tasks.deleted": "bulk/restore_selected.html",
        "dead_letters.top": "bulk/open_actions.html",
        "dead_letters.actions": "bulk/all_dead_letters.html",
        "dead_letters.end": "bulk/link.html",
        "dead_letter_group.actions": "bulk/group.html",
    },
    audit_link=_audit_link,
)
