"""Task types: failure rate and duration of each, its workers; pause and resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, request, url_for

from firmq.dashboard.auth.security import needs, person
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import changed, context, show
from firmq.dashboard.feature import features
from firmq.dashboard.filters import pause_of
from firmq.dashboard.present import pretty
from firmq.shared.domain import histogram
from firmq.shared.domain.task import TaskState, TaskSummary
from firmq.shared.stores.pauses import of_type
from firmq.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

blueprint = Blueprint("types", __name__)

LAST_FAILURES = SLOWEST = 5
LONGEST_SCHEMA = 8192
"""Characters of a schema that the page shows; the API has the whole."""
MOST = 100
"""Types that the list shows, those with most failures first."""


@blueprint.get("/types")
def types() -> str:
    now, values = context.queries.snapshot(), _statistics(None)
    counted = values["report"].types if values.get("report") else {}
    names = [*counted, *sorted((now.types.keys() | now.paused_types.keys()) - counted.keys())]
    return show("types.html", names=names[:MOST], left_out=max(0, len(names) - MOST), counted=counted, **values)


@blueprint.get("/types/<name>")
def type_page(name: str) -> str:
    found, values = context.queries.task_type(name), _statistics(name)
    published = found.published
    return show(
        "type.html",
        name=name,
        found=found,
        schema=pretty(published.schema)[:LONGEST_SCHEMA] if published else "",
        groups=[] if values else _dead_letters(name),
        sample=None if values else _sample(context.queries.recent(name)),
        last_failures=context.queries.tasks(Filter(state=TaskState.FAILED, type=name), None).items[:LAST_FAILURES],
        **{"slowest": context.queries.slowest(name, SLOWEST), **values},
    )


@blueprint.post("/types/<name>/pause")
@needs(Role.OPERATOR)
def pause(name: str) -> Response:
    _demand_known(name)
    reason, until, end = pause_of(request.form)
    try:
        context.stores.queues.pauses.pause(of_type(name), reason, person().name, until=until)
    except ValueError as error:
        abort(400, str(error))
    message = f"Type {name} is paused{end}: workers start none of its tasks; running tasks continue."
    return changed("paused type", name, f"{reason}{end}", to=url_for(".type_page", name=name), message=message)


@blueprint.post("/types/<name>/resume")
@needs(Role.OPERATOR)
def resume(name: str) -> Response:
    if name not in context.queries.snapshot().paused_types:
        _demand_known(name)
    context.stores.queues.pauses.resume(of_type(name))
    return changed("resumed type", name, to=url_for(".type_page", name=name), message=f"Type {name} is resumed.")


def _demand_known(name: str) -> None:
    if name not in context.queries.snapshot().types:
        abort(400, f"no worker has registered a task type {name[:100]}")


def _statistics(name: str | None) -> Mapping[str, Any]:
    """Returns a feature's history of all types, or of one; nothing without such a feature."""
    found = (feature.statistics(name) for feature in features() if feature.statistics)
    return next(filter(None, found), {})


def _dead_letters(name: str) -> list[Any]:
    """Returns the most frequent groups of dead letters that are of this type."""
    return [each for each in context.queries.failure_groups(0)[0] if each.type == name]


def _sample(tasks: Sequence[TaskSummary]) -> dict[str, Any]:
    """Returns how these tasks ended, and how long they waited and ran."""
    ended = [each for each in tasks if each.state in (TaskState.COMPLETED, TaskState.FAILED)]
    waits = [each.started_at - each.created_at for each in ended if each.started_at and each.created_at]
    runs = [each.ran for each in ended if each.ran is not None]
    return {
        "tasks": len(ended),
        "failed": sum(each.state is TaskState.FAILED for each in ended),
        "wait": histogram.percentiles(sum(histogram.of(each.total_seconds()) for each in waits)),
        "run": histogram.percentiles(sum(histogram.of(each.total_seconds()) for each in runs)),
    }
