"""What a gateway checks before it takes a task, with the same kinds of problems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from shared.client.problems import Refused
from shared.config.settings import Settings
from worker.handlers.registry import Handler


class Validator:
    """Refuses an unknown type, data that does not fit, an unknown priority, and parents that are not there."""

    def __init__(self, handlers: Mapping[str, Handler], settings: Settings) -> None:
        self.handlers = handlers
        self.priorities = {**{name: name for name in settings.queues}, "default": settings.default_priority}
        self.default = settings.default_priority

    def check(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """The data as JSON text, and the queue. Raises Refused."""
        handler = self.handlers.get(body["type"])
        if handler is None:
            known = sorted(self.handlers)
            text = f"{body['type']!r} is no task type that is registered here: known are {', '.join(known)}"
            raise _refused("unknown-task-type", "Unknown task type", {"type": text}, known_types=known)
        wished = body.get("priority", self.default)
        if wished not in self.priorities:
            choices = ", ".join(self.priorities)
            raise _invalid({"priority": f"must be one of {choices}, got {wished!r}"})
        text = json.dumps(body["data"], allow_nan=False)
        validator = jsonschema_rs.validator_for(dict(handler.schema), offline=True)
        mistakes = {_field(each.instance_path): each.message for each in validator.iter_errors(json.loads(text))}
        if mistakes:
            raise _invalid(mistakes)
        return text, self.priorities[wished]

    def no_parent(self, at: int, task_id: str) -> Refused:
        """It depends on a task that there is not."""
        return _refused("missing-parent", "Missing parent", {f"depends_on[{at}]": f"there is no task {task_id}"})

    def key_reused(self) -> Refused:
        """The same Idempotency-Key came with another body."""
        document = {"type": "/problems/idempotency-key-reused", "title": "Idempotency-Key reused", "status": 422}
        return Refused({**document, "detail": "another request was sent with this Idempotency-Key before"})

    def resolved(self, at: int, dependency: Any, ids: Mapping[int | str, str]) -> Any:
        """A dependency by id, where it named a task of the same batch by place or name. Raises Refused."""
        named = dependency if isinstance(dependency, Mapping) else {"item": dependency}
        if isinstance(dependency, str) or "item" not in named:
            return dependency
        if named["item"] not in ids:
            raise _invalid({f"depends_on[{at}].item": f"names no earlier task of this batch: {named['item']!r}"})
        return {"task_id": ids[named["item"]], "on": named.get("on", "success")}


def _invalid(mistakes: Mapping[str, str]) -> Refused:
    return _refused("invalid-request", "Invalid request", mistakes)


def _refused(slug: str, title: str, mistakes: Mapping[str, str], **more: Any) -> Refused:
    errors = [{"field": field, "detail": text} for field, text in mistakes.items()]
    detail = "; ".join(f"{field}: {text}" for field, text in mistakes.items())
    about = {"type": f"/problems/{slug}", "title": title, "status": 422, "detail": detail}
    return Refused({**about, "errors": errors, **more})


def _field(path: Any) -> str:
    """data.items[2], as the gateway spells it."""
    return "data" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
