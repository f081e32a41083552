"""Creates the tasks of a batch from earlier ones: fills a template with the data and the result of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from firmq.gateway.auth.visible import visible
from firmq.gateway.http import errors
from firmq.gateway.schemas.batches import EarlierTasks
from firmq.shared.domain.task import TaskDetail, TaskState
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.idempotency import Begun, Idempotency
from firmq.shared.stores.selection import Room, Selection
from firmq.shared.stores.tasks import Records
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

MOST = 10_000
MOST_BYTES = 64 * 1024 * 1024
"""Of all tasks of a batch together, which a gateway process holds in memory."""
VALUE_BYTES = 64
"""Memory that a value takes beside its text."""
AT_A_TIME = 2
MOST_REFERENCES = 100
REFERENCE = "$from"
_ROOTS = ("id", "data", "result")


class EarlierTaskReader:
    """Selects earlier tasks, and fills templates in with them."""

    def __init__(self, records: Records, batches: Batches, idempotency: Idempotency, max_task_bytes: int) -> None:
        self.records = records
        self.max_task_bytes = max_task_bytes
        self.batches = batches
        self.idempotency = idempotency
        self.room = Room(AT_A_TIME, "batches from earlier tasks")

    def tasks(self, wanted: EarlierTasks, template: Mapping[str, Any], begun: Begun | None) -> list[Any]:
        """Returns a task for each earlier one in their order, or the refusal of one that lacks a value.

        A repeated request gets the tasks that its first one selected. Raises Refusal, BatchNotFound and
        PayloadUnavailable.
        """
        check_template(template)
        selected = begun.selected if begun else None
        if selected is None:
            selected = self._select(wanted)
            if begun:
                self.idempotency.select(begun, selected)
        return list(self._filled(selected, template))

    def _select(self, wanted: EarlierTasks) -> list[str]:
        selection, ids = Selection(self.records, self.batches, wanted.source), list[str]()
        for chunk in selection:
            ids = (ids + [each.id for each in chunk])[: wanted.limit]
            if len(ids) > MOST:
                raise _refused(
                    ("from",), f"matches more than {MOST} tasks: narrow it, for example with since and until"
                )
            if len(ids) == wanted.limit:
                break
        if not selection.is_complete and len(ids) != wanted.limit:
            raise _refused(("from",), "has to examine too many tasks: narrow it, for example with status and type")
        if not ids:
            raise _refused(("from",), "matches no task: nothing was created")
        return ids if wanted.batch_id else ids[::-1]

    def _filled(self, ids: list[str], template: Mapping[str, Any]) -> Iterator[Any]:
        total = 0
        for each, found in self.records.read_each(ids):
            if found is None:
                yield _refused(("from",), f"task {each} is no longer on record")
                continue
            try:
                task = self._fill(template, found.detail)
            except LookupError as error:
                yield _refused(("task", "data"), f"{error.args[0]} of task {each}")
                continue
            size = len(said := json.dumps(task))
            total += size + VALUE_BYTES * sum(map(said.count, ",{["))
            if total > MOST_BYTES:
                limit = f"{MOST_BYTES >> 20} MiB"
                raise _refused(("from",), f"selects tasks that take more than {limit} of memory together: narrow it")
            if size <= self.max_task_bytes:
                yield task
            else:
                detail = f"would have {size} bytes with the values of task {each}, {self.max_task_bytes} are allowed"
                yield _refused(("task",), detail)

    def _fill(self, template: Mapping[str, Any], found: TaskDetail) -> dict[str, Any]:
        """Returns the template with values in place of references. Raises LookupError for a value that is missing."""
        values: dict[str, Any] = {"id": found.summary.id}
        for root in {path.partition(".")[0] for path in _references(template)} - values.keys():
            if root == "result" and found.summary.state is not TaskState.COMPLETED:
                raise LookupError(f"there is no result, but the status {found.summary.state},")
            values[root] = self.records.payloads.read(found.data if root == "data" else found.result)
        seen = {root: visible(value) for root, value in values.items()}
        filled = _replaced(template, values)
        if seen != values and _replaced(template, seen) != filled:
            raise Refusal(errors.SCOPE, "DASHBOARD_REDACT hides some of these fields from personal API keys")
        return {**filled, "item": found.summary.id}


def check_template(template: Mapping[str, Any]) -> None:
    """Raises Refusal for references that no task can have."""
    paths = list(_references(template))
    if len(paths) > MOST_REFERENCES:
        raise _refused(
            ("task", "data"), f"has {len(paths)} values of the earlier task, at most {MOST_REFERENCES} are allowed"
        )
    for path in paths:
        if not isinstance(path, str) or path.partition(".")[0] not in _ROOTS:
            raise _refused(
                ("task", "data"), f"{REFERENCE} must be id, data or result, or a field of these: result.url; got {path}"
            )


def _references(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        if part.keys() == {REFERENCE}:
            yield part[REFERENCE]
        else:
            for each in part.values():
                yield from _references(each)
    elif isinstance(part, list):
        for each in part:
            yield from _references(each)


def _replaced(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        if part.keys() == {REFERENCE}:
            return _value_at(values, part[REFERENCE])
        return {name: _replaced(each, values) for name, each in part.items()}
    return [_replaced(each, values) for each in part] if isinstance(part, list) else part


def _value_at(values: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(values, list) and name.isdecimal() and int(name) < len(values):
            values = values[int(name)]
        elif isinstance(values, dict) and name in values:
            values = values[name]
        else:
            raise LookupError(f"there is no {path} in the record")
    return values


def _refused(path: tuple[str, ...], detail: str) -> Refusal:
    return refusals.invalid([refusals.field_error(path, detail)])
