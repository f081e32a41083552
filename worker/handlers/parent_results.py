"""Parents' results: the outcomes of the tasks that a task waited for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from firmq.shared.domain.payload import PayloadReference, decode_result
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import CorruptRecord, FirmqError

Load: TypeAlias = Callable[[PayloadReference], bytes]
"""Reads a payload. Raises PayloadUnavailable."""


class ResultUnavailable(FirmqError):
    """A parent has no result for its child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentTask:
    """A parent of the running task.

    `state` is None when its record is removed. `error` is the class and message of its failure, if it failed.
    """

    id: str
    state: TaskState | None
    error: str | None = None
    answer: bytes | None = field(default=None, repr=False)
    too_large: bool = False
    load: Load | None = field(default=None, repr=False, compare=False)

    @property
    def result(self) -> Any:
        """Returns its result; one in the payload store is read at each access.

        Raises ResultUnavailable when it did not complete, or is too large to pass on, and PayloadUnavailable.
        """
        if self.too_large:
            raise ResultUnavailable(
                f"the results of the parents are too large together, and the one of {self.id} was left out: "
                "set PAYLOAD_STORE, or return where a large result is, not the result itself"
            )
        if self.answer is None:
            raise ResultUnavailable(f"task {self.id} has no result: it is {self.state or 'gone'}")
        found = decode_result(self.answer)
        if isinstance(found, PayloadReference):
            if self.load is None:
                raise ResultUnavailable(f"the result of task {self.id} is in a payload store, and there is none here")
            found = self.load(found)
        return json.loads(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBatch:
    """The batch that a task follows: its tasks by outcome."""

    id: str
    name: str
    total: int
    completed: int
    failed: int
    cancelled: int
    expired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentResults:
    """The parents by id, in the order of the task, and the batch before it."""

    parents: Mapping[str, ParentTask] = field(default_factory=dict)
    batch: EndedBatch | None = None


NONE = ParentResults()


def read_parent_results(text: bytes, load: Load | None = None) -> ParentResults:
    """Returns the parents' results from the answer of `claim.lua`; `load` reads payloads. Raises CorruptRecord."""
    if not text:
        return NONE
    try:
        relations = json.loads(text)
        parents = [_parent(load, *each) for each in relations.get("parents", ())]
        batch = relations.get("batch")
        return ParentResults(parents={each.id: each for each in parents}, batch=_batch(batch) if batch else None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecord(f"corrupt parents' results: {error}") from error


def _parent(load: Load | None, task_id: str, state: str, found: str) -> ParentTask:
    name, _, large = state.partition(" ")
    known = None if name == "gone" else TaskState(name)
    if known is TaskState.COMPLETED:
        answer = (found or "bnVsbA==").encode() if not large else None
        return ParentTask(id=task_id, state=known, answer=answer, too_large=bool(large), load=load)
    return ParentTask(id=task_id, state=known, error=_error(found) if found else None)


def _error(text: str) -> str:
    about = json.loads(text)
    return f"{about.get('type')}: {about.get('message')}"


def _batch(fields: Mapping[str, str]) -> EndedBatch:
    numbers = {name: int(fields.get(name, 0)) for name in ("total", "completed", "failed", "cancelled", "expired")}
    return EndedBatch(id=fields["id"], name=fields.get("name", ""), **numbers)
