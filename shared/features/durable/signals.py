"""Signals: data that is sent to a task, and received by its handler once it waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from firmq.shared.domain import validation_messages
from firmq.shared.domain.json_schema import compile_schema
from firmq.shared.domain.step import SIGNAL_NAME, read_step, schema_member
from firmq.shared.errors import IllegalTransition, TaskNotFound
from firmq.shared.features.durable.settings import DurableSettings
from firmq.shared.redis.client import text, translated
from firmq.shared.submission.type_cache import invalid_data

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings
    from firmq.shared.redis.scripts import Scripts

Check: TypeAlias = "Callable[[Any, Any], object]"


class Signals:
    """Sends signals to tasks, whose steps have these bounds."""

    def __init__(self, scripts: Scripts, most: int = 1000, most_bytes: int = 1 << 20) -> None:
        """`most` and `most_bytes` bound the steps of a task, as signals are steps of it."""
        self.scripts = scripts
        self.bounds = (most, most_bytes)

    @classmethod
    def of(cls, scripts: Scripts, settings: Settings) -> Signals:
        """Returns signals with the bounds of the settings."""
        own = DurableSettings.of(settings)
        return cls(scripts, own.max_steps, own.max_steps_bytes)

    def send(
        self, task_id: str, name: str, data: Any, by: str, replaces: str = "", check: Check = lambda *_: None
    ) -> bool:
        """Stores a signal with its task, and wakes the task if it waits for that. Returns whether it has replaced one.

        The same data may be sent again; `replaces` ("operate" or "admin") is who may replace it. `check` raises for
        data that does not fit the schema of the signal. Raises ValueError for a name, TaskNotFound, and
        IllegalTransition for an ended task, and for a signal that is there with other data, is too late, or does not
        fit.
        """
        if not SIGNAL_NAME.fullmatch(name):
            raise ValueError(
                f"{name[:100]!r} is not a name of a signal: use letters, digits, `.`, `_` and `-`, at most 90"
            )
        value = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
        found, what, checked, member = b"", b"typed", b"", b""
        while what == b"typed":
            sent = (task_id, name, json.dumps(by), value, *self.bounds, replaces, checked, member)
            with translated():
                found, what, *record = self.scripts.call_answered("signal_send", *sent)
            for checked in record:
                if schema := read_step(name, checked).schema:
                    check(schema, data)
                member = schema_member(schema)
        if not found:
            raise TaskNotFound(id=task_id)
        if what not in (b"stored", b"replaced"):
            raise IllegalTransition(f"signal {name!r} is not stored: {_REFUSALS[text(what)]}", state=text(found))
        return bool(what == b"replaced")


def check_signal(schema: Mapping[str, Any], data: Any) -> None:
    """Raises Refusal for data of a signal that its schema does not accept."""
    validator = compile_schema(schema)
    if not validator.is_valid(data):
        refusal = invalid_data(validator, schema, data)
        if data is None and (names := schema.get("properties")):
            refusal.detail += f"; send an object with {validation_messages.choices(names)}"
        raise refusal


_REFUSALS = {
    "ended": "the task has ended",
    "other": "the task already has it, with other data: replace it, or use another name",
    "received": "its handler has received it: an admin can replace it, or any operator once the task is a dead letter",
    "late": "its time-out has passed, so the task no longer waits for it",
    "many": "the task has as many steps as MAX_STEPS allows",
    "large": "the steps of the task would exceed MAX_STEPS_BYTES: send a reference to the data instead",
}
