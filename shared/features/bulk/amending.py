"""Changes the data of dead letters by a JSON merge patch, validated as in a submission."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from firmq.shared.domain import strict_json, task_data
from firmq.shared.domain.redaction import Redaction
from firmq.shared.domain.task import INTERNAL_TYPES
from firmq.shared.errors import CorruptRecord, TaskNotFound
from firmq.shared.features.bulk.store import BulkActions, Plan
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.type_cache import TypeCache

CHECKED = 500
"""Dead letters that are checked before an action begins; all others before each is changed."""
BYTES = 4 << 20
"""Data that one step of an action changes, so that one command to Redis stays small."""


class Change(NamedTuple):
    """The data of a dead letter before and after a change, and why that cannot be done ("" if it can)."""

    task_id: str
    task_type: str
    before: Any
    after: Any
    problem: str


class Amendments:
    """The changes of data that bulk actions make."""

    def __init__(self, bulk_actions: BulkActions, types: TypeCache, redaction: Redaction) -> None:
        self.bulk_actions = bulk_actions
        self.records = bulk_actions.records
        self.types = types
        self.redaction = redaction

    def preview(self, plan: Plan) -> list[Change]:
        """Returns the changes of the first tasks of a plan; none without a patch."""
        found = self.bulk_actions.sample(plan, CHECKED) if plan.patch else []
        return list(self._changes([each.id for each in found], plan.patch))

    def stored(self, ids: Iterable[str], patch: Any) -> dict[str, str]:
        """Returns the changed data of the first of these tasks as it is stored; "" where it would not be valid."""
        found, size = dict[str, str](), 0
        for each in self._changes(ids, patch):
            text = strict_json.dump(each.after)
            data = "" if each.problem else self.records.payloads.data_of(each.task_id, text)
            found[each.task_id] = task_data.encode(each.task_type, data) if data else ""
            size += len(text)
            if size > BYTES:
                break
        return found

    def in_words(self, plan: Plan) -> str:
        """Returns a description of the change for people, without hidden values."""
        return f", with data changed by {json.dumps(self.redaction.hide(plan.patch))}" if plan.patch else ""

    def _changes(self, ids: Iterable[str], patch: Any) -> Iterator[Change]:
        for each in ids:
            try:
                found = self.records.get(each)
            except (TaskNotFound, CorruptRecord):
                continue
            kind, after = found.summary.type, merged(found.data, patch)
            yield Change(each, kind, found.data, after, found.summary.corrupt or self._problem(kind, after))

    def _problem(self, task_type: str, data: Any) -> str:
        if task_type in INTERNAL_TYPES:
            return "the data of internal types cannot be changed"
        try:
            self.types.check(task_type, data)
        except Refusal as refusal:
            if refusal.kind is refusals.INVALID:
                quotes = self.redaction.hide(data) != data
                return "the data does not match the schema" if quotes else refusal.detail
        return ""


def merged(data: Any, patch: Any) -> Any:
    """Returns data changed by a JSON merge patch (RFC 7396): its fields are set, those that are null removed."""
    if not isinstance(patch, dict):
        return patch
    changed = dict(data) if isinstance(data, dict) else {}
    for name, value in patch.items():
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = merged(changed.get(name), value)
    return changed


def misfit(changes: Sequence[Change]) -> str:
    """Returns why an action with these changes must not begin; "" if all of them are valid."""
    wrong = [each for each in changes if each.problem]
    return (
        f"{len(wrong):,} of {len(changes):,} dead letters that were checked cannot have this data, such as "
        f"{wrong[0].task_id}: {wrong[0].problem}. Nothing was changed: correct the patch, or choose other tasks"
        if wrong
        else ""
    )
