"""`firmq.webhook`: delivers the end of a task to an external URL.

The step that ends a task creates these tasks (`_webhooks.lua`); clients cannot submit one. Message and signature follow
the Standard Webhooks convention: the receiver computes HMAC-SHA256 over `id.timestamp.body` with the shared secret,
and compares. An attempt answered with anything but 2xx is retried; 410 ends the delivery, and so does an address that
must not be called.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from functools import cache
from ipaddress import ip_address
from typing import Any

from pydantic import BaseModel

from firmq.shared.config.settings import load
from firmq.shared.domain.egress_policy import EgressPolicy, NotAllowed, is_public
from firmq.shared.domain.payload import PayloadReference, decode_result
from firmq.shared.domain.task import WEBHOOK_TYPE
from firmq.shared.features.webhooks.settings import WebhookSettings
from firmq.worker.handlers.pinned_http import Answer, CallFailed, Connection, in_thread
from firmq.worker.handlers.registry import task
from firmq.worker.handlers.signals import GiveUp, RetryLater

_GONE = 410
_TELL_WHEN = (429, 503)
_LONGEST_PAUSE = 3600
WITHIN = 10.0
"""Seconds from resolving the name to the end of the answer."""


class DeliveryFailed(Exception):
    """The receiver could not be reached, or did not answer with a status from 200 to 299."""


class Notification(BaseModel):
    """The data that `_webhooks.lua` stored when the task ended."""

    url: str
    event: str
    message: str
    task_id: str
    task_type: str
    attempts: int
    ended_at: str
    result_base64: str | None = None
    result_left_out: bool = False
    error: dict[str, Any] | None = None
    reason: str | None = None


@task(WEBHOOK_TYPE, timeout=30, max_retries=8, initial_delay=5, multiplier=3, max_delay=3600, jitter=0.1)
async def webhook(data: Notification) -> dict[str, Any]:
    """Reports the end of a task to its receiver. Created by Firmq itself, see `webhook` of POST /tasks."""
    egress_policy, secrets = _settings()
    connection = Connection(egress_policy)
    try:
        return await in_thread(connection, lambda: deliver(data, connection, secrets), WITHIN)
    except CallFailed as error:
        raise DeliveryFailed(f"{data.url} {error}") from None


@cache
def _settings() -> tuple[EgressPolicy, tuple[bytes, ...]]:
    settings = load()
    return settings.egress_policy(), WebhookSettings.of(settings).signing_keys()


def deliver(notification: Notification, connection: Connection, secrets: Sequence[bytes]) -> dict[str, Any]:
    """Makes one attempt. Raises DeliveryFailed, RetryLater, or GiveUp where another try cannot help."""
    if not secrets:
        raise DeliveryFailed("this worker has no WEBHOOK_SECRETS: copy them from the gateway")
    body = content(notification)
    signed = headers(notification.message, int(time.time()), body, secrets)
    began = time.monotonic()
    try:
        answer = connection.send(notification.url, "POST", body, signed)
    except NotAllowed as error:
        raise GiveUp(f"{notification.url} must not be called: {error}") from error
    except CallFailed as error:
        raise DeliveryFailed(f"{notification.url} {error}") from error
    _judge(notification.url, answer, is_public(ip_address(connection.address)))
    return {"status": answer.status, "address": connection.address, "seconds": round(time.monotonic() - began, 3)}


def content(notification: Notification) -> bytes:
    """Returns the body, the same in every attempt."""
    result = decode_result(notification.result_base64.encode()) if notification.result_base64 else None
    said: dict[str, Any] = {
        "event": f"task.{notification.event}",
        "task_id": notification.task_id,
        "type": notification.task_type,
        "status": notification.event,
        "attempts": notification.attempts,
        "ended_at": notification.ended_at,
        "result": json.loads(result) if isinstance(result, bytes) else None,
        "result_left_out": notification.result_left_out or isinstance(result, PayloadReference),
        "error": notification.error,
        "reason": notification.reason,
    }
    return json.dumps(said, separators=(",", ":")).encode()


def headers(message: str, timestamp: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """Returns the headers of a message: one signature for each secret, so that receivers can rotate theirs."""
    signed = f"{message}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.new(each, signed, hashlib.sha256).digest()).decode() for each in secrets)
    return {
        "Content-Type": "application/json",
        "User-Agent": "firmq-webhook",
        "Webhook-Id": message,
        "Webhook-Timestamp": str(timestamp),
        "Webhook-Signature": " ".join(f"v1,{each}" for each in signatures),
    }


def _judge(url: str, answer: Answer, public: bool) -> None:
    if 200 <= answer.status < 300:
        return
    # The sender of a task must not read an internal host's response.
    shown = answer.body[:200].decode("utf-8", "replace") if public else ""
    said = f"{url} answered {answer.status}" + (f": {shown!r}" if shown else "")
    if answer.status == _GONE:
        raise GiveUp(said)
    if 300 <= answer.status < 400:
        raise DeliveryFailed(f"{said}; a redirect is not followed")
    if answer.status in _TELL_WHEN and (pause := answer.pause(_LONGEST_PAUSE)):
        raise RetryLater(pause, said)
    raise DeliveryFailed(said)
