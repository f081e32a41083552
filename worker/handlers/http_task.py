"""`http`: a task that is an HTTP call, for teams that queue work without writing handlers.

Loaded only where HTTP_TASK_HOSTS allows hosts. The call is made as webhooks are (`pinned_http.py`); its answer is the
result of the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from firmq.shared.config.settings import Settings, load
from firmq.shared.domain import strict_json
from firmq.shared.domain.egress_policy import LONGEST, EgressPolicy, NotAllowed
from firmq.shared.domain.http_task import HTTP_TYPE, mistakes
from firmq.shared.errors import InvalidJSON
from firmq.shared.observability.tracing import current_traceparent
from firmq.worker.handlers.context import CurrentTask, current_task
from firmq.worker.handlers.pinned_http import Answer, CallFailed, Connection, in_thread
from firmq.worker.handlers.registry import task
from firmq.worker.handlers.signals import GiveUp, RetryLater

_TRANSIENT = frozenset((408, 425, 429))
_SHOWN_HEADERS = ("content-type", "etag", "last-modified", "link", "location", "retry-after", "x-request-id")
_LONGEST_HEADER = 2000
_SHOWN = 500
_ENVELOPE = 64
"""Bytes of a result besides its headers and its body."""

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
HeaderValue = Annotated[str, Field(max_length=8000, pattern=r"^[\t -~]*$")]
Status = Annotated[int, Field(ge=200, le=599)]


class HttpCallFailed(Exception):
    """The host could not be reached, did not answer, or answered with a status that a retry may change."""


class HttpCall(BaseModel):
    """The data of the task."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=LONGEST, description="Where to call, https:// or http://; redirects are not followed.")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "POST"
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict,
        max_length=50,
        description="Headers of the request, in printable ASCII.",
        json_schema_extra={"additionalProperties": False},
    )
    body: Any = Field(None, description="Text is sent as it is, any other value as JSON; null sends no body.")
    expect: list[Status] | None = Field(
        None, min_length=1, max_length=100, description="Statuses that complete the task; without it, 200 to 299."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The outbound requests that this worker allows."""

    egress_policy: EgressPolicy
    max_result_bytes: int
    max_depth: int
    longest_pause: float

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """Returns the rules of the settings. Raises ValueError when HTTP tasks are off."""
        egress_policy = settings.http_task_policy()
        if egress_policy is None:
            raise ValueError("HTTP tasks are off: set HTTP_TASK_HOSTS")
        return cls(
            egress_policy=egress_policy,
            max_result_bytes=settings.max_result_bytes,
            max_depth=settings.max_json_depth - 1,
            longest_pause=settings.max_retry_delay,
        )


@task(HTTP_TYPE, timeout=30)
async def http_task(data: HttpCall) -> dict[str, Any]:
    """Makes an HTTP call; the result has its `status`, `headers` and `body`."""
    rules, about, traceparent = _rules(), current_task(), current_traceparent()
    connection = Connection(rules.egress_policy)
    return await in_thread(connection, lambda: call(data, connection, rules, about, traceparent))


@cache
def _rules() -> Rules:
    return Rules.of(load())


def call(
    data: HttpCall, connection: Connection, rules: Rules, about: CurrentTask, traceparent: str | None = None
) -> dict[str, Any]:
    """Makes one attempt and returns the result.

    Raises HttpCallFailed, RetryLater, or GiveUp where another try cannot help.
    """
    shown = shown_url(data.url)
    if wrong := [f"{'.'.join(place)} {text}" for place, text in mistakes(data.url, data.headers, rules.egress_policy)]:
        raise GiveUp(f"{shown} must not be called: {'; '.join(wrong)}")
    body, content_type = body_of(data.body)
    sent = headers_of(data.headers, content_type, about, traceparent)
    try:
        answer = connection.send(data.url, data.method, body, sent, rules.max_result_bytes)
    except NotAllowed as error:
        raise GiveUp(f"{shown} must not be called: {error}") from error
    except CallFailed as error:
        raise HttpCallFailed(f"{data.method} {shown} {error}") from error
    _judge(f"{data.method} {shown}", data.expect, answer, rules.longest_pause)
    return result_of(answer, rules)


def shown_url(url: str) -> str:
    """Returns the URL without its query, which may have a secret."""
    return urlsplit(url)._replace(query="").geturl()


def body_of(body: Any) -> tuple[bytes | None, str]:
    """Returns the bytes of a body, and the type of their content."""
    if body is None:
        return None, ""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return strict_json.dump(body).encode(), "application/json"


def headers_of(
    given: Mapping[str, str], content_type: str, about: CurrentTask, traceparent: str | None
) -> dict[str, str]:
    """Returns the headers to send: the given ones, and ours that they do not set."""
    ours = {
        "User-Agent": "firmq-http",
        "Content-Type": content_type,
        "Idempotency-Key": about.id,
        "traceparent": traceparent or about.traceparent or "",
    }
    names = {name.lower() for name in given}
    return {**given, **{name: value for name, value in ours.items() if value and name.lower() not in names}}


def result_of(answer: Answer, rules: Rules) -> dict[str, Any]:
    """Returns the result of the task: the status, some headers and the body, cut to the size of a result."""
    headers = {name: answer.headers[name][:_LONGEST_HEADER] for name in _SHOWN_HEADERS if name in answer.headers}
    result: dict[str, Any] = {"status": answer.status, "headers": headers, "body": None}
    room = rules.max_result_bytes - _ENVELOPE - _size(headers)
    if answer.complete and _is_json(answer):
        try:
            result["body"] = strict_json.parse(answer.body, max_depth=rules.max_depth)
            if _size(result["body"]) <= room:
                return result
        except InvalidJSON:
            pass  # returned as text
    text = _text(answer)
    result["body"] = _fitted(text, room) or None
    if not answer.complete or len(result["body"] or "") < len(text):
        result["truncated"] = True
    return result


def _judge(what: str, expect: list[int] | None, answer: Answer, longest_pause: float) -> None:
    """Returns if the answer completes the task. Raises HttpCallFailed, RetryLater, or GiveUp."""
    status = answer.status
    if status in expect if expect is not None else 200 <= status < 300:
        return
    text = _text(answer)[:_SHOWN]
    said = f"{what} answered {status}" + (f": {text!r}" if text else "")
    if status < 500 and status not in _TRANSIENT:
        raise GiveUp(f"{said}; a redirect is not followed" if 300 <= status < 400 else said)
    if (pause := answer.pause(longest_pause)) is not None:
        raise RetryLater(pause, said)
    raise HttpCallFailed(said)


def _is_json(answer: Answer) -> bool:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _text(answer: Answer) -> str:
    """Returns the body as text in its charset, UTF-8 if it names none; bytes that are not text become U+FFFD."""
    charset = answer.headers.get("content-type", "").lower().partition("charset=")[2].partition(";")[0].strip(' "')
    if charset in ("iso-8859-1", "latin-1", "us-ascii", "windows-1252"):
        return answer.body.decode("cp1252", "replace")
    return answer.body.decode("utf-8", "replace")


def _size(value: object) -> int:
    """Returns the bytes of a value in a result."""
    return len(json.dumps(value, separators=(",", ":")))


def _fitted(text: str, room: int) -> str:
    """Returns as much of the beginning of a text as has room in a result."""
    while text and (size := _size(text)) > room:
        text = text[: min(len(text) - 1, max(0, len(text) * room // size))]
    return text
