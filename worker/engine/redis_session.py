"""The worker's session with Redis: report, return, extend and claim, together in one round trip.

Batching changes no guarantee. Each attempt's outcome is written in one atomic step, together with others; one without
an answer is sent again, which is idempotent. A worker that dies loses the outcomes that it had not sent yet (at most a
few milliseconds' worth), and those tasks run again, as at-least-once allows.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from firmq.shared.domain.clock import monotonic_us
from firmq.shared.domain.decode import UNREADABLE
from firmq.shared.domain.task import Outcome, TaskState
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import translated
from firmq.shared.redis.quarantine import is_corruption
from firmq.shared.redis.rows import as_rows
from firmq.worker.engine.claimed_task import ClaimedTask, ClaimReply
from firmq.worker.engine.lane_claims import LaneClaims
from firmq.worker.engine.queue_weights import NO_BOUNDS
from firmq.worker.executors.ipc import LOCAL, EndedAttempt

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import Argument, ScriptCall, Scripts

log = logging.getLogger(__name__)

MOST_AT_ONCE = 128
"""Tasks that one sync claims or reports at most; more follow with the next one. So a new task waits only for some
milliseconds when a thousand end at once."""
_PER_CALL = 128
"""Tasks that one script call writes: about 3 ms of Redis."""


@dataclass(slots=True, eq=False)
class Report:
    """The end of an attempt at a claimed task. Once written, its outcome and state are the stored ones."""

    claimed: ClaimedTask
    ended: EndedAttempt

    def row(self) -> dict[str, Argument | None]:
        """Returns the fields for `report.lua`."""
        return {
            "id": self.claimed.id,
            "token": self.claimed.token,
            **dict(zip(_REPORTED, _reported(self.ended), strict=True)),
        }


@dataclass(slots=True)
class SyncResult:
    """The result of one sync."""

    claimed: list[ClaimedTask] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    lost: list[ClaimedTask] = field(default_factory=list)
    cancelled: list[ClaimedTask] = field(default_factory=list)
    written: list[Report] = field(default_factory=list)
    refused: list[ClaimedTask] = field(default_factory=list)
    corrupt: list[ClaimedTask] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """How many tasks to claim for a lane. 0 only fetches the answer to a claim before; `slots` bounds some queues."""

    claims: LaneClaims
    size: int
    slots: Mapping[str, int] = field(default_factory=lambda: NO_BOUNDS)


class RedisSession:
    """Collects writes to Redis until the next sync."""

    def __init__(
        self, scripts: Scripts, worker: str, lease: float, answer_within: float = 0.5, number: int = 0
    ) -> None:
        """`answer_within` is the time-out of the client in seconds, during which leases are not checked.

        `margin` is how much of a lease must be left for it to be trusted, so that the last check precedes its end.
        """
        self.scripts = scripts
        self.worker = worker
        self.number = number
        self.lease = lease
        self.margin = answer_within + 0.1 * lease
        self.reports: list[Report] = []
        self.releases: list[ClaimedTask] = []
        self.gathering_since = 0.0

    def report(self, report: Report) -> None:
        """Adds an outcome to the next sync."""
        if not self.reports:
            self.gathering_since = time.monotonic()
        self.reports.append(report)

    def sync(self, orders: Sequence[ClaimOrder], extending: Sequence[ClaimedTask]) -> SyncResult:
        """Syncs in one round trip. Raises StoreUnavailable; then everything is kept and sent again by the next call."""
        reports, releases = self.reports[:MOST_AT_ONCE], self.releases[:1024]
        calls = [*self._report_calls(reports), *self._release_calls(releases), *self._extend_calls(extending)]
        asking = next((each.claims.queues for each in orders if each.claims.queues.look_due(each.claims.parked)), None)
        calls += [("queues_look", ())] if asking else []
        calls += [("claim", each.claims.arguments(each.size, _us(self.lease), each.slots)) for each in orders]
        sent_at = time.monotonic()
        with translated():
            replies = self.scripts.call_many(calls)
        result, received_us = SyncResult(), monotonic_us()
        claims = (ClaimReply(*reply) for reply in replies[len(replies) - len(orders) :])
        for order, reply in zip(orders, claims, strict=True):
            result.claimed += order.claims.answer(reply, order.size, sent_at, received_us, self.lease)
            result.unreadable += _texts(reply.unreadable)
        self._adopt(result.claimed)
        if asking:
            asking.learn(replies[len(replies) - len(orders) - 1])
        self._read_answers(calls, replies, reports, extending, sent_at, result)
        del self.reports[: len(reports)]
        del self.releases[: len(releases)]
        return result

    def accept(self, message: bytes, lanes: Sequence[LaneClaims]) -> SyncResult:
        """Returns the result of a parked claim of one of the lanes; an empty one for a foreign message."""
        try:
            return self._accept(message, lanes)
        except (*UNREADABLE, IndexError) as error:
            log.error("unreadable message on the worker's channel ignored: %s", error)
            return SyncResult()

    def _accept(self, message: bytes, lanes: Sequence[LaneClaims]) -> SyncResult:
        """Returns the answer to the next claim, given by a submission.

        A repetition is ignored: the claim itself may have been sent meanwhile. The lease began when the answer was
        given, on Redis' clock. If that is too long ago (this process was suspended), the next claim gets the tasks
        that are still ours.
        """
        result = SyncResult()
        # Data that is not UTF-8 passes through unchanged.
        token, claim = json.loads(message.decode("utf-8", "surrogateescape"))
        claims = next((each for each in lanes if each.token == token), None)
        if claims is None:
            return result
        reply = ClaimReply(*_as_sent(claim))
        began = claims.asked_at + (int(reply.now_us) - claims.answered_us) / 1_000_000
        now = time.monotonic()
        if now - began > self.lease / 4:
            return result
        result.claimed = claims.answer(reply, None, min(began, now), monotonic_us(), self.lease)
        self._adopt(result.claimed)
        result.unreadable = _texts(reply.unreadable)
        return result

    def _adopt(self, claimed: Sequence[ClaimedTask]) -> None:
        for each in claimed:
            each.session = self

    def report_one_by_one(self, result: SyncResult) -> None:
        """Sends each report by itself, after Redis refused them together; one for a corrupt record is dropped.

        A corrupt record must not block other outcomes. The dropped ones keep their lease until it ends,
        and are then run again or dead-lettered. Raises StoreUnavailable for other errors; the answers until then are
        in `result`, and the rest is kept.
        """
        for report in list(self.reports):
            [(name, arguments)] = self._report_calls([report])
            try:
                with translated():
                    _sort([report], self.scripts.call(name, *arguments), result)
            except ResponseError as error:
                if not is_corruption(error):
                    raise StoreUnavailable(f"Redis failed: {error}") from error
                result.corrupt.append(report.claimed)
            self.reports.remove(report)

    def extend(self, extending: Sequence[ClaimedTask], result: SyncResult) -> None:
        """Extends the leases of these and nothing else. Raises StoreUnavailable."""
        calls, sent_at = self._extend_calls(extending), time.monotonic()
        try:
            with translated():
                replies = self.scripts.call_many(calls)
        except ResponseError as error:
            raise StoreUnavailable(f"Redis failed: {error}") from error
        self._read_answers(calls, replies, (), extending, sent_at, result)

    def notify_workers(self, lane: str, *, known: bool) -> None:
        """Wakes another worker of a lane, of any if it is not known; a failure is only logged, as all workers poll."""
        keys = self.scripts.keys
        try:
            self.scripts.redis.rpush(keys.wakeup(lane) if known else keys.WAKEUP, lane)
        except (RedisError, OSError) as error:
            log.debug("wake-up failed: %s", error)

    def note_begun(self, claimed: ClaimedTask) -> bool:
        """Records the start of a suspect before it runs; returns whether its lease still holds."""
        sent_at = time.monotonic()
        with translated():
            answer = self.scripts.call("extend", _us(self.lease), claimed.id, claimed.token, "1", "")
        claimed.lease_until = sent_at + self.lease
        claimed.noted = True
        return bool(answer[0] != 1)

    def _report_calls(self, reports: Sequence[Report]) -> list[ScriptCall]:
        calls: list[ScriptCall] = []
        for at in range(0, len(reports), _PER_CALL):
            rows = as_rows([report.row() for report in reports[at : at + _PER_CALL]])
            calls.append(("report", (self.worker, *rows)))
        return calls

    def _release_calls(self, releases: Sequence[ClaimedTask]) -> list[ScriptCall]:
        # The last chunk first, because each task goes to the front of its queue.
        return [
            (
                "release",
                [
                    part
                    for claimed in releases[at : at + _PER_CALL]
                    for part in (claimed.id, claimed.token, claimed.enqueued_us or "")
                ],
            )
            for at in reversed(range(0, len(releases), _PER_CALL))
        ]

    def _extend_calls(self, extending: Sequence[ClaimedTask]) -> list[ScriptCall]:
        calls: list[ScriptCall] = []
        for at in range(0, len(extending), _PER_CALL):
            arguments: list[Argument] = [_us(self.lease)]
            for claimed in extending[at : at + _PER_CALL]:
                arguments += (claimed.id, claimed.token, "1" if claimed.noted else "0", claimed.progress)
            calls.append(("extend", arguments))
        return calls

    def _read_answers(
        self,
        calls: Sequence[ScriptCall],
        replies: Sequence[object],
        reports: Sequence[Report],
        extending: Sequence[ClaimedTask],
        sent_at: float,
        result: SyncResult,
    ) -> None:
        _sort(reports, _joined("report", calls, replies), result)
        for claimed, answer in zip(extending, _joined("extend", calls, replies), strict=True):
            if answer == 1:
                result.lost.append(claimed)
                continue
            claimed.lease_until = sent_at + self.lease
            claimed.progress = b""
            if answer == 2:
                result.cancelled.append(claimed)


_REPORTED = [name for name in EndedAttempt._fields if name not in LOCAL]
_reported = attrgetter(*_REPORTED)


def _joined(name: str, calls: Sequence[ScriptCall], replies: Sequence[object]) -> list[int]:
    """Returns the answers of all calls of one script."""
    return [
        answer
        for (called, _), reply in zip(calls, replies, strict=False)
        if called == name and isinstance(reply, list)
        for answer in reply
    ]


def _sort(reports: Sequence[Report], answers: Sequence[int], result: SyncResult) -> None:
    """Sorts outcomes by written, written differently, and too late."""
    for report, answer in zip(reports, answers, strict=True):
        if answer == 0:
            result.refused.append(report.claimed)
            continue
        if answer == 2:
            report.ended = report.ended._replace(state=TaskState.CANCELLED, delay_us=None)
        elif report.ended.outcome == Outcome.REFUSED and answer == 1:
            report.ended = report.ended._replace(outcome=Outcome.FAILED, state=TaskState.FAILED, delay_us=None)
        result.written.append(report)


def _as_sent(value: Any) -> Any:
    """Returns Redis' answer as the driver would have: text as bytes, lists as lists."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    # An empty Lua table is an object in JSON.
    return [_as_sent(each) for each in value] if isinstance(value, list | dict) else value


def _texts(values: Sequence[bytes]) -> list[str]:
    return [each.decode(errors="replace") for each in values]


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
