"""`taskqueue.webhook`: delivers the end of a task to an external URL.

The step that ends a task creates these tasks (`_webhooks.lua`); clients cannot submit one. Message and signature follow
the Standard Webhooks convention: the receiver computes HMAC-SHA256 over `id.timestamp.body` with the shared secret,
and compares. An attempt answered with anything but 2xx is retried; 410 ends the delivery, and so does an address that
must not be called.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from taskqueue.shared.config.settings import load
from taskqueue.shared.domain.egress_policy import EgressPolicy, NotAllowed
from taskqueue.shared.domain.task import WEBHOOK_TYPE
from taskqueue.worker.handlers.pinned_http import WITHIN, Answer, Resolve, addresses_of, in_time, post, resolve
from taskqueue.worker.handlers.registry import task
from taskqueue.worker.handlers.signals import GiveUp, RetryLater

_GONE = 410
_TELL_WHEN = (429, 503)
_SECONDS = re.compile(r"[0-9]{1,9}")
_SHORTEST_PAUSE = 1
_LONGEST_PAUSE = 3600


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


@task(WEBHOOK_TYPE, threads=True, timeout=30, max_retries=8, initial_delay=5, multiplier=3, max_delay=3600, jitter=0.1)
def webhook(data: Notification) -> dict[str, Any]:
    """Reports the end of a task to its receiver. Created by Task Queue itself, see `webhook` of POST /tasks."""
    return deliver(data, *_settings())


@cache
def _settings() -> tuple[EgressPolicy, tuple[bytes, ...]]:
    settings = load()
    return settings.egress_policy(), settings.webhook_keys()


def deliver(
    notification: Notification,
    egress_policy: EgressPolicy,
    secrets: Sequence[bytes],
    ask: Resolve = resolve,
    within: float = WITHIN,
) -> dict[str, Any]:
    """Makes one attempt. Raises DeliveryFailed, RetryLater, or GiveUp where another try cannot help."""
    if not secrets:
        raise DeliveryFailed("this worker has no WEBHOOK_SECRETS: give it those of the gateway")
    body, end = content(notification), time.monotonic() + within
    try:
        target = egress_policy.read(notification.url)
        addresses = addresses_of(target, egress_policy, in_time(ask, end))
        signed = headers(notification.message, int(time.time()), body, secrets)
        answer = post(target, addresses, body, signed, within=end - time.monotonic())
    except NotAllowed as error:
        raise GiveUp(f"{notification.url} must not be called: {error}") from error
    except http.client.HTTPException as error:
        # The text of the error comes from the host, and the sender of a task must not read an internal host. The
        # traceback would show it, too.
        raise DeliveryFailed(
            f"{notification.url} did not answer as a web server does ({type(error).__name__})"
        ) from None
    except OSError as error:
        raise DeliveryFailed(f"{notification.url} did not answer: {type(error).__name__}: {error}") from error
    _judge(notification.url, answer)
    return {"status": answer.status, "address": answer.address, "seconds": answer.seconds}


def content(notification: Notification) -> bytes:
    """Returns the body, the same in every attempt."""
    said: dict[str, Any] = {
        "event": f"task.{notification.event}",
        "task_id": notification.task_id,
        "type": notification.task_type,
        "status": notification.event,
        "attempts": notification.attempts,
        "ended_at": notification.ended_at,
        "result": json.loads(base64.b64decode(notification.result_base64)) if notification.result_base64 else None,
        "result_left_out": notification.result_left_out,
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
        "User-Agent": "taskqueue-webhook",
        "Webhook-Id": message,
        "Webhook-Timestamp": str(timestamp),
        "Webhook-Signature": " ".join(f"v1,{each}" for each in signatures),
    }


def _judge(url: str, answer: Answer) -> None:
    if 200 <= answer.status < 300:
        return
    said = f"{url} answered {answer.status}" + (f": {answer.body[:200]!r}" if answer.body else "")
    if answer.status == _GONE:
        raise GiveUp(said)
    if 300 <= answer.status < 400:
        raise DeliveryFailed(f"{said}; a redirect is not followed")
    if answer.status in _TELL_WHEN and _SECONDS.fullmatch(answer.retry_after):
        raise RetryLater(max(_SHORTEST_PAUSE, min(int(answer.retry_after), _LONGEST_PAUSE)), said)
    raise DeliveryFailed(said)
