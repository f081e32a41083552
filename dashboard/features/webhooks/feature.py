"""Lists the deliveries of a task on its page, and repeats them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flask import Blueprint, url_for

from firmq.dashboard.auth.security import needs
from firmq.dashboard.auth.users import Role
from firmq.dashboard.context import PageContext, changed, context
from firmq.dashboard.feature import Feature
from firmq.shared.domain.task import TaskDetail, TaskSummary
from firmq.shared.features.webhooks import store

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

blueprint = Blueprint("webhooks", __name__, template_folder="templates")


def _deliveries(context: PageContext) -> Callable[[TaskDetail], Sequence[TaskSummary]]:
    """Returns a function that returns the deliveries of a task, the latest first."""
    read, cache = context.stores.tasks.deliveries, context.queries.cache
    return lambda task: cache.get(("deliveries", task.summary.id), lambda: read(task)) if task.deliveries else ()


@blueprint.post("/tasks/<task_id>/redeliver")
@needs(Role.OPERATOR)
def redeliver(task_id: str) -> AnyResponse:
    store.redeliver(context.stores.queues.scripts, task_id)
    reported = context.stores.tasks.get(task_id).delivery_of or task_id
    to, message = url_for("task.task", task_id=reported), "The delivery is back in its queue."
    return changed("redelivered", task_id, to=to, message=message)


FEATURE = Feature(
    name="webhooks", blueprint=blueprint, open=_deliveries, slots={"task.sections": "webhooks/deliveries.html"}
)
