"""The Lua scripts, each one atomic step, with one typed method each.

Only this module knows the layout of a script's arguments. A script is called by its digest; a server that lost it
(restart, SCRIPT FLUSH, failover) gets it again. Scripts derive the keys that they touch, so none are declared: the
product needs a single primary (see `shared.redis.keys`).

Every script may be sent twice (redis-py resends after a lost answer): ids and lease tokens make the repetition
idempotent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from redis.exceptions import NoScriptError, ResponseError

from shared.domain.clock import Clock, RedisClock, instant, instant_us, to_us
from shared.domain.lock import FencingToken, Taken
from shared.errors import CorruptKey, IncompatibleSchema, StepRefused, StoreRefused
from shared.redis import append_only_file, keys, quarantine
from shared.redis.client import text, translated
from shared.redis.linker import CONFIRMING, source, with_quarantine

if TYPE_CHECKING:
    from datetime import timedelta

    from redis import Redis

log = logging.getLogger(__name__)

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any
ScriptCall: TypeAlias = tuple[str, Sequence[Argument]]
"""A script's name and its arguments without the clock."""

COPY_WITHIN_MS = 500
"""How long a submission waits for replicas; shorter than the time-out of the gateway's client."""


class Reaped(NamedTuple):
    """An attempt that its worker did not end. `state` is the new state of the task."""

    id: str
    type: str
    queue: str
    worker: str
    state: str
    crashes: int
    attempt: int
    ran_us: int
    meta: str


class SentBack(NamedTuple):
    """Outcome of a requeue of a dead letter: the state it was found in, and whether it was requeued.

    `stopped` is its batch, if it was not because that batch is stopped.
    """

    state: str
    done: bool
    stopped: str = ""


class Pruned(NamedTuple):
    """Ended tasks that were removed, of those that were examined: some are still needed by others."""

    removed: int
    looked: int


UNLOCKED = FencingToken()
"""The fencing token of work without a lock."""


@cache
def digest(name: str) -> str:
    """Returns the digest by which the server knows a script."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


def _nonce() -> str:
    """Returns a value by which a script recognizes a repeated command."""
    return secrets.token_hex(8)


def _sent_back(state: bytes, done: int, stopped: bytes = b"") -> SentBack:
    return SentBack(text(state), bool(done), text(stopped))


def _us(score: bytes) -> int:
    """Returns a score in microseconds; a score outside the range of dates becomes the nearest date."""
    return instant_us(instant(float(score)))


def _text_or_number(value: Any) -> Any:
    return text(value) if isinstance(value, bytes) else value


def _translated(error: Exception) -> Exception:
    """Returns our error for a step whose lock has ended, or for data of another version; else the error itself."""
    if str(error).startswith("FORMAT"):
        return IncompatibleSchema(str(error).removeprefix("FORMAT "))
    return StepRefused() if str(error).startswith("OUTLIVED") else error


class Scripts:
    """The scripts on one connection pool, on one clock."""

    def __init__(
        self, redis: Redis, clock: Clock | None = None, *, replicas: int = 0, confirm_writes: bool = False
    ) -> None:
        """`replicas` is the number of replicas that must have a task before it is accepted.

        With `confirm_writes` the append-only file must have it too, and every other change that is answered.
        """
        self.redis = redis
        self.replicas = replicas
        self.confirm_writes = confirm_writes
        self.clock = clock or RedisClock()

    def call(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script."""
        given = self.clock.script_argument()
        try:
            return self.redis.evalsha(digest(name), 0, given, *arguments)
        except NoScriptError:
            return self._teach(name, given, *arguments)
        except ResponseError as error:
            return self._call_with_quarantine(error, name, *arguments)

    def _teach(self, name: str, *arguments: Argument) -> Reply:
        try:
            return self.redis.eval(source(name), 0, *arguments)
        except ResponseError as error:
            return self._call_with_quarantine(error, name, *arguments[1:])

    def _call_with_quarantine(self, error: Exception, name: str, *arguments: Argument) -> Reply:
        """Runs a script that failed on corrupt data again, and quarantines that. Raises otherwise."""
        if not quarantine.is_corruption(error):
            raise _translated(error) from error
        log.error("script %s met corrupt data and is run again with quarantine: %s", name, error)
        self.quarantine()
        try:
            return self.redis.eval(with_quarantine(name), 0, self.clock.script_argument(), *arguments)
        except ResponseError as again:
            raise _translated(again) from again

    def quarantine(self, fencing_token: FencingToken = UNLOCKED, wanted: Mapping[str, str] | None = None) -> int:
        """Quarantines keys of another type than theirs, of these or of the whole system; returns how many."""
        given = self.clock.script_argument()
        pairs = {**quarantine.SINGLE, **quarantine.OF_QUEUE} if wanted is None else wanted
        arguments = [part for pair in pairs.items() for part in pair]
        try:
            found = self.redis.eval(
                with_quarantine("quarantine"), 0, given, fencing_token.lock, fencing_token.token, *arguments
            )
        except ResponseError as error:
            raise _translated(error) from error
        for key, held in zip(found[::2], found[1::2], strict=True):
            log.error("key %s held a %s, another type than expected: quarantined", text(key), text(held))
        return len(found) // 2

    @contextmanager
    def quarantining(self, wanted: Mapping[str, str]) -> Iterator[None]:
        """Wraps reading of numerous keys: one of another type is quarantined, so that the next read succeeds.

        Raises CorruptKey this time, and the errors of `translated`.
        """
        try:
            with translated():
                yield
        except CorruptKey:
            with translated():
                self.quarantine(wanted=wanted)
            raise

    def call_many(self, calls: Sequence[ScriptCall]) -> list[Reply]:
        """Runs several scripts, each atomic for itself, in one round trip; raises the first error.

        A server that lost a script still runs the others, so only the lost ones are sent again.
        """
        if len(calls) == 1:
            return [self.call(calls[0][0], *calls[0][1])]
        given = self.clock.script_argument()
        with self.redis.pipeline(transaction=False) as pipeline:
            for name, arguments in calls:
                pipeline.evalsha(digest(name), 0, given, *arguments)
            replies = pipeline.execute(raise_on_error=False)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                replies[at] = self.call(calls[at][0], *calls[at][1])
            elif isinstance(reply, Exception):
                replies[at] = self._call_with_quarantine(reply, calls[at][0], *calls[at][1])
        return replies

    def call_accepted(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script that accepts tasks, and returns when `replicas` and the append-only file have its writes.

        Raises StoreRefused when they do not have them in time.
        """
        return self._written(self._call_copied(self._confirming(name), *arguments))

    def call_answered(self, name: str, *arguments: Argument) -> Reply:
        """Runs one script whose effect is confirmed to a caller, and returns when the append-only file has it."""
        return self._written(self.call(self._confirming(name), *arguments))

    def _confirming(self, name: str) -> str:
        return name + CONFIRMING if self.confirm_writes else name

    def _written(self, reply: Reply) -> Reply:
        """Returns the script's own reply, once postponed writes are in the append-only file."""
        if not (isinstance(reply, list) and reply and reply[0] == b"POSTPONED"):
            return reply
        append_only_file.await_write(self.redis, int(reply[1]))
        return reply[2]

    def _call_copied(self, name: str, *arguments: Argument) -> Reply:
        """Runs a script and waits for replicas; WAIT counts writes of its connection, so both use one."""
        if not self.replicas:
            return self.call(name, *arguments)
        given = self.clock.script_argument()
        reply, copies = self._run_and_wait("EVALSHA", digest(name), 0, given, *arguments)
        if isinstance(reply, NoScriptError):
            reply, copies = self._run_and_wait("EVAL", source(name), 0, given, *arguments)
        if isinstance(reply, Exception) and quarantine.is_corruption(reply):
            self._call_with_quarantine(reply, name, *arguments)
            return self._call_copied(name, *arguments)
        for each in (reply, copies):
            if isinstance(each, Exception):
                raise _translated(each)
        if copies < self.replicas:
            raise StoreRefused(
                f"stored, but on {copies} replicas instead of {self.replicas}, so it could get lost: check them"
            )
        return reply

    def _run_and_wait(self, *command: Argument) -> tuple[Reply, Any]:
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*command)
            pipeline.execute_command("WAIT", self.replicas, COPY_WITHIN_MS)
            reply, copies = pipeline.execute(raise_on_error=False)
        return reply, copies

    def submit_one(self, limit: int, task: Sequence[Argument]) -> bytes | None:
        """Stores a task without relations; returns None where limits apply: then call `submit`."""
        reply: bytes | None = self.call_accepted("submit_one", limit, *task)
        return reply

    def submit(self, limit: int, tasks: Iterable[Sequence[Argument]]) -> list[bytes | list[bytes]]:
        """Stores tasks; returns the answers of `submit.lua`. Nine arguments per task, as listed there."""
        fields = (field for task in tasks for field in task)
        reply: list[bytes | list[bytes]] = self.call_accepted("submit", limit, *fields)
        return reply

    def submit_once(
        self, digest: str, fingerprint: str, keep: timedelta, limit: int, task: Sequence[Argument]
    ) -> tuple[str, str, bytes | list[bytes]]:
        """Stores a task under a request's key; returns stored, again, busy or other; its id; that of `submit.lua`."""
        what, task_id, said = self.call_accepted("submit_once", digest, fingerprint, to_us(keep) // 1000, limit, *task)
        return text(what), text(task_id), said

    def submit_one_once(
        self, digest: str, fingerprint: str, keep: timedelta, limit: int, task: Sequence[Argument]
    ) -> tuple[str, str, bytes | list[bytes]] | None:
        """Does the same for a task without relations; returns None where limits apply, as `submit_one` does."""
        reply = self.call_accepted("submit_one_once", digest, fingerprint, to_us(keep) // 1000, limit, *task)
        return (text(reply[0]), text(reply[1]), reply[2]) if reply else None

    def request_begin(
        self, digest: str, fingerprint: str, who: str, silence: timedelta, keep: timedelta, seed: str
    ) -> tuple[str, bytes]:
        """Takes a multi-step request's key; returns begun or resumed (the seed), again (the answer), busy, other."""
        what, about = self.call("request_begin", digest, fingerprint, who, to_us(silence), to_us(keep) // 1000, seed)
        return text(what), about

    def request_end(self, digest: str, who: str, answer: bytes) -> bool:
        """Stores the answer of such a request; an empty one frees its key. Returns whether it was still ours."""
        return bool(self.call("request_end", digest, who, answer))

    def submission_check(self) -> None:
        """Writes under the same conditions as a submission; raises what a submission would raise now."""
        self.call_accepted("submission_check")

    def cancel(self, task_id: str, reason: str) -> tuple[str, str]:
        """Cancels a task; returns the state found and the outcome: cancelled, requested, ended or unknown."""
        state, happened = self.call_answered("cancel", task_id, reason)
        return text(state), text(happened)

    def due(self, queues: Sequence[str]) -> list[str]:
        """Returns the queues with due tasks, and those whose keys cannot be read."""
        now = self.now_us()
        with self.redis.pipeline(transaction=False) as pipeline:
            for queue in queues:
                for key in (keys.retrying(queue), keys.scheduled(queue)):
                    pipeline.zrange(key, 0, 0, withscores=True)
            firsts = pipeline.execute(raise_on_error=False)
        waiting = [isinstance(first, Exception) or bool(first and first[0][1] <= now) for first in firsts]
        return [queue for number, queue in enumerate(queues) if any(waiting[2 * number : 2 * number + 2])]

    def promote(self, queue: str, limit: int, fencing_token: FencingToken = UNLOCKED) -> tuple[int, int, int | None]:
        """Moves due tasks; returns how many, the lateness of the latest (µs), when the next is due (µs)."""
        moved, lateness, due = self.call("promote", queue, limit, fencing_token.lock, fencing_token.token)
        return moved, int(lateness), int(float(due)) if due else None

    def reap(
        self,
        limit: int,
        max_crashes: int,
        fencing_token: FencingToken = UNLOCKED,
        lease_us: int = 0,
        patience_us: int = 0,
    ) -> list[Reaped]:
        """Ends attempts whose lease has expired.

        A call later than `patience_us` after the previous one extends all leases by another `lease_us`: Redis was away.
        """
        reply = self.call("reap", limit, max_crashes, fencing_token.lock, fencing_token.token, lease_us, patience_us)
        return [Reaped(*map(_text_or_number, row)) for row in reply]

    def expire(self, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Expires waiting tasks that are too old to start; returns how many."""
        return int(self.call("expire", limit, fencing_token.lock, fencing_token.token))

    def prune(self, state: str, age_us: int, limit: int, fencing_token: FencingToken = UNLOCKED) -> Pruned:
        """Removes tasks that ended in `state` longer ago than `age_us`."""
        return Pruned(*self.call("prune", state, age_us, "", limit, fencing_token.lock, fencing_token.token))

    def trim(self, state: str, keep: int, limit: int, fencing_token: FencingToken = UNLOCKED) -> Pruned:
        """Removes the oldest tasks that ended in `state` until `keep` are left."""
        return Pruned(*self.call("prune", state, "", keep, limit, fencing_token.lock, fencing_token.token))

    def recover(self, queue: str, grace_us: int, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Restores lost queue entries of pending tasks; returns how many, or -1: the whole list has to be checked."""
        return int(self.call("recover", queue, grace_us, limit, fencing_token.lock, fencing_token.token))

    def restore_entries(self, queue: str, grace_us: int, ids: Sequence[str], fencing_token: FencingToken) -> int:
        """Restores the queue entries of those that wait longer than the grace, in front; returns how many."""
        return int(self.call("restore_entries", queue, grace_us, fencing_token.lock, fencing_token.token, *ids))

    def check_consistency(
        self, queues: Sequence[str], lease_us: int, limit: int, fencing_token: FencingToken
    ) -> tuple[int, dict[str, int]]:
        """Checks the next tasks of the walk over all of them; returns how many, and the repairs by kind."""
        looked, *wrong = self.call(
            "check_consistency", fencing_token.lock, fencing_token.token, lease_us, limit, *queues
        )
        pairs = zip(wrong[::2], wrong[1::2], strict=True)
        return int(looked), {text(what): int(times) for what, times in pairs}

    def foreign_move(self, queue: str, to: str, limit: int) -> tuple[int, int]:
        """Moves parked foreign jobs to another queue; returns how many, and how many were examined."""
        moved, looked = self.call("foreign_move", queue, to, limit)
        return int(moved), int(looked)

    def run_deferred(self, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Runs deferred work of ended tasks and stopped batches; returns how many tasks it processed."""
        return int(self.call("run_deferred", limit, fencing_token.lock, fencing_token.token))

    def queue_pause(self, queue: str, about: str) -> None:
        """Pauses a queue ("" resumes it)."""
        self.call_answered("queue_pause", queue, about)

    def key_use(self, key_id: str, per_second: float, burst: float, wanted: int) -> tuple[int, float]:
        """Records the use of an API key, and takes tokens of its rate; returns how many, and seconds until the next."""
        granted, wait_us = self.call("key_use", key_id, f"{per_second:.9f}", f"{burst:.6f}", wanted)
        return int(granted), int(wait_us) / 1_000_000

    # --- batches ---

    def batch_open(self, batch_id: str, name: str, max_running: str, stop_on_error: str, then: str) -> bool:
        """Opens a new or an existing batch; returns whether it is new."""
        return bool(self.call_answered("batch_open", batch_id, name, max_running, stop_on_error, then))

    def batch_extend(self, batch_id: str, count: int, start: str, request: str) -> int | None:
        """Reserves indexes for more tasks; returns the first, or None for an unknown batch."""
        first = self.call("batch_extend", batch_id, count, start, request)
        return None if first is None else int(first)

    def batch_close(self, batch_id: str) -> bool:
        """Closes a batch: all of it was sent. Returns whether it exists."""
        return bool(self.call_answered("batch_close", batch_id))

    def batch_discard(self, batch_id: str) -> bool:
        """Removes a batch without tasks; returns whether it had none."""
        return bool(self.call("batch_discard", batch_id))

    def batch_work(self, batch_id: str, work: str, reason: str) -> str:
        """Begins to cancel or to retry its tasks; returns begun, busy or unknown."""
        return text(self.call_answered("batch_work", batch_id, work, reason))

    def batch_page(self, score: str, last_id: bytes, limit: int) -> list[tuple[bytes, str]]:
        """Returns up to `limit` + 1 batches after this score and id (both "" for the top), each with its score."""
        reply = self.call("batch_page", score, last_id, limit)
        return list(zip(reply[::2], map(text, reply[1::2]), strict=True))

    def batch_prune(self, silence_us: int, age_us: int, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Closes batches whose sender is silent, removes those without tasks; returns how many."""
        return int(self.call("batch_prune", silence_us, age_us, limit, fencing_token.lock, fencing_token.token))

    # --- locks ---

    def lock_acquire(
        self, name: str, nonce: str, owner: str, at_most: timedelta, at_least: timedelta, thread: int = 0
    ) -> tuple[Taken, str]:
        """Returns whether the lock was taken, and its token (else the holder)."""
        result, token, *_ = self.call("lock_acquire", name, nonce, owner, to_us(at_most), to_us(at_least), thread)
        return Taken(text(result)), text(token)

    def lock_extend(self, wanted: Sequence[tuple[FencingToken, timedelta]]) -> list[bool]:
        """Extends locks; returns which of them are still held."""
        calls = [
            ("lock_extend", (fencing_token.lock, fencing_token.token, to_us(life))) for fencing_token, life in wanted
        ]
        return [bool(kept) for kept in self.call_many(calls)]

    def lock_release(self, fencing_token: FencingToken) -> bool:
        """Releases a lock; returns whether it was still held."""
        return bool(self.call("lock_release", fencing_token.lock, fencing_token.token))

    def lock_force(self, name: str, token: str, by: str, reason: str, bar: timedelta) -> tuple[bool, str]:
        """Takes a lock from its holder; returns whether it did, and the holder (else the current token)."""
        what, whom = self.call("lock_force", name, token, by, reason, to_us(bar))
        return what == b"unlocked", text(whom)

    def lock_read(self, *names: str) -> list[Sequence[str]]:
        """Returns locks as `lock_read.lua` does; without names all that ever existed."""
        return [tuple(map(_text_or_number, row)) for row in self.call("lock_read", *names)]

    # --- schedules ---

    def schedule_put(self, *arguments: Argument) -> tuple[str, str]:
        """Stores a schedule; returns the outcome and its previous spec."""
        happened, before = self.call_answered("schedule_put", *arguments)
        return text(happened), text(before)

    def schedule_delete(self, name: str, source: str = "") -> bool:
        """Removes a schedule (only one from `source`, if given); returns whether it existed."""
        return bool(self.call_answered("schedule_delete", name, source))

    def schedule_pause(self, name: str, revision: str, reason: str, due: str) -> bool:
        """Pauses or resumes a schedule; returns False when it is gone or was changed."""
        return bool(self.call_answered("schedule_pause", name, revision, reason, due))

    def schedule_due(self, limit: int) -> tuple[int, list[tuple[str, str, bytes, str]]]:
        """Returns the time (µs), and the due schedules: name, revision, spec, due time (µs)."""
        now, *rows = self.call("schedule_due", limit)
        return int(now), [(text(name), text(rev), spec, text(due)) for name, rev, spec, due in rows]

    def schedule_fire(self, fencing_token: FencingToken, *arguments: Argument) -> str:
        """Creates the task of one due time and advances the schedule; returns the outcome."""
        return text(self.call("schedule_fire", fencing_token.lock, fencing_token.token, *arguments))

    # --- limits ---

    def limit_put(self, name: str, stored: str) -> bool:
        """Sets a limit at run time; returns whether no such limit was set before."""
        return bool(self.call_answered("limit_put", name, stored))

    def limit_delete(self, name: str) -> bool:
        """Removes a limit; returns whether it existed."""
        return bool(self.call_answered("limit_delete", name))

    def limit_declare(self, limits: Mapping[str, str], first: bool) -> dict[str, str]:
        """Records declared limits ("" for none); returns those that were declared differently since."""
        others = self.call("limit_declare", "1" if first else "", *(part for pair in limits.items() for part in pair))
        said = [text(each) for each in others]
        return dict(zip(said[::2], said[1::2], strict=True))

    def limit_share(self, name: str, stored: str) -> None:
        """Sets ("" removes) an automatic limit, unless one is set or declared."""
        self.call("limit_share", name, stored)

    def limit_read(self, *names: str) -> list[tuple[bytes, bytes, int, int, bytes, bytes]]:
        """Returns limits as `limit_read.lua` does; without names all."""
        return [tuple(row) for row in self.call("limit_read", *names)]

    def announce(
        self,
        worker: str,
        rq_life: int,
        doing: str,
        task_id: str,
        queues: str,
        rq_fields: str,
        kept: int,
        types: str,
        host: str,
    ) -> bool:
        """Records a worker's heartbeat, as `announce.lua` takes it; False when Redis lacks its set of task types."""
        return bool(self.call("announce", worker, rq_life, doing, task_id, queues, rq_fields, kept, types, host))

    def workers_lost(
        self, kept_us: int, most: int, queues: Sequence[str], silent: Sequence[tuple[str | bytes, float]]
    ) -> list[str]:
        """Moves silent workers, each with its last heartbeat, to the lost ones; returns the names of those moved."""
        pairs = [part for name, beat in silent for part in (name, repr(float(beat)))]
        return [text(each) for each in self.call("workers_lost", kept_us, most, json.dumps(list(queues)), *pairs)]

    # --- task types ---

    def types_publish(self, digest: str, host: str, last: bool, entries: Iterable[tuple[str, str, str]]) -> None:
        """Stores a part of a set of task types: name, version and entry of each."""
        self.call("types_publish", digest, host, "1" if last else "", *(part for entry in entries for part in entry))

    def types_read(self) -> tuple[int, list[tuple[str, tuple[int, int, str, bool]]]]:
        """Returns the time (µs), and per set the answer of `types_read.lua`."""
        now, *rows = self.call("types_read")
        sets = [(text(each[0]), (_us(each[1]), _us(each[2]), text(each[3]), bool(each[4]))) for each in rows]
        return int(now), sets

    def types_waiting(self) -> list[tuple[str, int, int]]:
        """Returns types whose tasks wait for a suitable worker: how many, and since when (µs)."""
        return [(text(each[0]), int(each[1]), _us(each[2])) for each in self.call("types_waiting")]

    def refused(self, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Fails pending tasks whose data every live version of their type refused; returns how many."""
        return int(self.call("refused", fencing_token.lock, fencing_token.token, limit))

    def types_prune(self, keep_us: int, limit: int, fencing_token: FencingToken = UNLOCKED) -> int:
        """Removes types that no worker has had for `keep_us`; returns how many."""
        return int(self.call("types_prune", fencing_token.lock, fencing_token.token, keep_us, limit))

    def audit(self, keep: int, who: str, what: str, about: str, detail: str) -> None:
        """Adds an entry to the audit record, which keeps about `keep` entries."""
        self.call("audit", keep, who, what, about, detail)

    def now_us(self) -> int:
        """Returns the time of the scripts' clock (µs)."""
        if given := self.clock.script_argument():
            return int(given)
        seconds, us = self.redis.time()
        return int(seconds) * 1_000_000 + int(us)

    def requeue(self, ids: Sequence[str], cause: str = "") -> list[SentBack]:
        """Requeues dead letters; `cause` is the requesting span, as a `traceparent`."""
        return [_sent_back(*each) for each in self.call_answered("requeue", cause, _nonce(), *ids)]

    def purge(self, state: str, ids: Sequence[str]) -> list[tuple[str, bool]]:
        """Removes tasks that ended in `state`; returns the state found and whether it was removed, for each."""
        return [(text(found), bool(done)) for found, done in self.call("purge", state, *ids)]

    def read(self, ids: Sequence[str]) -> list[Reply]:
        """Returns tasks with everything on record; `shared.stores.tasks` parses the reply."""
        reply: list[Reply] = self.call("read", *ids)
        return reply

    def page(self, arguments: Sequence[Argument]) -> Reply:
        """Returns one page of a list; `shared.stores.tasks` builds the arguments and parses the reply."""
        return self.call("page", *arguments)

    def failure_groups(self, key: str, offset: int, limit: int) -> tuple[int, list[list[Reply]]]:
        """Returns the number of dead-letter groups (all, or the one of this key), and some of them."""
        total, *rows = self.call("failure_groups", key, offset, limit)
        return int(total), rows

    def amend(self, task_id: str, data: str, cause: str = "") -> SentBack:
        """Requeues a dead letter with new data; `cause` as in `requeue`."""
        return _sent_back(*self.call_answered("amend", task_id, data, cause, _nonce()))

    def run_now(self, task_id: str) -> tuple[str, bool]:
        """Enqueues a scheduled or retrying task at once; returns the state found and whether it was moved."""
        state, done = self.call_answered("run_now", task_id)
        return text(state), bool(done)

    def redeliver(self, task_id: str) -> tuple[str, str]:
        """Repeats an ended delivery; returns the state found, and the id of the new delivery."""
        state, on_its_way = self.call_answered("redeliver", task_id)
        return text(state), text(on_its_way)

    def discard(self, task_id: str, queues: Sequence[str]) -> bool:
        """Removes a corrupt record; returns whether there was one."""
        return bool(self.call("discard", task_id, *queues))

    def bulk_take(self, action_id: str, who: str, silence_us: int, most: int) -> tuple[str, list[bytes], str]:
        """Returns the next dead letters of a bulk action: work, wait or stop, their ids, and the score of the last."""
        what, ids, *score = self.call("bulk_take", action_id, who, silence_us, most)
        return text(what), ids, text(score[0]) if score else ""

    def bulk_follow(self, action_id: str, cursor: str, most: int) -> tuple[str, int, dict[str, int]]:
        """Checks requeued tasks of a bulk action; returns the next cursor, how many ended, how many wait for what."""
        next_cursor, ended, *waiting = self.call("bulk_follow", action_id, cursor, most)
        return text(next_cursor), int(ended), dict(zip(map(text, waiting[::2]), map(int, waiting[1::2]), strict=True))

    def bulk_change(self, action_id: str, state: str) -> bool:
        """Sets the state of a bulk action; returns whether it was still open."""
        return bool(self.call("bulk_change", action_id, state))
