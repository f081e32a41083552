"""Sends rows to Firmq: through a gateway, or to Redis directly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from firmq.outbox.rows import Row
from firmq.shared.client import Client, ClientError

Item = Mapping[str, Any]
"""The outcome of a row: the id of its task, or its problem."""


class Sender(Protocol):
    """Sends rows. A row that is sent again does nothing, unless it was settled long before."""

    def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
        """Returns the outcome of each row. `settled` are ids of sent rows, which are never sent again.

        Raises Problem or another error when no outcome is known; then all of them may be sent again.
        """

    def close(self) -> None: ...


class GatewaySender:
    """Sends rows to a gateway. Retries are the relay's."""

    def __init__(self, url: str | None = None) -> None:
        self.client = Client(url, patience=0)

    def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
        body = {"rows": list(map(_body, rows)), "settled": settled}
        items: list[Item] = self.client.transport.ask("POST", "/tasks/outbox", body=body).document["items"]
        return items

    def close(self) -> None:
        self.client.close()


class DirectSender:
    """Sends rows to Redis, as a gateway on it would: with the same limits, and the same refusals."""

    def __init__(self, url: str) -> None:
        from firmq.shared.features.outbox.receipts import Receipts
        from firmq.shared.features.outbox.receiver import OutboxReceiver
        from firmq.shared.submission.direct import Submission
        from firmq.shared.submission.queue import settings_for

        settings = settings_for(url, {})
        self.submission = Submission(settings)
        keep = timedelta(seconds=settings.idempotency_ttl)
        receipts = Receipts(self.submission.scripts, keep, self.submission.queues.bounds)
        self.receiver = OutboxReceiver(self.submission.factory, receipts)

    def send(self, rows: Sequence[Row], settled: Sequence[str]) -> list[Item]:
        from firmq.shared.submission.retries import problem_for
        from firmq.shared.submission.task_factory import Submitter

        try:
            values = self.submission.read({"rows": list(map(_body, rows))})["rows"]
            items, _ = self.receiver.receive(values, settled, Submitter())
        except Exception as error:
            if problem := problem_for(error):
                raise problem from error
            raise
        return [*items]

    def close(self) -> None:
        self.submission.close()


def sender_for(url: str) -> Sender:
    """Returns a sender for the address of a gateway or of Redis; "" is the default address of a gateway.

    Raises ClientError for another address, and ValueError for an invalid one.
    """
    scheme = url.split("://", maxsplit=1)[0].lower() if url else "http"
    if scheme in ("http", "https"):
        return GatewaySender(url or None)
    if scheme in ("redis", "rediss", "unix", "redis+sentinel"):
        return DirectSender(url)
    raise ClientError("FIRMQ_URL must be the address of a gateway (http://…) or of Redis (redis://…)")


def _body(row: Row) -> dict[str, Any]:
    traced = {"traceparent": row.traceparent} if row.traceparent else {}
    return {**json.loads(row.task), "task_id": row.task_id, **traced}
