"""The common part of `Queue` and `AsyncQueue`: direct submission without its waiting.

A submission is validated and stored as a gateway does it, by the same code and in the same atomic step. The id of a
task is made before it is sent, so sending it again after a lost answer stores nothing twice.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from firmq.shared.config.collector import destination_of
from firmq.shared.config.redis_address import read_address
from firmq.shared.config.settings import Settings
from firmq.shared.domain import strict_json, task_data
from firmq.shared.domain.payload import PayloadReference
from firmq.shared.domain.task import NewTask, TaskState, new_task_id
from firmq.shared.redis.client import connect_for
from firmq.shared.redis.connections import note_what_is_sent
from firmq.shared.redis.direct_scripts import DirectScripts
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.idempotency import Idempotency, Request
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.queues import STATES, Queues, Submitted, submission
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.tasks import Records
from firmq.shared.submission import reading, refusals
from firmq.shared.submission.answers import Accepted, Ended, Status, TaskDetail
from firmq.shared.submission.bodies import NewTaskBody, context_of, read_body
from firmq.shared.submission.identity import identity
from firmq.shared.submission.options import plain
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import Submitter, TaskFactory, refusal_of
from firmq.shared.submission.type_cache import TypeCache

if TYPE_CHECKING:
    from firmq.shared.observability.tracing import Tracing
    from firmq.shared.redis.scripts import Steps

log = logging.getLogger(__name__)

ACTOR = "direct submission"
"""Who acted, in the audit record."""
PATH = "/tasks"
_NO_TERMS = ("", "", "")
"""The arguments of `submit_one.lua` for a task without delay, expiry and tags."""


@dataclass(slots=True)
class Draft:
    """A submission before its validation: `text` is its data in JSON; the body is read when it is first checked."""

    task_id: str
    task_type: str
    value: Mapping[str, Any]
    text: str
    request: Request | None
    trace_parent: str | None
    plain: bool
    """Whether it has neither options nor a trace."""
    body: NewTaskBody | None = None
    payload: PayloadReference | None = None
    """Of large data, once `keep` has written it."""


class Submission:
    """The stores, caches and limits of direct submission in one process; not for use across a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.redis = connect_for(settings, "submission")
        self.scripts = DirectScripts(
            self.redis, replicas=settings.submit_replicas, confirm_writes=settings.confirm_writes
        )
        self.type_cache = TypeCache(
            TaskTypes(self.redis),
            fresh=settings.type_cache_time,
            http_task_policy=settings.http_task_policy(),
            refuse_without_worker=settings.refuse_without_worker,
        )
        self.tracing = _tracing(settings)
        context = context_of(settings)  # only the parts that deliver webhooks have the secrets to sign them
        self.submitter = Submitter(name=_user_of(settings))
        self.extra = json.dumps(["submitted_by", self.submitter.name]) if self.submitter.name else ""
        """The other fields of a task without options."""
        self.payloads = Payloads.of(settings)
        self.factory = TaskFactory(
            self.type_cache, self.tracing, settings.default_priority, context, self.payloads, self.scripts.mark
        )
        self.queues = Queues.of(self.scripts, settings)
        self.idempotency = Idempotency(self.scripts, timedelta(seconds=settings.idempotency_ttl), self.queues.bounds)
        self.records = Records(self.scripts, self.queues.register, self.payloads)

    def is_of_parent(self) -> bool:
        """Returns whether this process was forked from the one that made this."""
        return self.pid != os.getpid()

    def close(self) -> None:
        """Closes the idle connections."""
        self.scripts.close()
        self.redis.close()
        if self.tracing is not None:
            self.tracing.stop()

    # --- submitting ---

    def submit(self, draft: Draft) -> Accepted:
        """Validates and stores a submission. Raises Refusal and PayloadUnavailable."""
        if not self.accepts(draft) and (first := self.check(draft)):
            return first
        self.keep(draft)
        return self.scripts.run_accepted(self.steps(draft))

    def draft(self, task_type: str, data: Any, key: str | None, options: Mapping[str, Any]) -> Draft:
        """Returns a submission as JSON. Raises Refusal, and TypeError or ValueError for values that JSON lacks."""
        text = self._text(data)
        value: dict[str, Any] = {"type": task_type, "data": data}
        plain_type = type(task_type) is str
        if options or not plain_type:
            value |= json.loads(strict_json.dump({"type": task_type, **plain(options)}))
        request = None
        if key is not None:
            request = identity(self.submitter.client, key, PATH, {**value, "data": json.loads(text)})
        trace_parent = _current_traceparent()
        is_plain = plain_type and not (options or request or trace_parent or self.tracing)
        return Draft(new_task_id(self.scripts.mark), task_type, value, text, request, trace_parent, is_plain)

    def _text(self, data: Any) -> str:
        text = strict_json.dump_checked(data, max_depth=self.settings.max_json_depth)
        most = self.settings.max_body_bytes
        if len(text) > most // 4 and len(text.encode()) > most:
            raise Refusal(refusals.TOO_LARGE, refusals.body_too_large(most))
        return text

    def read(self, value: Any) -> Any:
        """Returns a value as a gateway reads it from a body. Raises Refusal or InvalidJSON when that refuses it."""
        return json.loads(self._text(value))

    def accepts(self, draft: Draft) -> bool:
        """Returns whether a submission is valid for sure, without asking Redis; `check` decides about the rest."""
        try:
            if not draft.plain:
                draft.body = read_body(NewTaskBody, draft.value, self.factory.context)
            return self.type_cache.accepts(draft.value["type"], draft.value["data"])
        except (Refusal, ValueError):  # ValueError: Python data that is JSON only once it is written
            return False

    def check(self, draft: Draft) -> Accepted | None:
        """Validates a submission. Returns the first answer to one that was stored with its key before and is invalid
        now, else None. Raises Refusal."""
        try:
            body = self._body(draft)
            # Parsed, because a gateway would see it like that: keys are texts, and tuples are arrays.
            self.type_cache.check(body.type, json.loads(draft.text))
        except Refusal as refusal:
            first = refusal.kind in refusals.CHECKS and draft.request and self.idempotency.first_task(draft.request)
            if not first:
                raise
            task_type = str(draft.value["type"])
            queue = self.factory.queue_of(task_type, draft.value.get("queue"), draft.value.get("priority"))
            return _accepted(first, task_type, queue, ())
        return None

    def _body(self, draft: Draft) -> NewTaskBody:
        if draft.body is None:
            draft.body = read_body(NewTaskBody, draft.value, self.factory.context)
        return draft.body

    def keep(self, draft: Draft) -> None:
        """Writes the payload of a valid submission, if its data is large. Raises PayloadUnavailable."""
        if self.payloads.is_large(draft.text):
            draft.payload = self.payloads.keep(draft.task_id, draft.text.encode())

    def task(self, draft: Draft) -> NewTask:
        """Validates a submission and returns its task, to be stored by another script. Raises as `submit`."""
        if not self.accepts(draft):
            self.check(draft)
        self.keep(draft)
        data = draft.payload or draft.text
        task = self.factory.new(self._body(draft), draft.task_id, self.submitter, data=data)
        with self.factory.traced(task, draft.trace_parent, "create") as traced:
            return traced

    def steps(self, draft: Draft) -> Steps[Accepted]:
        """Yields the script calls that store a valid submission, after `keep`; returns the answer. Raises Refusal."""
        data = draft.payload or draft.text
        if draft.plain:
            # The shortest way, which most submissions go: without a model of the task.
            task_type, queue = draft.task_type, self.factory.queue_of(draft.task_type)
            call = task_data.encode(task_type, data)
            reply = yield (
                "submit_one",
                (self.queues.bounds, draft.task_id, queue, task_type, call, *_NO_TERMS, self.extra),
            )
            if isinstance(reply, bytes) and (state := STATES.get(reply)):
                return Accepted(
                    task_id=draft.task_id,
                    status=state,
                    type=task_type,
                    queue=queue,
                    warnings=tuple(self.type_cache.warnings(task_type)),
                )
        task = self.factory.new(self._body(draft), draft.task_id, self.submitter, data=data)
        with self.factory.traced(task, draft.trace_parent) as traced:
            stored = yield from self._storing(draft, traced)
        if refusal := refusal_of(task, stored):
            raise refusal
        return _accepted(stored, task.type, task.queue, self.type_cache.warnings(task.type))

    def _storing(self, draft: Draft, task: NewTask) -> Steps[Submitted]:
        if draft.request is None:
            return (yield from submission(task, self.queues.bounds))
        stored, _ = yield from self.idempotency.submission(draft.request, task)
        return stored

    # --- the rest ---

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task with its whole record. Raises TaskNotFound."""
        found = self.records.get(task_id)
        kind = self.type_cache.get(found.summary.type)
        policy = self.settings.retry_policy
        return reading.detail(found, policy.override(kind.retry) if kind else policy)

    def ended(self, task_id: str, seconds: float) -> Ended | TaskState:
        """Waits at most `seconds` for the end of a task. Returns it, or the state. Raises TaskNotFound."""
        state = self.records.wait(task_id, seconds)
        return reading.ended(self.records.end(task_id)) if state.ended else state

    def cancel(self, task_id: str, reason: str | None) -> Status:
        """Cancels a task. Raises TaskNotFound, or IllegalTransition if it has ended."""
        note_what_is_sent()
        why = reason or f"cancelled by {ACTOR}"
        state = self.queues.cancel(task_id, why)
        Audit(self.redis).record(ACTOR, "cancelled", task_id, why)
        return Status(task_id=task_id, status=state)


def _accepted(stored: Submitted, task_type: str, queue: str, warnings: tuple[str, ...] | list[str]) -> Accepted:
    return Accepted(
        task_id=stored.id,
        status=stored.state,  # type: ignore[arg-type]  # a task that was stored has a state
        type=task_type,
        queue=stored.queue or queue,
        existing=stored.existing,
        warnings=tuple(warnings),
    )


def _tracing(settings: Settings) -> Tracing | None:
    """Returns the tracing of this process; None where it is off, or OpenTelemetry is not installed."""
    if destination_of(settings) is None:
        return None
    try:
        from firmq.shared.observability.tracing import Tracing
    except ImportError:
        log.warning("submissions have no spans: OpenTelemetry is not installed")
        return None
    return Tracing("submission", settings, f"{socket.gethostname()}-{os.getpid()}")


def _current_traceparent() -> str | None:
    """Returns the trace that the calling program is in, if it uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return None
    from firmq.shared.observability.tracing import current_traceparent

    return current_traceparent()


def _user_of(settings: Settings) -> str:
    """Returns the Redis user of this process; "" without one."""
    user = unquote(urlsplit(read_address(settings.store_url).url).username or "")
    return "" if user == "default" else user
