"""Decoding of a task's record: the bytes of RQ's fields and ours, read as values.

A record may be corrupt, or written by hand. Unreadable parts are named in `corrupt`, and the rest is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from firmq.shared.domain import task_data
from firmq.shared.domain.clock import instant, instant_us
from firmq.shared.domain.decode import UNREADABLE, whole
from firmq.shared.domain.payload import PayloadReference, decode_result
from firmq.shared.domain.retry import Changes, RetryPolicy
from firmq.shared.domain.step import SIGNAL, Step, read_step
from firmq.shared.domain.strict_json import load_anything
from firmq.shared.domain.task import (
    AS_GIVEN,
    Attempt,
    BatchPlace,
    ErrorInfo,
    InnerSpan,
    On,
    OnParentFailure,
    Outcome,
    Parent,
    Progress,
    TaskDetail,
    TaskState,
    TaskSummary,
    Webhook,
)
from firmq.shared.domain.task_fields import whole_if_it_is
from firmq.shared.errors import CorruptRecord
from firmq.shared.redis.client import text

T = TypeVar("T")

_EARLIEST = datetime.min.replace(tzinfo=UTC)

SUMMARY_FIELDS = (
    "state",
    "description",
    "origin",
    "attempt",
    "failures",
    "crashes",
    "created_at",
    "started_at",
    "ended_at",
    "due_at",
    "worker_name",
    "tags",
    "error",
    "progress",
    "submitted_by",
    "awaits",
    "score",
    "enqueued_at",
)
"""In the order of `page.lua`'s answer."""


def read_summary(task_id: str, values: Sequence[bytes | None]) -> TaskSummary:
    """Returns a task from the fields of its record; a corrupt one is shown as broken, not raised."""
    fields = {name: value for name, value in zip(SUMMARY_FIELDS, values, strict=False) if value is not None}
    try:
        return _summary(task_id, fields)
    except UNREADABLE as error:
        return broken(task_id, f"corrupt record: {type(error).__name__} {error}")


def broken(task_id: str, why: str) -> TaskSummary:
    """Returns a placeholder for a record that cannot be read."""
    return TaskSummary(
        id=task_id,
        type="?",
        state=TaskState.FAILED,
        queue="?",
        attempt=0,
        failures=0,
        crashes=0,
        created_at=None,
        corrupt=why,
    )


def _summary(task_id: str, fields: Mapping[str, bytes]) -> TaskSummary:
    state = TaskState(fields["state"].decode())
    due = state in (TaskState.SCHEDULED, TaskState.RETRYING)
    # A worker that refuses a task, or returns it, leaves its name and the time; the attempt is not counted.
    begun = state is not TaskState.PENDING and fields.get("attempt", b"0") != b"0"
    return TaskSummary(
        id=task_id,
        type=fields["description"].decode(),
        state=state,
        queue=fields["origin"].decode(),
        attempt=whole(fields.get("attempt", 0)),
        failures=whole(fields.get("failures", 0)),
        crashes=whole(fields.get("crashes", 0)),
        created_at=_moment(fields.get("created_at")),
        started_at=_moment(fields.get("started_at")) if begun else None,
        ended_at=_moment(fields.get("ended_at")) if state.ended else None,
        due_at=instant(float(fields["due_at"])) if due and "due_at" in fields else None,
        worker=fields["worker_name"].decode() if state is TaskState.RUNNING and "worker_name" in fields else None,
        ran_on=fields["worker_name"].decode(errors="replace") if begun and "worker_name" in fields else None,
        tags=_words(load_anything(fields["tags"])) if "tags" in fields else (),
        error=_error(fields.get("error")) if state is not TaskState.COMPLETED else None,
        progress=_progress(load_anything(fields["progress"])) if "progress" in fields else None,
        submitted_by=fields["submitted_by"].decode() if "submitted_by" in fields else None,
        awaits=_awaits(text(fields.get("awaits", b"")), state),
        score=_score(fields),
    )


def _score(fields: Mapping[str, bytes]) -> float | None:
    """Returns the score of a record, as `_filter.lua` has it."""
    if "score" in fields:
        return whole_if_it_is(float(fields["score"]))
    enqueued = _moment(fields.get("enqueued_at"))
    return whole_if_it_is(instant_us(enqueued) / 1000) if enqueued else None


def read_detail(task_id: str, fields: Mapping[str, bytes], result: bytes = b"") -> TaskDetail:
    """Returns a task with everything from its record; corrupt parts are left out and named in `corrupt`."""
    summary = read_summary(task_id, [fields.get(name) for name in SUMMARY_FIELDS])
    wrong: list[str] = [summary.corrupt] if summary.corrupt else []

    def attempt_read(what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (*UNREADABLE, CorruptRecord) as error:
            wrong.append(f"{what} cannot be read: {error}")
            return otherwise

    given: dict[str, Any] = {name: text(fields[name]) for name in AS_GIVEN if name in fields}
    if "score" in given:
        given["score"] = summary.score
    detail = TaskDetail(
        summary=summary,
        data=attempt_read("the data", lambda: _loaded(task_data.decode(summary.type, fields["data"])), None),
        result=attempt_read("the result", lambda: _returned(result), None),
        attempts=attempt_read("the attempts", lambda: _attempts(fields), ()),
        timeout=attempt_read("the time limit", lambda: _seconds(fields.get("time_limit")), None),
        retry=attempt_read("the retry policy", lambda: _retry(load_anything(fields.get("retry", b"{}"))), {}),
        expires_at=attempt_read(
            "the expiry", lambda: instant(float(fields["expires_at"])) if "expires_at" in fields else None, None
        ),
        cancel_requested=fields["cancel"].decode(errors="replace") if "cancel" in fields else None,
        unique_key=_after_colon(fields.get("unique")),
        parents=attempt_read("the parents", lambda: _parents(fields.get("parents")), ()),
        on_parent_failure=attempt_read(
            "the rule for a failed parent",
            lambda: OnParentFailure(fields.get("on_parent_failure", b"cancel").decode()),
            OnParentFailure.CANCEL,
        ),
        batch=attempt_read("the place in a batch", lambda: _place(fields), None),
        children=tuple(_children(fields)),
        children_count=attempt_read("the number of children", lambda: whole(fields.get("children", 0)), 0),
        after_batch=fields["after_batch"].decode(errors="replace") if "after_batch" in fields else None,
        **given,
        throttled_by=_group(fields.get("wait_queue")),
        pinned_to=text(fields["pinned"]) if "pinned" in fields else None,
        refusal=text(fields["refusal"]) if "refusal" in fields else None,
        webhook=attempt_read("the webhook", lambda: _webhook(fields.get("webhook")), None),
        deliveries=attempt_read("the deliveries", lambda: whole(fields.get("deliveries", 0)), 0),
        delivery_of=text(fields["delivery_of"]) if "delivery_of" in fields else None,
        steps=attempt_read("the steps", lambda: _steps(fields), ()),
        meta=attempt_read("the metadata", lambda: _texts(load_anything(fields.get("meta", b"{}"))), {}),
    )
    return replace(detail, summary=replace(summary, corrupt="; ".join(wrong) or None))


def _after_colon(value: bytes | None) -> str | None:
    """Returns a unique key, which is stored with its type in front."""
    return value.decode(errors="replace").partition(":")[2] if value else None


def _returned(value: bytes) -> Any:
    return _loaded(decode_result(value)) if value else None


def _loaded(value: bytes | PayloadReference) -> Any:
    return load_anything(value) if isinstance(value, bytes) else value


def _awaits(found: str, state: TaskState) -> str | None:
    """Returns the wait for which the handler has suspended its task, which is kept until the next attempt begins."""
    kind, _, name = found.partition(" ")
    if state is TaskState.BLOCKED and kind == "children":
        return f"children:{name}"
    if state is not TaskState.SCHEDULED:
        return None
    return {"sleep": name, "signal": f"{SIGNAL}{name}"}.get(kind)


def _parents(value: bytes | None) -> tuple[Parent, ...]:
    return tuple(Parent(task_id=str(parent), on=On(on)) for parent, on, *_ in load_anything(value or b"[]"))


def _children(fields: Mapping[str, bytes]) -> Iterator[str]:
    number = 1
    while (child := fields.get(f"child:{number}")) is not None:
        yield child.decode(errors="replace")
        number += 1


def _webhook(value: bytes | None) -> Webhook | None:
    about = load_anything(value) if value else None
    return (
        Webhook(url=_word(about["url"]), events=_words(about.get("events", [])), retry=about.get("retry"))
        if about
        else None
    )


def _place(fields: Mapping[str, bytes]) -> BatchPlace | None:
    if "batch" not in fields:
        return None
    return BatchPlace(batch_id=fields["batch"].decode(), index=whole(fields.get("batch_index", 0)))


WORKER_QUEUES = ("worker:", "refused:", "pinned:")
"""The kinds of wait queues in which tasks wait for a worker (`_types.lua`)."""


def _group(wait_queue: bytes | None) -> str | None:
    """Returns the limit of a wait queue's name queue|limit|tenant; "worker" if it waits for one."""
    parts = wait_queue.decode(errors="replace").split("|") if wait_queue else []
    group = parts[1] if len(parts) == 3 else None
    return "worker" if group and group.startswith(WORKER_QUEUES) else group


def _attempts(fields: Mapping[str, bytes]) -> tuple[Attempt, ...]:
    """Returns every attempt on record, and the running one."""
    numbers = sorted(whole(name[8:]) for name in fields if name.startswith("attempt:"))
    attempts = [read_attempt(number, fields[f"attempt:{number}"]) for number in numbers]
    current = whole(fields.get("attempt", 0))
    if fields.get("state") == b"running" and current not in numbers:
        attempts.append(
            Attempt(
                number=current,
                worker=fields.get("worker_name", b"").decode() or None,
                enqueued_at=_moment(fields.get("enqueued_at")),
                started_at=_moment(fields.get("started_at")),
            )
        )
    return tuple(attempts)


def _steps(fields: Mapping[str, bytes]) -> tuple[Step, ...]:
    steps = [read_step(name[5:], record) for name, record in fields.items() if name.startswith("step:")]
    return tuple(sorted(steps, key=lambda each: (each.started_at or _EARLIEST, each.name)))


def read_attempt(number: int, record: bytes) -> Attempt:
    """Returns one attempt from its JSON. Raises ValueError or KeyError for other JSON."""
    fields = load_anything(record)
    return Attempt(
        number=number,
        worker=_word(fields["worker"]) if fields.get("worker") else None,
        enqueued_at=_instant(fields.get("enqueued_at")),
        started_at=_instant(fields.get("started_at")),
        ended_at=_instant(fields.get("ended_at")),
        outcome=Outcome(fields["outcome"]),
        error=_error_info(fields.get("error")),
        retry_delay=timedelta(seconds=fields["retry_delay"]) if fields.get("retry_delay") is not None else None,
        trace_id=_word(fields["trace_id"]) if fields.get("trace_id") else None,
        app_version=_word(fields["app_version"]) if fields.get("app_version") else None,
        logs=_words(fields.get("logs") or []),
        spans=tuple(map(_inner_span, fields.get("spans", ()))),
        spans_left_out=whole(fields.get("spans_left_out", 0)),
    )


def _inner_span(fields: Mapping[str, Any]) -> InnerSpan:
    return InnerSpan(
        name=str(fields["name"]),
        after=timedelta(microseconds=fields["after_us"]),
        took=timedelta(microseconds=fields["us"]),
        failed=bool(fields.get("error")),
    )


def _instant(us: float | None) -> datetime | None:
    return instant(us) if us else None


def _error(value: bytes | None) -> ErrorInfo | None:
    return _error_info(load_anything(value)) if value else None


def _error_info(fields: Mapping[str, str] | None) -> ErrorInfo | None:
    if not fields:
        return None
    return ErrorInfo(
        type=_word(fields["type"]),
        message=_word(fields["message"]),
        traceback=_word(fields["traceback"]) if fields.get("traceback") else None,
        place=_word(fields.get("place", "")),
    )


def _progress(said: Mapping[str, Any]) -> Progress:
    fraction = float(said["fraction"])
    if not 0 <= fraction <= 1:
        raise ValueError(f"{fraction} is not a fraction")
    return Progress(fraction=fraction, message=_word(said.get("message", "")))


def _word(value: object) -> str:
    """Returns a text out of JSON. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is not a text")
    return value


def _words(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{str(values)[:40]} is not a list")
    return tuple(map(_word, values))


def _texts(values: Any) -> dict[str, str]:
    return {name: _word(value) for name, value in values.items()}


def _numbers(values: Any) -> dict[str, float]:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values.values()):
        raise TypeError("it holds values that are not numbers")
    return dict(values)


def _retry(values: Any) -> Changes:
    """Returns a task's changes of its retry policy, if the result is valid."""
    pauses = {"pauses": values["pauses"]} if "pauses" in values else {}
    changes: Changes = {**_numbers({name: value for name, value in values.items() if name != "pauses"}), **pauses}
    RetryPolicy().override(changes)
    return changes


def _moment(value: bytes | None) -> datetime | None:
    """Returns an instant from RQ's format."""
    if not value:
        return None
    return datetime.strptime(value.decode(), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _seconds(value: bytes | None) -> timedelta | None:
    return timedelta(seconds=float(value)) if value else None
