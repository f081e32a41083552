"""Reads the relatives of a task, a few steps far: its parents and the tasks that depend on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.task import On, TaskState
from firmq.shared.redis.client import keys_of, text, translated
from firmq.shared.redis.quarantine import without_corrupt

if TYPE_CHECKING:
    from redis import Redis

STEPS = 3
"""How many steps are followed in each direction."""
MOST = 40
"""Tasks that are shown at most: a bound for Redis and for the reader."""
MOST_CHILDREN = 50
"""Children that a record names; `_parents.lua` has the same number."""
_FIELDS = ("description", "state", "parents", *(f"child:{number}" for number in range(1, MOST_CHILDREN + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A task in the graph; without a state when its record is removed or corrupt."""

    id: str
    type: str
    state: TaskState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """A dependency of one task on another."""

    parent: str
    child: str
    on: On


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """The relatives of a task, itself included; `cut` when there are more than these."""

    relatives: Mapping[str, Relative]
    dependences: Sequence[Dependence]
    cut: bool


def read_relations(redis: Redis, task_id: str) -> Relations:
    """Returns the relatives of a task, the nearest first."""
    found: dict[str, Relative] = {}
    dependences: dict[tuple[str, str], Dependence] = {}
    ahead, cut = [task_id], False
    for step in range(STEPS + 1):
        room = MOST - len(found)
        cut = cut or len(ahead) > room
        rows = _read(redis, ahead[:room])
        following: dict[str, None] = {}
        for each, row in rows.items():
            found[each] = _relative(each, row)
            for dependence in _parents(each, row):
                dependences[dependence.parent, each] = dependence
                following[dependence.parent] = None
            following.update(dict.fromkeys(text(child) for child in row[3:] if child))
        ahead = [each for each in following if each not in found]
        cut = cut or (step == STEPS and bool(ahead))
    among = [each for each in dependences.values() if each.parent in found and each.child in found]
    return Relations(relatives=found, dependences=among, cut=cut)


def _read(redis: Redis, ids: Iterable[str]) -> dict[str, Sequence[Any]]:
    wanted = list(ids)
    with translated(), redis.pipeline(transaction=False) as pipeline:
        for each in wanted:
            pipeline.hmget(keys_of(redis).rq_job(each), _FIELDS)
        rows = without_corrupt(pipeline.execute(raise_on_error=False), [None] * 3)
    return dict(zip(wanted, rows, strict=True))


def _relative(task_id: str, row: Sequence[Any]) -> Relative:
    state = text(row[1]) if row[1] else ""
    known = TaskState(state) if state in list(TaskState) else None
    return Relative(id=task_id, type=row[0].decode(errors="replace") if row[0] else "?", state=known)


def _parents(task_id: str, row: Sequence[Any]) -> list[Dependence]:
    try:
        return [
            Dependence(parent=str(parent), child=task_id, on=On(on)) for parent, on, *_ in json.loads(row[2] or b"[]")
        ]
    except UNREADABLE:
        return []  # a corrupt record; its own page shows that
