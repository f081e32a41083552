"""Caches the published task types with a compiled validator for each.

During an update workers have different versions of a type; a task is accepted when any version accepts it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firmq.shared.domain import validation_messages
from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.http_task import HTTP_TYPE, mistakes
from firmq.shared.domain.json_schema import MESSAGE, Validator, compile_schema
from firmq.shared.domain.task import INTERNAL_TYPES, RQ_TYPE
from firmq.shared.stores.task_types import Offer, TaskType, TaskTypes, absence
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

log = logging.getLogger(__name__)

NO_TYPES = "no worker has registered its task types yet: start one (firmq worker)"
_OFFERED_WITH = {HTTP_TYPE: "HTTP_TASK_HOSTS", RQ_TYPE: "RQ_ALLOW (names such as shop.jobs.*) and RQ_TASK_QUEUES"}
MOST_ERRORS = 20
MOST_COMPILED = 20_000
"""Maximum compiled versions; more than any update leaves."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class CheckedVersion:
    """A version of a type with its validator."""

    type: TaskType
    validator: Validator | None


@dataclass(frozen=True, slots=True)
class CheckedType:
    """A type with its versions that workers offer, newest first."""

    offer: Offer
    versions: tuple[CheckedVersion, ...]

    def check(self, data: Any) -> None:
        """Raises Refusal unless a version accepts the data, with each mistake under the newest version."""
        if self.accepts(data):
            return
        usable = [each for each in self.versions if each.validator]
        if not usable:
            raise Refusal(
                refusals.NO_TYPES,
                f"the schema published for {self.offer.name!r} cannot be compiled; the log has the error",
            )
        raise invalid_data(usable[0].validator, usable[0].type.schema, data)

    def accepts(self, data: Any) -> bool:
        """Returns whether a version accepts the data."""
        return any(each.validator is not None and each.validator.is_valid(data) for each in self.versions)


def invalid_data(validator: Validator | None, schema: Mapping[str, Any], data: Any) -> Refusal:
    """Returns the refusal of data that a schema does not accept."""
    return refusals.invalid(list(_mistakes(validator, schema, data)))


def unknown_type(name: str, known: Sequence[str]) -> Refusal:
    """Returns the refusal of a type that is not among those `known`."""
    unknown = f"{validation_messages.shown(name)} is not a task type that a worker offers"
    detail = f"{unknown}: use one of {validation_messages.choices(known)}"
    detail += f", or set {_OFFERED_WITH[name]} for a worker" if name in _OFFERED_WITH else ""
    return refusals.invalid(
        [refusals.field_error(("type",), detail)], refusals.UNKNOWN_TYPE, known_types=list(known[:200])
    )


def _mistakes(validator: Validator | None, schema: Mapping[str, Any], data: Any) -> Iterator[dict[str, str]]:
    found = validator.iter_errors(data) if validator else iter(())
    for _, mistake in zip(range(MOST_ERRORS), found, strict=False):
        yield refusals.field_error(("data", *mistake.instance_path), _text(mistake, schema))


class TypeCache:
    """The published types, refreshed when older than `fresh` seconds, and once for a request that fails validation.

    A schema is compiled when the first task of its type is checked.
    """

    def __init__(
        self,
        types: TaskTypes,
        clock: Callable[[], float] = time.monotonic,
        *,
        fresh: float = 1.0,
        http_task_policy: EgressPolicy | None = None,
        refuse_without_worker: bool = False,
    ) -> None:
        self.types = types
        self.fresh = fresh
        self.clock = clock
        self.http_task_policy = http_task_policy
        self.refuse_without_worker = refuse_without_worker
        self.lock = threading.RLock()
        self.checked: dict[str, CheckedType] = {}
        self.compiled: dict[str, CheckedVersion] = {}
        self.read_at = -math.inf

    def check(self, name: str, data: Any, since: float | None = None) -> None:
        """Raises Refusal when the type is unknown, no version accepts the data, or no worker can run it.

        A caller that checks many tasks passes the time `since` when it began, by `clock`; the cache is then refreshed
        at most once for all of them. Webhook deliveries cannot be submitted, because they are signed as our own.
        """
        self._keep_fresh()
        try:
            self._find(name).check(data)
        except Refusal:
            if name in INTERNAL_TYPES or (since is not None and self.read_at >= since):
                raise
            self._read_again(self.read_at)
            self._find(name).check(data)
        if name == HTTP_TYPE and self.http_task_policy:
            self._check_call(data, self.http_task_policy)

    def check_queue(self, name: str, queue: str | None) -> None:
        """Raises Refusal for a task of the type `rq` in a queue of RQ, whose workers would take it for a job."""
        found = self.get(name) if queue and name == RQ_TYPE else None
        if found and queue in found.schema.get("properties", {}).get("queue", {}).get("enum", ()):
            raise refusals.invalid([refusals.field_error(("queue",), f"{queue} is one of RQ: name it in data.queue")])

    def _check_call(self, data: Any, egress_policy: EgressPolicy) -> None:
        """Raises Refusal for a call that the egress policy forbids; the worker checks it again."""
        if wrong := list(mistakes(data["url"], data.get("headers", ()), egress_policy)):
            raise refusals.invalid([refusals.field_error(("data", *place), text) for place, text in wrong])

    def accepts(self, name: str, data: Any) -> bool:
        """Returns whether the data is valid for sure, without asking Redis; `check` decides about the rest."""
        found = self.checked.get(name)
        if found is None or name == HTTP_TYPE or self.clock() - self.read_at >= self.fresh:
            return False
        return found.accepts(data) and not (self.refuse_without_worker and found.offer.is_gone(self.types.now))

    def _find(self, name: str) -> CheckedType:
        found = self._known(name) if name not in INTERNAL_TYPES else None
        if found is None:
            raise self._unknown(name)
        if self.refuse_without_worker and found.offer.is_gone(self.types.now):
            raise Refusal(
                refusals.NO_WORKER,
                f"{absence(found.offer, self.types.now)}: start one that offers it, or unset REFUSE_WITHOUT_WORKER",
                headers={"Retry-After": "5"},
            )
        return found

    def _known(self, name: str) -> CheckedType | None:
        checked = self.checked  # which another thread may replace meanwhile
        found = checked.get(name)
        if found is None and (offer := self.types.find(name)):
            found = checked[name] = CheckedType(offer, tuple(filter(None, map(self._compiled, offer.versions))))
        return found

    def _compiled(self, version: str) -> CheckedVersion | None:
        found = self.compiled.get(version)
        if found is None and (published := self.types.version(version)):
            found = self.compiled[version] = CheckedVersion(published, _validator(published))
        return found

    def names(self) -> list[str]:
        """Returns all known names except the internal ones."""
        self._keep_fresh()
        return [each for each in self.types.names() if each not in INTERNAL_TYPES]

    def refuses_all(self, refusal: Refusal) -> bool:
        """Returns whether a refusal is because there are no types, so that it applies to every task."""
        return refusal.kind is refusals.NO_TYPES and not self.names()

    def offers(self) -> Iterator[tuple[TaskType, Offer]]:
        """Yields the newest version of every type by name, with its availability."""
        self._keep_fresh()
        for each in self.types.known():
            offer = self.types.find(each.name)
            if offer and each.name not in INTERNAL_TYPES:
                yield each, offer

    def queue_of(self, name: str) -> str | None:
        """Returns the queue that the newest version of a type names, if any."""
        found = self.get(name)
        return found.queue if found else None

    def get(self, name: str) -> TaskType | None:
        """Returns the newest version of a type, or None."""
        self._keep_fresh()
        return self.types.newest(name)

    def offer(self, name: str) -> Offer | None:
        """Returns the availability of a type, or None."""
        self._keep_fresh()
        return self.types.find(name)

    def warnings(self, name: str) -> list[str]:
        """Returns warnings for a submission of this type."""
        offer = self.types.find(name)
        return [absence(offer, self.types.now)] if offer and offer.is_gone(self.types.now) else []

    def _keep_fresh(self) -> None:
        # One thread refreshes; the others use the cached types.
        if self.clock() - self.read_at >= self.fresh and self.lock.acquire(blocking=self.read_at < 0):
            try:
                if self.clock() - self.read_at >= self.fresh:
                    self._read()
            finally:
                self.lock.release()

    def _read_again(self, before: float) -> None:
        with self.lock:
            if self.read_at == before:
                self._read()

    def _read(self) -> None:
        now = self.clock()
        self.types.refresh()
        self.checked = {}
        if len(self.compiled) > MOST_COMPILED:
            self.compiled = {}
        self.read_at = now

    def _unknown(self, name: str) -> Refusal:
        known = self.names()
        if not known:
            return Refusal(refusals.NO_TYPES, f"{NO_TYPES}, then send this again", headers={"Retry-After": "5"})
        return unknown_type(name, known)


def _validator(published: TaskType) -> Validator | None:
    """Compiles a schema. Returns None if that fails."""
    try:
        return compile_schema(published.schema)
    except ValueError:
        log.exception("published schema of a task type cannot be compiled", extra={"type": published.name})
        return None


def _text(mistake: Any, schema: Mapping[str, Any]) -> str:
    """Returns the message of jsonschema-rs; the schema's own, or the list of allowed types, replaces it."""
    rule = _part(schema, mistake.schema_path[:-1])
    if isinstance(rule, dict) and isinstance(own := rule.get(MESSAGE), str):
        return own
    if mistake.schema_path and mistake.schema_path[-1] in ("anyOf", "oneOf"):
        kinds = _alternatives(_part(schema, mistake.schema_path))
        if kinds:
            return f"must be {validation_messages.either(kinds)}, got {validation_messages.shown(mistake.instance)}"
    text: str = mistake.message
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _part(schema: Any, path: Sequence[str | int]) -> Any:
    """Returns the part of a schema at a path; an empty list when there is none, as below a reference."""
    for at in path:
        try:
            schema = schema[at]
        except (KeyError, IndexError, TypeError):
            return []
    return schema


def _alternatives(rules: Sequence[Any]) -> list[str]:
    kinds = [each.get("type") for each in rules if isinstance(each, dict)]
    return [str(kind) for kind in kinds] if all(kinds) else []
