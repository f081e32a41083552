"""The endpoint that repeats deliveries."""

from __future__ import annotations

from firmq.gateway.feature import Feature
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.shared.domain.task import TaskState
from firmq.shared.features.webhooks.store import redeliver
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.api_keys import Scope
from firmq.shared.submission import answers, refusals


class WebhookRoutes:
    """Repeats deliveries."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    @endpoint(
        "POST",
        "/tasks/{task_id}/redeliver",
        Across.ID,
        tag="tasks",
        scope=Scope.OPERATE,
        act=AuditAction("redelivered", "{task_id}"),
        answers={202: Answer(description="The delivery is pending again.", model=answers.Status)},
        problems=(refusals.NOT_FOUND, refusals.CONFLICT),
    )
    def redeliver(self, task_id: str) -> Reply:
        """Repeats a webhook delivery, by its own id, with the same content and the same Webhook-Id."""
        on_its_way = redeliver(self.scripts, task_id)
        answer = {"task_id": on_its_way, "status": TaskState.PENDING}
        return Reply(content=answer, status=202, headers={"Location": f"/tasks/{on_its_way}"})


FEATURE = Feature(routes=lambda services: [WebhookRoutes(services.scripts)])
