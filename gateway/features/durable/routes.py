"""The endpoint that sends signals."""

from __future__ import annotations

from firmq.gateway.auth.authenticator import actor, has_scope
from firmq.gateway.features.durable.schemas import SignalBody
from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import Answer, AuditAction, Reply, endpoint
from firmq.shared.features.durable.signals import Signals, check_signal
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.tasks import Records
from firmq.shared.submission import answers, refusals


class SignalRoutes:
    """Sends signals to tasks."""

    def __init__(self, signals: Signals, records: Records) -> None:
        self.signals = signals
        self.records = records

    @endpoint(
        "POST",
        "/tasks/{task_id}/signals/{name}",
        Across.ID,
        tag="tasks",
        scope=Scope.OPERATE,
        act=AuditAction("signalled", "{task_id}"),
        body=SignalBody,
        answers={200: Answer(description="The signal is stored.", model=answers.Status)},
        problems=(refusals.NOT_FOUND, refusals.CONFLICT),
    )
    def signal(self, task_id: str, name: str, body: SignalBody) -> Reply:
        """Sends a task a signal, for which its handler waits now or later (`wait_for`).

        A task accepts one signal of each name: the same data may be sent again, other data is a conflict unless it
        replaces the first. While a handler waits for a signal of a type, data that does not fit is refused.
        """
        replaces = "" if not body.replace else "admin" if has_scope(Scope.ADMIN) else "operate"
        try:
            replaced = self.signals.send(task_id, name, body.data, actor(), replaces, check_signal)
        except ValueError as error:
            raise refusals.invalid([errors.parameter_error("name", str(error))]) from None
        content = {"task_id": task_id, "status": self.records.state(task_id)}
        return Reply(content=content, noted=f"{name}, replaced" if replaced else name)
