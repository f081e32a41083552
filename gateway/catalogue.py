"""The task types as the gateway checks against them: what workers published, with a compiled validator each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jsonschema_rs

from gateway import errors, wording
from gateway.errors import Refusal
from shared.task_types import TaskType, TaskTypes
from shared.tasks import WEBHOOK_TYPE

FRESH = 1.0
"""Seconds for which what was read is believed."""
NO_TYPES = "no worker has registered its task types yet: start one (python -m worker)"
MOST_ERRORS = 20
_SHOWN = 300


class Validator(Protocol):
    """The part of a jsonschema-rs validator that is used here."""

    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True)
class CheckedType:
    """A published type and the means to check its data."""

    type: TaskType
    validator: Validator | None

    def check(self, data: Any) -> None:
        """Raises Refusal naming each place in the data that does not fit the type's schema."""
        if self.validator is None:
            raise Refusal(
                errors.NO_TYPES, f"the schema that workers published for {self.type.name!r} cannot be used: see the log"
            )
        if not self.validator.is_valid(data):
            raise errors.invalid(list(self._mistakes(data)))

    def _mistakes(self, data: Any) -> Iterator[dict[str, str]]:
        found = self.validator.iter_errors(data) if self.validator else iter(())
        for _, mistake in zip(range(MOST_ERRORS), found, strict=False):
            yield errors.field_error(("data", *mistake.instance_path), _text(mistake, self.type.schema))


class Catalogue:
    """The published types, read again about once a second, and once for a request that names one that is not there."""

    def __init__(self, types: TaskTypes, clock: Callable[[], float] = time.monotonic) -> None:
        self.types = types
        self.clock = clock
        self.lock = threading.Lock()
        self.known: Mapping[str, CheckedType] = {}
        self.read_at = -FRESH

    def find(self, name: str, since: float | None = None) -> CheckedType:
        """The type of this name. Raises Refusal when there is none, with those there are.

        Whoever asks for many names says since when he asks, by our clock: what was read later than that answers for all
        that are missing. Nobody can submit a webhook's delivery: it would be signed as ours.
        """
        if name == WEBHOOK_TYPE:
            raise self._unknown(name)
        self._keep_fresh()
        found = self.known.get(name)
        if found is None and (since is None or self.read_at < since):
            self._read()
            found = self.known.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def all(self) -> Sequence[TaskType]:
        """Every published type by name."""
        self._keep_fresh()
        return [checked.type for name, checked in self.known.items() if name != WEBHOOK_TYPE]

    def get(self, name: str) -> TaskType | None:
        """The type of this name as last read, for showing a task."""
        self._keep_fresh()
        found = self.known.get(name)
        return found.type if found else None

    def _keep_fresh(self) -> None:
        # One thread reads; the others go on with what is known.
        if self.clock() - self.read_at >= FRESH and self.lock.acquire(blocking=not self.known):
            try:
                if self.clock() - self.read_at >= FRESH:
                    self._read()
            finally:
                self.lock.release()

    def _read(self) -> None:
        before, now = self.known, self.clock()
        self.known = {each.name: _checked(each, before.get(each.name)) for each in self.types.all()}
        self.read_at = now

    def _unknown(self, name: str) -> Refusal:
        known = [each.name for each in self.all()]
        if not known:
            return Refusal(errors.NO_TYPES, f"{NO_TYPES}, then send this again", headers={"Retry-After": "5"})
        detail = f"{wording.shown(name)} is no task type that a worker offers: known are {wording.choices(known)}"
        return errors.invalid([errors.field_error(("type",), detail)], errors.UNKNOWN_TYPE, known_types=known[:200])


def _checked(published: TaskType, before: CheckedType | None) -> CheckedType:
    if before is not None and before.type == published:
        return before
    return CheckedType(published, _validator(published))


def _validator(published: TaskType) -> Validator | None:
    """None for a schema that cannot be compiled.

    Nothing is fetched for a `$ref`, and patterns run in linear time, whatever was published.
    """
    try:
        validator: Validator = jsonschema_rs.validator_for(
            dict(published.schema), offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        errors.log.exception("the published schema of a task type cannot be used", extra={"type": published.name})
        return None
    return validator


def _text(mistake: Any, schema: Mapping[str, Any]) -> str:
    """What jsonschema-rs says; of alternatives it says only that none fits, and people want to know which there are."""
    if mistake.schema_path and mistake.schema_path[-1] in ("anyOf", "oneOf"):
        kinds = _alternatives(schema, mistake.schema_path)
        if kinds:
            return f"must be {wording.either(kinds)}, got {wording.shown(mistake.instance)}"
    text: str = mistake.message
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _alternatives(schema: Mapping[str, Any], path: Sequence[str | int]) -> list[str]:
    node: Any = schema
    for part in path:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return []
    kinds = [each.get("type") for each in node if isinstance(each, dict)]
    return [str(kind) for kind in kinds] if all(kinds) else []
