"""Outcomes of attempts: results and errors as in `report.lua`, and the consequence of an error."""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from random import Random
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from firmq.shared.config.settings import Settings
from firmq.shared.domain import failure_fingerprint, strict_json
from firmq.shared.domain.clock import to_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.retry import Changes, RetryPolicy, RetryRules
from firmq.shared.domain.task import SUSPENDED, Outcome, TaskState
from firmq.shared.errors import CorruptRecord, InvalidJSON, TooManyChildren, TooManySteps
from firmq.shared.redis.client import text
from firmq.worker.executors.ipc import Assignment, EndedAttempt
from firmq.worker.handlers import errors, registry
from firmq.worker.handlers.errors import describe, is_a
from firmq.worker.handlers.registry import Handler
from firmq.worker.handlers.signals import (
    ChildFailed,
    DuplicateStep,
    GiveUp,
    RetryLater,
    SignalTimeout,
    StepFailed,
    TaskCancelled,
    TaskSuspended,
    TimeLimitExceeded,
    WorkflowChanged,
)

log = logging.getLogger(__name__)

_LONGEST_NAME = 200
_LONGEST_TRACEBACK = 8000
_PREVIEW = 1000
_KEY_OF_OTHER_TYPE = re.compile(rb'"(?:true|false|null|-?[0-9][^"]*)":')
"""A key in JSON that may have been a number, a boolean or None."""
_FIELD = re.compile(r'"([^"\\]+)":')


class ResultNotSerializable(Exception):
    """The handler returned something that has no JSON form."""


class ResultTooLarge(Exception):
    """The handler returned more than MAX_RESULT_BYTES."""


class UnknownTaskType(Exception):
    """No module in TASK_MODULES of this worker registers the type."""


class InvalidData(Exception):
    """The data does not fit the handler's parameters."""


FINAL = (
    *(GiveUp, ResultNotSerializable, ResultTooLarge, InvalidData, CorruptRecord),
    *(StepFailed, ChildFailed, SignalTimeout, DuplicateStep, WorkflowChanged),
    *(TooManySteps, TooManyChildren),
)
"""Errors that a retry cannot fix."""
_OUTCOMES = {TimeLimitExceeded: Outcome.TIMED_OUT, TaskCancelled: Outcome.CANCELLED}
_NULL = base64.b64encode(b"null")


class Judgement(NamedTuple):
    """The outcome of a failed attempt, the task's new state, and the microseconds until its next attempt.

    `cause` is the error that decided: of a group, one of its errors.
    """

    outcome: Outcome
    state: TaskState
    delay_us: int
    cause: BaseException


class Outcomes:
    """Builds the outcomes of one executor."""

    def __init__(self, settings: Settings, runner_files: Sequence[str]) -> None:
        self.policy = settings.retry_policy
        self.max_delay = timedelta(seconds=settings.max_delay)
        self.max_result_bytes = settings.max_result_bytes
        self.redact = settings.dashboard_redact
        self.max_depth = settings.max_json_depth
        self.random = Random()
        self._runners = tuple(runner_files)
        self._ours = (*runner_files, registry.__file__)

    def result(self, value: object) -> bytes:
        """Returns a handler's result for RQ's stream. Raises ResultNotSerializable or ResultTooLarge."""
        return _NULL if value is None else base64.b64encode(self.json(value, "the handler", "the result"))

    def json(self, value: object, who: str, what: str) -> bytes:
        """Returns the value of a handler or a step as JSON. Raises the errors of `result`, in these words."""
        try:
            try:
                text = _dumped(value)
            except TypeError:  # for example, keys that are dates
                text = _dumped(_jsonable(value))
            if _KEY_OF_OTHER_TYPE.search(text):
                json.loads(text, object_pairs_hook=_unique)
        except (TypeError, ValueError, RecursionError) as error:
            raise ResultNotSerializable(
                f"{who} returned {failure_fingerprint.class_name(value)}, which has no JSON form ({error}): "
                "return text, numbers, lists, mappings, dataclasses or pydantic models"
            ) from error
        if len(text) > self.max_result_bytes:
            too_large = ResultTooLarge(
                f"{what} has {len(text)} bytes as JSON, at most {self.max_result_bytes} are allowed: "
                "store it elsewhere and return its location, or raise MAX_RESULT_BYTES; PAYLOAD_STORE keeps results "
                "above PAYLOAD_THRESHOLD out of Redis"
            )
            too_large.add_note(f"The result began: {self._preview(text)}")
            raise too_large
        if b"\\ud" in text:
            self._check_surrogates(text)
        if text.count(b"[") + text.count(b"{") > self.max_depth:
            self._check_depth(text)
        return text

    def _preview(self, text: bytes) -> str:
        """Returns the beginning of a result, unless it has fields that the dashboard hides."""
        began = text[:_PREVIEW].decode()
        names = [name.lower() for name in _FIELD.findall(began)]
        hidden = [pattern.rpartition(".")[2].lower() for pattern in self.redact]
        if any(fnmatchcase(name, pattern) for name in names for pattern in hidden):
            return "(not shown: it has fields named in DASHBOARD_REDACT)"
        return f"{began}..."

    def _check_surrogates(self, text: bytes) -> None:
        try:
            strict_json.check_surrogates(json.loads(text))
        except InvalidJSON as error:
            raise ResultNotSerializable(f"the result cannot be stored: {error}") from error

    def _check_depth(self, text: bytes) -> None:
        try:
            strict_json.parse(text, max_depth=self.max_depth)
        except InvalidJSON as error:
            raise ResultNotSerializable(f"the result could not be read back: {error}") from error

    def completed(
        self, number: int, record: Mapping[str, Any], result: bytes, run_us: int, rq_job_end: bytes | None = None
    ) -> EndedAttempt:
        """Returns the outcome of a successful attempt."""
        history = dump({**record, "outcome": "completed"})
        return EndedAttempt(
            "completed", "completed", history, number=number, run_us=run_us, result=result, rq_job_end=rq_job_end
        )

    def failed(
        self,
        assignment: Assignment,
        error: BaseException,
        record: Mapping[str, Any],
        run_us: int,
        judgement: Judgement,
        version: str = "",
    ) -> EndedAttempt:
        """Returns the outcome of a failed attempt; `version` is the type version that rejected the data."""
        outcome, state, delay_us, cause = judgement
        if state is TaskState.SCHEDULED and isinstance(cause, TaskSuspended):
            return self._suspended(assignment, cause, record, run_us, outcome)
        about = {
            "type": failure_fingerprint.class_name(cause)[:_LONGEST_NAME],
            "message": errors.message(error),
            "traceback": self._traceback(error),
        }
        # A refused attempt is stored only when no version of the type takes the data: as failed.
        stored = Outcome.FAILED if outcome is Outcome.REFUSED else outcome
        history = {**record, "outcome": stored, "error": about}
        if state is TaskState.RETRYING:
            history["retry_delay"] = delay_us / 1_000_000
        may_be_dead = state in (TaskState.FAILED, TaskState.PENDING)
        return EndedAttempt(
            outcome.value,
            state.value,
            dump(history),
            number=assignment.number,
            run_us=run_us,
            error_type=about["type"],
            error=dump(self._summary(error, cause, about, may_be_dead=may_be_dead)),
            traceback=base64.b64encode(zlib.compress(about["traceback"].encode())) if may_be_dead else None,
            delay_us=delay_us if state is TaskState.RETRYING else None,
            version=version or None,
        )

    @staticmethod
    def _suspended(
        assignment: Assignment, suspension: TaskSuspended, record: Mapping[str, Any], run_us: int, outcome: Outcome
    ) -> EndedAttempt:
        about = {"type": SUSPENDED, "message": str(suspension)}
        return EndedAttempt(
            outcome.value,
            TaskState.SCHEDULED.value,
            dump({**record, "outcome": outcome, "error": about}),
            number=assignment.number,
            run_us=run_us,
            error_type=about["type"],
            due_us=suspension.until_us,
            awaits=suspension.awaits,
        )

    def _summary(
        self, error: BaseException, cause: BaseException, about: Mapping[str, str], may_be_dead: bool
    ) -> dict[str, str]:
        """Returns the error for the record of the task; only a dead letter needs a failure fingerprint."""
        summary = {"type": about["type"], "message": about["message"][:300]}
        if not may_be_dead:
            return summary
        raised = errors.traceback_of(cause) or errors.traceback_of(error)  # in a group may be one that was only made
        place = failure_fingerprint.place(raised, self._runners)
        return {**summary, "place": place, "pattern": failure_fingerprint.pattern(about["message"])}

    def judge(
        self,
        assignment: Assignment,
        handler: Handler | None,
        error: BaseException,
        *,
        cancelled: bool = False,
        refusable: bool = False,
    ) -> Judgement:
        """Returns the consequence of an error: retry, dead letter, or cancelled (only if requested).

        With `refusable` an attempt that this worker cannot run at all is refused.
        """
        cause = error
        try:
            cause = self._decisive(handler, error)
            if cancelled:
                return Judgement(Outcome.CANCELLED, TaskState.CANCELLED, 0, cause)
            if is_a(cause, (TaskSuspended,)):
                return Judgement(Outcome.INTERRUPTED, TaskState.SCHEDULED, 0, cause)
            if refusable and is_a(cause, (UnknownTaskType, InvalidData)):
                return Judgement(Outcome.REFUSED, TaskState.PENDING, 0, cause)
            # By identity: the metaclass of an error may refuse to compare or to hash.
            outcome = next((one for kind, one in _OUTCOMES.items() if kind is type(cause)), Outcome.FAILED)
            return Judgement(outcome, *self._next_state(assignment, handler, cause), cause)
        except BaseException as problem:  # the class of the error, or of a rule, may raise anything
            log.error("task %s: judging its error failed, using the policy: %s", text(assignment.id), describe(problem))
            delay = self.policy.delay(assignment.failures + 1, self.random)
            state = TaskState.FAILED if delay is None else TaskState.RETRYING
            return Judgement(Outcome.FAILED, state, to_us(delay or timedelta(0)), cause)

    @staticmethod
    def _decisive(handler: Handler | None, error: BaseException) -> BaseException:
        """Returns the error of a group that decides under the rules of a handler; any other error as it is."""
        give_up_on, rules = (handler.give_up_on, handler.rules) if handler else ((), RetryRules({}))

        def weight(each: BaseException) -> int:
            if is_a(each, (*FINAL, *give_up_on)) or rules.gives_up(each):
                return errors.FINAL
            return errors.NAMED if rules.names(each) else errors.OTHER

        groups = [each for each in (*give_up_on, *rules.rules) if issubclass(each, BaseExceptionGroup)]
        return errors.decisive(error, weight, groups)

    def _next_state(
        self, assignment: Assignment, handler: Handler | None, error: BaseException
    ) -> tuple[TaskState, int]:
        """Returns the new state of a failed task, and the delay before its next attempt in microseconds."""
        rules = handler.rules if handler else RetryRules({})
        if is_a(error, (*FINAL, *(handler.give_up_on if handler else ()))) or rules.gives_up(error):
            return TaskState.FAILED, 0
        delay = self._policy(handler, assignment, rules.changes(error)).delay(assignment.failures + 1, self.random)
        if delay is None:
            return TaskState.FAILED, 0
        wished = getattr(error, "delay", None) if is_a(error, (RetryLater,)) else None
        if isinstance(wished, timedelta):
            delay = min(wished, self.max_delay)
        elif rules.chooses(error):
            delay = self._chosen(rules, error, assignment, delay)
        return (TaskState.RETRYING, to_us(delay)) if delay is not None else (TaskState.FAILED, 0)

    def _chosen(
        self, rules: RetryRules, error: BaseException, assignment: Assignment, otherwise: timedelta
    ) -> timedelta | None:
        """Returns the pause that the handler's function chose; the policy's delay where it fails."""
        try:
            chosen = rules.pause(error, assignment.failures + 1)
        except Exception as problem:
            log.error("task %s: retry function failed, using the policy: %s", text(assignment.id), describe(problem))
            return otherwise
        return min(chosen, self.max_delay) if chosen is not None else None

    def _policy(self, handler: Handler | None, assignment: Assignment, by_error: Changes) -> RetryPolicy:
        """Returns the general policy with the overrides of the type, of its rule for the error, and of the task."""
        policy = self.policy.override(handler.retry if handler else None).override(by_error)
        try:
            return policy.override(parsed(assignment.retry, "retry policy"))
        except (CorruptRecord, *UNREADABLE) as error:
            log.error("task %s: corrupt retry policy, using the general one: %s", text(assignment.id), error)
            return policy

    def _traceback(self, error: BaseException) -> str:
        """Returns the end of the traceback, from the first frame of the handler."""
        frame = errors.traceback_of(error)
        while frame and frame.tb_frame.f_code.co_filename in self._ours:
            frame = frame.tb_next
        try:
            text = "".join(traceback.format_exception(type(error), error, frame))
        except BaseException:  # its __str__ may raise anything
            text = describe(error)
        text = errors.storable(text)
        return text if len(text) <= _LONGEST_TRACEBACK else f"...\n{text[-_LONGEST_TRACEBACK:]}"


def _dumped(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_jsonable).encode()


def _jsonable(value: object) -> Any:
    """Returns a value as pydantic writes it. Raises ValueError if it has no JSON form."""
    return json.loads(to_json(value), object_pairs_hook=_unique)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"two keys of a mapping are {twice[:100]!r} in JSON")
    return found


def parsed(text: bytes, what: str) -> dict[str, Any]:
    """Returns a JSON object out of the record; empty when there is none. Raises CorruptRecord."""
    if not text or text == b"{}":
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"the record's {what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptRecord(f"the record's {what} is not a JSON object")
    return value


def explain(error: ValidationError) -> str:
    """Returns each mistake with its place in the data."""
    lines = [
        f"{'.'.join(map(str, item['loc'])) or 'data'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    return "; ".join(lines[:10])


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def dump(value: object) -> bytes:
    return _ENCODER.encode(value).encode()
