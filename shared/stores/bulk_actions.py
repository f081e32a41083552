"""Retries or deletes many dead letters at a chosen rate, in the background.

An action is stored in Redis, so that it survives the process that began it. Any process may carry it out;
`bulk_take.lua` permits one at a time, and another takes over when that one falls silent. Requeued tasks are followed
until they have ended (`bulk_follow.lua`): about a hundred bytes for each that has not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from taskqueue.shared.domain.clock import instant, to_us
from taskqueue.shared.domain.decode import UNREADABLE, whole
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.failpoints import failpoint
from taskqueue.shared.redis.client import text, translated

if TYPE_CHECKING:
    from taskqueue.shared.redis.keys import Keys
    from taskqueue.shared.redis.scripts import Scripts
    from taskqueue.shared.stores.dead_letters import DeadLetters

KEPT = 100
SILENCE = timedelta(seconds=5)
"""How long without a step until another process takes over."""


class Verb(StrEnum):
    """What is done to each dead letter."""

    RETRY = "retry"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """The state of an action: running, paused, aborted or finished.

    `passed` counts selected tasks that were no longer dead letters, and the `stopped` among them: those remain dead
    letters, because their batches were stopped.
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
    stopped: int
    picked: bool
    begun_at: datetime
    ended_at: datetime | None
    followed: bool = False
    """Whether requeued tasks are followed: for a retry."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Requeued tasks by how they ended: completed, failed_same, failed_other, cancelled, expired, removed."""
    waiting_for: Mapping[str, int] = field(default_factory=dict)
    """What the others waited for when last checked, in the words of `bulk_follow.lua`."""

    @property
    def open(self) -> bool:
        return self.state in ("running", "paused")

    @property
    def waiting(self) -> int:
        """Returns how many requeued tasks have not ended."""
        return max(0, self.done - sum(self.outcomes.values())) if self.followed else 0

    @property
    def failed_again(self) -> int:
        return self.outcomes.get("failed_same", 0) + self.outcomes.get("failed_other", 0)

    @property
    def status(self) -> str:
        """Returns its state, including the outcome of the requeued tasks."""
        if self.state != "finished":
            return self.state
        return "following" if self.waiting else "failed again" if self.failed_again else "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters: selected ones, those of a group, or (neither given) all."""

    ids: tuple[str, ...] = ()
    cause: str = ""

    def source(self, keys: Keys) -> str:
        """Returns the index that holds them, when they are not selected one by one."""
        return keys.failure_group(self.cause) if self.cause else keys.ended(TaskState.FAILED)


class BulkActions:
    """The actions, and the steps that carry them out."""

    def __init__(self, scripts: Scripts, dead_letters: DeadLetters) -> None:
        self.scripts = scripts
        self.redis = scripts.redis
        self.keys = scripts.keys
        self.dead_letters = dead_letters

    def count(self, selection: Selection) -> int:
        """Returns how many there are now."""
        if selection.ids:
            return len(selection.ids)
        with translated():
            return int(self.redis.zcard(selection.source(self.keys)))

    def begin(self, verb: Verb, selection: Selection, *, what: str, by: str, rate: int) -> str:
        """Begins an action on the current selection; returns its id."""
        action_id = secrets.token_hex(8)
        total = self.count(selection)
        with translated():
            seconds, us = self.redis.time()
            now = seconds * 1_000_000 + us
            with self.redis.pipeline() as pipeline:
                if selection.ids:
                    pipeline.zadd(self.keys.bulk_ids(action_id), dict.fromkeys(selection.ids, 0))
                fields: dict[Any, Any] = {
                    "verb": verb,
                    "followed": int(verb is Verb.RETRY),
                    "what": what,
                    "by": by,
                    "rate": rate,
                    "state": "running",
                    "source": self.keys.bulk_ids(action_id) if selection.ids else selection.source(self.keys),
                    "picked": int(bool(selection.ids)),
                    "until": now,
                    "total": total,
                    "begun_at": now,
                }
                pipeline.hset(self.keys.bulk(action_id), mapping=fields)
                pipeline.zadd(self.keys.BULKS, {action_id: now})
                pipeline.sadd(self.keys.OPEN_BULKS, action_id)
                pipeline.execute()
            self._forget_old()
        return action_id

    def all(self) -> tuple[list[BulkAction], list[str]]:
        """Returns the latest actions, newest first, and the ids of corrupt ones."""
        with translated():
            ids = list(dict.fromkeys(map(text, self.redis.zrevrange(self.keys.BULKS, 0, KEPT - 1))))
        wanted = {self.keys.bulk(each): "hash" for each in ids}
        with self.scripts.quarantining(wanted), self.redis.pipeline(transaction=False) as pipeline:
            for key in wanted:
                pipeline.hgetall(key)
            records = pipeline.execute()
        read = {each: _read(each, record) for each, record in zip(ids, records, strict=True)}
        return [each for each in read.values() if each], [each for each, found in read.items() if found is None]

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

    def change(self, action_id: str, state: str) -> bool:
        """Pauses, resumes or aborts an action; returns whether it was still open."""
        with translated():
            return bool(self.scripts.call("bulk_change", action_id, state))

    def step(self, action: BulkAction, who: str, most: int) -> int:
        """Processes the next tasks of an action, if this process may; returns how many."""
        with translated():
            what, ids, *score = self.scripts.call("bulk_take", action.id, who, to_us(SILENCE), most)
            if what == b"stop":
                self.redis.srem(self.keys.OPEN_BULKS, action.id)
        if what != b"work":
            return 0
        failpoint("dashboard.bulk-taken")
        done, stopped = self._act(action, list(map(text, ids)))
        failpoint("dashboard.bulk-acted")
        self._note(action, ids, text(score[0]), done, stopped)
        return len(ids)

    def followed(self) -> list[str]:
        """Returns the ids of the actions with requeued tasks that have not ended."""
        with translated():
            return [text(each) for each in self.redis.smembers(self.keys.FOLLOWED_BULKS)]

    def follow(self, action_id: str, cursor: str, most: int) -> tuple[str, int, dict[str, int]]:
        """Checks about `most` requeued tasks; returns the next cursor, how many ended, how many wait for what."""
        with self.scripts.quarantining({self.keys.bulk_followed(action_id): "hash"}):
            next_cursor, ended, *waiting = self.scripts.call("bulk_follow", action_id, cursor, most)
        waiting_for = zip(map(text, waiting[::2]), map(int, waiting[1::2]), strict=True)
        return text(next_cursor), int(ended), dict(waiting_for)

    def note_waiting(self, action_id: str, waiting_for: Mapping[str, int]) -> None:
        """Records what the requeued tasks wait for."""
        with translated():
            if self.redis.exists(self.keys.bulk(action_id)):
                self.redis.hset(self.keys.bulk(action_id), "waiting_for", json.dumps(waiting_for))

    def _act(self, action: BulkAction, ids: Sequence[str]) -> tuple[int, int]:
        """Returns how many were done, and how many were not because their batches were stopped."""
        if action.verb is Verb.DELETE:
            return sum(was_done for _, was_done in self.dead_letters.purge_many(ids)), 0
        noted = self._begin_following(action.id, ids)
        found = self.dead_letters.requeue_many(ids)
        not_sent = [each for each, sent in zip(ids, found, strict=True) if each in noted and not sent.done]
        if not_sent:
            with translated():
                self.redis.hdel(self.keys.bulk_followed(action.id), *not_sent)
        return sum(each.done for each in found), sum(bool(each.stopped) for each in found)

    def _begin_following(self, action_id: str, ids: Sequence[str]) -> set[str]:
        """Records these before they are requeued, each with its fingerprint; returns those that are new."""
        with translated():
            seconds, us = self.redis.time()
            causes = self.redis.hmget(self.keys.FAILURE_GROUP_OF, ids)
            with self.redis.pipeline() as pipeline:
                for each, cause in zip(ids, causes, strict=True):
                    value = f"{int(seconds) * 1_000_000 + int(us)}:{text(cause or b'')}"
                    pipeline.hsetnx(self.keys.bulk_followed(action_id), each, value)
                pipeline.sadd(self.keys.FOLLOWED_BULKS, action_id)
                added = pipeline.execute()
        return {each for each, is_new in zip(ids, added, strict=False) if is_new}

    def _note(self, action: BulkAction, ids: Sequence[bytes], score: str, done: int, stopped: int) -> None:
        key = self.keys.bulk(action.id)
        with translated(), self.redis.pipeline() as pipeline:
            pipeline.hincrby(key, "done", done)
            pipeline.hincrby(key, "stopped", stopped)
            if action.picked:
                pipeline.zrem(self.keys.bulk_ids(action.id), *ids)
            else:
                pipeline.hset(key, mapping={"after": score, "after_id": ids[-1]})
            pipeline.hincrby(key, "gone" if action.picked else "passed", len(ids) - done)
            pipeline.execute()

    def _forget_old(self) -> None:
        for each in map(text, self.redis.zrange(self.keys.BULKS, 0, -KEPT - 1)):
            self.redis.delete(self.keys.bulk(each), self.keys.bulk_ids(each), self.keys.bulk_followed(each))
            self.redis.zrem(self.keys.BULKS, each)


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
        what=fields.get("what", ""),
        by=fields.get("by", ""),
        rate=whole(fields["rate"]),
        state=fields["state"],
        total=whole(fields["total"]),
        done=whole(fields.get("done", 0)),
        passed=whole(fields.get("passed", 0)) + whole(fields.get("gone", 0)),
        stopped=whole(fields.get("stopped", 0)),
        picked=fields.get("picked") == "1",
        begun_at=instant(float(fields["begun_at"])),
        ended_at=instant(float(ended)) if ended else None,
        followed=fields.get("followed") == "1",
        outcomes={name[6:]: whole(count) for name, count in fields.items() if name.startswith("ended:")},
        waiting_for={str(name): whole(count) for name, count in json.loads(fields.get("waiting_for", "{}")).items()},
    )
