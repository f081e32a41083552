"""The endpoint for relays of outboxes."""

from __future__ import annotations

from firmq.gateway.auth.authenticator import submitter
from firmq.gateway.features.outbox import schemas
from firmq.gateway.http.endpoints import Answer, Reply, endpoint
from firmq.gateway.metrics import Metrics
from firmq.shared.failpoints import failpoint
from firmq.shared.features.outbox.receiver import OutboxReceiver
from firmq.shared.stores.api_keys import Scope
from firmq.shared.submission import refusals


class OutboxRoutes:
    """Submission of rows of an outbox."""

    def __init__(self, receiver: OutboxReceiver, metrics: Metrics) -> None:
        self.receiver = receiver
        self.metrics = metrics

    @endpoint(
        "POST",
        "/tasks/outbox",
        "firmq.gateway.features.outbox.several_stores:send",
        tag="tasks",
        scope=Scope.SUBMIT,
        body=schemas.OutboxBody,
        answers={
            202: Answer(description="Every row is a task now.", model=schemas.OutboxAccepted),
            207: Answer(description="Some rows are refused; each has its problem.", model=schemas.OutboxAccepted),
        },
        problems=(refusals.NO_TYPES, refusals.PAYLOAD_STORE),
    )
    def submit(self, body: schemas.OutboxBody) -> Reply:
        """Submits rows of a transactional outbox. A row becomes one task, however often and whenever it is sent."""
        items, counts = self.receiver.receive(body.rows, body.settled, submitter())
        failpoint("gateway.stored")
        for (queue, task_type), number in counts.items():
            self.metrics.submitted(queue, task_type, number)
        return Reply(content={"items": items}, status=207 if any("problem" in each for each in items) else 202)
