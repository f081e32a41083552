"""The registered task types: workers publish them, the gateway checks against them.

The gateway never imports a handler. It knows a type by its name and by the JSON Schema of its data, which a worker
made from the handler's signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from shared import keys
from shared.limits import Limit
from shared.readable import UNREADABLE, as_declared
from shared.redis_client import raw, translated
from shared.retry import RetryPolicy

if TYPE_CHECKING:
    from redis import Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """A type as it is published. `timeout` is in seconds; `retry` holds what differs from the general policy.

    Its limit is not part of that: it is declared to `shared.limits`, where it can be changed while workers run.
    """

    name: str
    schema: Mapping[str, Any]
    description: str = ""
    timeout: float | None = None
    retry: Mapping[str, float] = field(default_factory=dict)
    limit: Limit | None = None


def read_type(fields: Mapping[str, Any]) -> TaskType:
    """A type as `dataclasses.asdict` took it apart."""
    limit = fields.get("limit")
    return TaskType(**{**fields, "limit": Limit(**limit) if limit else None})


class TaskTypes:
    """The register of types."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def publish(self, types: Iterable[TaskType]) -> None:
        """Adds types or replaces them by name."""
        mapping = {each.name: json.dumps(_published(each), sort_keys=True) for each in types}
        if mapping:
            with translated():
                self.redis.hset(keys.TYPES, mapping=mapping)  # type: ignore[arg-type]

    def all(self) -> list[TaskType]:
        """Every published type by name; an entry that cannot be read is left out."""
        with translated():
            entries = self.redis.hgetall(keys.TYPES)
        found = (_read(raw(entry)) for entry in entries.values())
        return sorted((each for each in found if each), key=lambda each: each.name)


def _published(each: TaskType) -> dict[str, Any]:
    return {name: value for name, value in asdict(each).items() if name != "limit"}


def _read(entry: bytes) -> TaskType | None:
    try:
        found = as_declared(TaskType(**json.loads(entry)))
        RetryPolicy().override(found.retry)
    except UNREADABLE:
        return None
    return found
