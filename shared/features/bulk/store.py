"""Cancels, runs, moves, retries, deletes or restores many tasks at a chosen rate, in the background.

An action is stored in Redis, so that it survives the process that began it. The housekeeper that holds the lock of the
job `bulk` carries it out; each step records its work and the progress (`bulk_step.lua`). Requeued tasks are
followed until they have ended (`bulk_follow.lua`): about a hundred bytes for each that has not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from firmq.shared.domain.clock import instant, instant_us, to_us
from firmq.shared.domain.decode import UNREADABLE, whole
from firmq.shared.domain.duration import duration
from firmq.shared.domain.lock import NO_LOCK, FencingToken
from firmq.shared.domain.task import ENDED, TaskState, TaskSummary
from firmq.shared.errors import TooManyAtOnce
from firmq.shared.failpoints import failpoint
from firmq.shared.features.bulk.keys import BulkKeys
from firmq.shared.redis.client import text, translated
from firmq.shared.stores.tasks import Filter

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument, Scripts
    from firmq.shared.stores.dead_letters import DeadLetters

KEPT = 100
"""Actions on record, beside those that are open."""
MOST_OPEN = 100
MOST_RATE = 5000
"""Tasks per second that an action may process."""
MOST_SELECTED = 1000
"""Tasks that can be selected one by one."""
EXAMINED = 500
"""Tasks that one step examines while it filters: about 2 ms of Redis."""
COUNTED = 50_000
"""Tasks that are examined to count matches; beyond that the count is an estimate."""
COUNTS = 200
"""Steps of such a count: of tasks with much data, a step examines fewer."""
MOST_CANARIES = 1000
SUCCESS = 95
"""Percent of the retried tasks that have to complete after a canary."""
LONGEST_PATCH = 10_000
_EVER = 8e15
"""Bound of scores that are instants (microseconds)."""

_WAITING = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRYING, TaskState.BLOCKED)


class Verb(StrEnum):
    """The change of each task."""

    CANCEL = "cancel"
    RUN_NOW = "run_now"
    MOVE = "move"
    RETRY = "retry"
    DELETE = "delete"
    RESTORE = "restore"


STATES: Mapping[Verb, Sequence[TaskState]] = {
    Verb.CANCEL: _WAITING,
    Verb.RUN_NOW: (TaskState.SCHEDULED, TaskState.RETRYING),
    Verb.MOVE: _WAITING,
    Verb.RETRY: (TaskState.FAILED,),
    Verb.DELETE: tuple(state for state in TaskState if state in ENDED),
    Verb.RESTORE: (TaskState.CANCELLED,),
}
"""The states of the tasks that an action takes when its filter names none."""


def takes(verb: Verb, state: TaskState | None) -> bool:
    """Returns whether an action can take tasks in this state; None means any."""
    return state is None or state in STATES[verb] or (verb, state) == (Verb.CANCEL, TaskState.RUNNING)


class Count(NamedTuple):
    """How many tasks an action would take; an estimate unless `exact`."""

    number: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """The state of an action: running, paused, aborted or finished.

    `passed` counts tasks that could not be processed any more.
    """

    id: str
    verb: Verb
    what: str
    by: str
    rate: int
    state: str
    total: int
    done: int
    passed: int
    begun_at: datetime
    ended_at: datetime | None
    exact: bool = True
    """Whether `total` is exact."""
    to: str = ""
    """The queue that tasks are moved to."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Requeued tasks by outcome: completed, failed_same, failed_other, cancelled, expired, removed."""
    canary: int = 0
    """How many are retried first; the others follow when these have ended well. 0: all at once."""
    patch: Any = None
    """The JSON merge patch that changes the data of the dead letters that it retries."""
    unfit: int = 0
    """Tasks among the `passed` that remain dead letters, because they cannot have the changed data."""
    why: str = ""
    """Why it stopped automatically."""

    @property
    def open(self) -> bool:
        return self.state in ("running", "paused")

    @property
    def waiting(self) -> int:
        """Returns how many requeued tasks have not ended."""
        return max(0, self.done - self.ended) if self.verb is Verb.RETRY else 0

    @property
    def failed_again(self) -> int:
        return self.outcomes.get("failed_same", 0) + self.outcomes.get("failed_other", 0)

    @property
    def ended(self) -> int:
        """Returns how many requeued tasks have ended."""
        return sum(self.outcomes.values())

    @property
    def allowance(self) -> int | None:
        """Returns how many tasks may be retried before its canary has ended; None for as many as the rate allows."""
        return None if self.ended >= self.canary else max(0, self.canary - self.done)

    @property
    def failure(self) -> str:
        """Returns why an action with a canary has to stop; "" while enough of its tasks complete."""
        if not self.canary or self.ended < self.canary:
            return ""
        completed = self.outcomes.get("completed", 0)
        judged = completed + self.failed_again + self.outcomes.get("expired", 0)
        if 100 * completed >= SUCCESS * judged:
            return ""
        return f"{completed} of the {judged} retried tasks that ended completed, fewer than {SUCCESS} %"

    @property
    def status(self) -> str:
        """Returns its state, including the outcome of the requeued tasks."""
        if self.state == "aborted" and self.why:
            return "stopped"
        if self.state == "running" and self.allowance == 0:
            return "trying the first"
        if self.state != "finished":
            return self.state
        return "following" if self.waiting else "failed again" if self.failed_again else "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tasks: named ones, or the matches of a filter."""

    ids: tuple[str, ...] = ()
    wanted: Filter = field(default_factory=Filter)

    @property
    def what(self) -> str:
        """Returns a description for people."""
        if self.ids:
            return "selected tasks"
        names = [each.name for each in fields(self.wanted)]
        given = {name: value for name in names if (value := getattr(self.wanted, name))}
        return " ".join(_said(name, value) for name, value in given.items()) or "all tasks"


def _said(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, timedelta):
        value = duration(value)
    said = value.isoformat() if isinstance(value, datetime) else value
    return f"{'status' if name == 'state' else name}={said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of an action: its tasks, and for a move the queue. Raises ValueError for a contradiction.

    A retry may begin with a `canary` of some tasks, and continues while 95 percent of the retried ones
    complete. It may change the data of the tasks by a `patch`, a JSON merge patch.
    """

    verb: Verb
    selection: Selection
    to: str = ""
    canary: int = 0
    patch: Mapping[str, Any] | None = None
    limit: int | None = None
    """How many tasks of the selection it takes at most."""

    def __post_init__(self) -> None:
        state = self.selection.wanted.state
        if self.selection.wanted.deleted and self.verb is not Verb.RESTORE:
            raise ValueError("deleted tasks can only be restored")
        if not takes(self.verb, state):
            raise ValueError(f"{self.verb} does not apply to {state} tasks: choose {', '.join(STATES[self.verb])}")
        if bool(self.to) != (self.verb is Verb.MOVE):
            raise ValueError(
                "name the queue that the tasks are moved to" if not self.to else "only a move has a target"
            )
        if (self.canary or self.patch) and self.verb is not Verb.RETRY:
            raise ValueError("only a retry can try some tasks first, or change their data")
        _demand_short(self.patch)
        if not 0 <= self.canary <= MOST_CANARIES:
            raise ValueError(f"the canary must be from 0 to {MOST_CANARIES} tasks")
        if len(self.selection.ids) > MOST_SELECTED:
            raise ValueError(f"at most {MOST_SELECTED} tasks can be selected: use a filter instead")

    @property
    def states(self) -> Sequence[TaskState]:
        wanted = self.selection.wanted
        if wanted.state:
            return (wanted.state,)
        # Running tasks that a bulk action is to cancel come first: they may become cancelled meanwhile.
        asked = self.verb is Verb.RESTORE and wanted.bulk and not wanted.deleted
        return (TaskState.RUNNING, *STATES[self.verb]) if asked else STATES[self.verb]


def _demand_short(patch: Mapping[str, Any] | None) -> None:
    if len(json.dumps(patch)) > LONGEST_PATCH:
        raise ValueError(f"the patch has more than {LONGEST_PATCH:,} characters: set fewer fields, or shorter values")


class BulkActions:
    """The actions, and the steps that carry them out."""

    def __init__(self, scripts: Scripts, dead_letters: DeadLetters, max_queue_length: int = 0) -> None:
        """`max_queue_length` bounds the pending tasks of a queue that tasks are moved to; 0 is no bound."""
        self.scripts = scripts
        self.max_queue_length = max_queue_length
        self.redis = scripts.redis
        self.keys = BulkKeys.beside(scripts.keys)
        self.dead_letters = dead_letters
        self.records = dead_letters.records

    # --- before it begins ---

    def count(self, plan: Plan) -> Count:
        """Returns how many tasks there are now."""
        if plan.selection.ids:
            return Count(len(plan.selection.ids), exact=True)
        with translated():
            wanted = self._wanted(plan, self._sources(plan), self.scripts.now_us())
            found = self._sizes(wanted) if self._is_indexed(plan) else self._counted(wanted)
        return found if plan.limit is None else Count(min(found.number, plan.limit), found.exact)

    def sample(self, plan: Plan, most: int) -> list[TaskSummary]:
        """Returns some of the selected tasks."""
        if ids := plan.selection.ids[:most]:
            deleted = self.records.summaries(ids, deleted=True) if plan.verb is Verb.RESTORE else []
            return [each for each in self.records.summaries(ids) if each.state in plan.states] + deleted
        found: list[TaskSummary] = []
        for state in plan.states if not plan.selection.wanted.deleted else (None,):
            page = self.records.page(replace(plan.selection.wanted, state=state), limit=most)
            found += (each for each in page.items if each.queue != plan.to)
        return found[:most]

    def begin(self, plan: Plan, *, what: str, by: str, rate: int, reason: str = "") -> str:
        """Begins an action on the current tasks; returns its id. Raises TooManyAtOnce."""
        if len(self.unfinished()) >= MOST_OPEN:
            raise TooManyAtOnce(f"{MOST_OPEN} bulk actions are open, the maximum: wait for one to end, or abort one")
        action_id, total = secrets.token_hex(8) + self.scripts.mark, self.count(plan)
        with translated():
            now = self.scripts.now_us()
            ids = self.keys.bulk_ids(action_id)
            wanted = self._wanted(plan, [ids] if plan.selection.ids else self._sources(plan), now)
            record: dict[Any, Any] = {
                "verb": plan.verb,
                "what": what,
                "by": by,
                "rate": rate,
                "reason": reason,
                "to": plan.to,
                "most_pending": self.max_queue_length,
                "canary": plan.canary,
                "state": "running",
                "wanted": json.dumps(wanted),
                "total": total.number,
                "exact": int(total.exact),
                "begun_at": now,
                **({"patch": json.dumps(plan.patch)} if plan.patch else {}),
            }
            with self.redis.pipeline() as pipeline:
                if plan.selection.ids:
                    pipeline.zadd(ids, dict.fromkeys(plan.selection.ids, 0))
                pipeline.hset(self.keys.bulk(action_id), mapping=record)
                pipeline.zadd(self.keys.BULKS, {action_id: now})
                pipeline.sadd(self.keys.OPEN_BULKS, action_id)
                pipeline.execute()
            self._forget_old()
        return action_id

    def _sources(self, plan: Plan) -> list[str]:
        """Returns the indexes that hold the tasks."""
        wanted = plan.selection.wanted
        if wanted.cause:
            return [self.scripts.keys.failure_group(wanted.cause)]
        if wanted.deleted:
            return [self.scripts.keys.DELETED]
        return [key for state in plan.states for key in self.records.indexes(replace(wanted, state=state), plan.to)]

    def _wanted(self, plan: Plan, sources: Sequence[str], now_us: int) -> dict[str, Any]:
        """Returns the filter as scripts read it. A dead letter that failed after `now_us` is a new one."""
        wanted = plan.selection.wanted
        # Scripts read no numbers beyond these, which are times of the years 1717 and 2223.
        earliest = max(-_EVER, instant_us(wanted.since)) if wanted.since else -_EVER
        latest = min(_EVER, instant_us(wanted.until)) if wanted.until else _EVER
        content = wanted.content(now_us)
        return {
            **({"more": content} if content else {}),
            **({} if plan.limit is None else {"limit": plan.limit}),
            "sources": list(sources),
            "any": bool(plan.selection.ids),
            "state": "" if wanted.deleted else wanted.state or "",
            "type": wanted.type or "",
            "queue": wanted.queue or "",
            "tag": wanted.tag or "",
            "submitted_by": wanted.submitted_by or "",
            "bulk": wanted.bulk or "",
            "earliest": f"{earliest:.0f}",
            "latest": f"{min(latest, now_us) if plan.verb in (Verb.RETRY, Verb.DELETE) else latest:.0f}",
            "begun_at": now_us,
        }

    def _is_indexed(self, plan: Plan) -> bool:
        """Returns whether the indexes hold nothing but the tasks."""
        wanted = plan.selection.wanted
        by_queue = not wanted.signal and all(map(self.records.is_by_queue, plan.states))
        examined = wanted.type or wanted.tag or wanted.submitted_by or wanted.bulk or wanted.content(0)
        return not (examined or (wanted.queue and not by_queue) or (wanted.cause and wanted.state is None))

    def _sizes(self, wanted: Mapping[str, Any]) -> Count:
        with self.redis.pipeline(transaction=False) as pipeline:
            for key in wanted["sources"]:
                pipeline.zcount(key, wanted["earliest"], wanted["latest"])
            return Count(sum(pipeline.execute()), exact=True)

    def _counted(self, wanted: Mapping[str, Any]) -> Count:
        """Returns how many match, by examining them; estimated from the first ones when there are very many."""
        place: tuple[Any, ...] = (1, "", "")
        found = looked = last = 0
        for _ in range(COUNTS):
            if last or looked >= COUNTED:
                break
            more, examined, last, *place_ = self.scripts.call("bulk_count", json.dumps(wanted), *place, 2 * EXAMINED)
            place, found, looked = tuple(place_), found + more, looked + examined
        if last:
            return Count(found, exact=True)
        return Count(found * self._sizes(wanted).number // looked, exact=False)

    def undo(self, action: BulkAction, *, by: str) -> str:
        """Begins to restore the tasks that an action cancelled or deleted, or asked to stop; returns the new one's id.

        Raises ValueError for an action of another kind.
        """
        if action.verb not in (Verb.CANCEL, Verb.DELETE):
            raise ValueError(f"only the actions cancel and delete can be undone: this one is {action.verb}")
        wanted = Filter(deleted=action.verb is Verb.DELETE, bulk=action.id, since=action.begun_at)
        plan = Plan(verb=Verb.RESTORE, selection=Selection(wanted=wanted))
        what = f"undo of {action.verb}: {action.what}"[:200]
        return self.begin(plan, what=what, by=by, rate=action.rate)

    # --- reading and changing ---

    def all(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest actions and those that are open, newest first, and the ids of corrupt ones."""
        return latest(self.scripts)

    def unfinished(self) -> list[BulkAction]:
        """Returns the actions with work left."""
        with translated():
            ids = [text(each) for each in self.redis.smembers(self.keys.OPEN_BULKS)]
        return [found for each in ids if (found := self.get(each))]

    def get(self, action_id: str) -> BulkAction | None:
        """Returns one action, or None when it is removed."""
        with self.scripts.quarantining({self.keys.bulk(action_id): "hash"}):
            record = self.redis.hgetall(self.keys.bulk(action_id))
        return _read(action_id, record) if record else None

    def change(self, action_id: str, state: str, why: str = "") -> bool:
        """Pauses, resumes or aborts an action; returns whether it was still open. `why`: it stops by itself."""
        with translated():
            return bool(self.scripts.call("bulk_change", action_id, state, why))

    # --- carrying out ---

    def step(
        self,
        action: BulkAction,
        most: int,
        fencing_token: FencingToken = NO_LOCK,
        amend: Callable[[Sequence[str], Any], Mapping[str, str]] | None = None,
    ) -> tuple[int, bool]:
        """Processes the next tasks of an action; returns how many, and whether there may be more.

        `amend` returns the data with which tasks are retried. Raises StepRefused when the lock has ended.
        """
        data: Mapping[str, str] = {}
        if action.patch and amend:
            with translated():
                data = amend([text(each) for each in self._step(action, most, fencing_token, "", "1")[1]], action.patch)
            most = max(1, len(data))
        with translated(), self._replaying(action, most, fencing_token) as cause:
            what, handled = self._step(action, most, fencing_token, cause, "", *chain.from_iterable(data.items()))
            if what == b"stop":
                self.redis.srem(self.keys.OPEN_BULKS, action.id)
        failpoint("bulk.step")
        return int(handled), what == b"work"

    def _step(
        self, action: BulkAction, most: int, fencing_token: FencingToken, cause: str, looking: str = "", *amended: str
    ) -> tuple[bytes, Any]:
        token, kept = (fencing_token.lock, fencing_token.token), to_us(self.dead_letters.kept) // 1000
        step: tuple[Argument, ...] = (action.id, most, EXAMINED, *token, cause, looking, kept, *amended)
        what, handled = self.scripts.call("bulk_step", *step)
        return what, handled

    def _replaying(self, action: BulkAction, most: int, fencing_token: FencingToken) -> AbstractContextManager[str]:
        """Wraps a step that retries in a span, linked to the failures that it retries."""
        if action.verb is not Verb.RETRY or not self.dead_letters.traced:
            return nullcontext("")
        _, ids = self._step(action, most, fencing_token, "", "1")
        return self.dead_letters.replaying(list(map(text, ids))) if ids else nullcontext("")

    def followed(self) -> list[str]:
        """Returns the ids of the actions with requeued tasks that have not ended."""
        with translated():
            return [text(each) for each in self.redis.smembers(self.keys.FOLLOWED_BULKS)]

    def follow(self, action_id: str, cursor: str, most: int) -> str:
        """Counts which of about `most` requeued tasks have ended; returns the next cursor, "0" after the last ones."""
        with self.scripts.quarantining({self.keys.bulk_followed(action_id): "hash"}):
            return text(self.scripts.call("bulk_follow", action_id, cursor, most))

    def _forget_old(self) -> None:
        old = list(map(text, self.redis.zrange(self.keys.BULKS, 0, -KEPT - 1)))
        still_open = {each.id for each in self.unfinished()} if old else set()
        for each in (each for each in old if each not in still_open):
            self.redis.delete(self.keys.bulk(each), self.keys.bulk_ids(each), self.keys.bulk_followed(each))
            self.redis.zrem(self.keys.BULKS, each)


def latest(scripts: Scripts) -> tuple[list[BulkAction], list[str]]:
    """Returns the latest actions and those that are open, newest first, and the ids of corrupt ones."""
    keys = BulkKeys.beside(scripts.keys)
    with translated():
        ids = list(dict.fromkeys(map(text, scripts.redis.zrevrange(keys.BULKS, 0, KEPT + MOST_OPEN))))
    wanted = {keys.bulk(each): "hash" for each in ids}
    with scripts.quarantining(wanted), scripts.redis.pipeline(transaction=False) as pipeline:
        for key in wanted:
            pipeline.hgetall(key)
        records = pipeline.execute()
    read = {each: _read(each, record) for each, record in zip(ids, records, strict=True)}
    return [each for each in read.values() if each], [each for each, found in read.items() if found is None]


def _read(action_id: str, record: Mapping[Any, Any]) -> BulkAction | None:
    """Returns an action; None when its record is corrupt, so that it is not carried out."""
    try:
        return _action(action_id, {text(name): text(value) for name, value in record.items()})
    except UNREADABLE:
        return None


def _action(action_id: str, fields: Mapping[str, str]) -> BulkAction:
    ended = fields.get("ended_at")
    return BulkAction(
        id=action_id,
        verb=Verb(fields["verb"]),
        patch=json.loads(fields.get("patch", "null")),
        unfit=whole(fields.get("unfit", 0)),
        what=fields.get("what", ""),
        by=fields.get("by", ""),
        rate=whole(fields["rate"]),
        state=fields["state"],
        total=whole(fields["total"]),
        done=whole(fields.get("done", 0)),
        passed=whole(fields.get("passed", 0)),
        begun_at=instant(float(fields["begun_at"])),
        ended_at=instant(float(ended)) if ended else None,
        exact=fields.get("exact") != "0",
        to=fields.get("to", ""),
        canary=whole(fields.get("canary", 0)),
        why=fields.get("why", ""),
        outcomes={name[6:]: whole(count) for name, count in fields.items() if name.startswith("ended:")},
    )
