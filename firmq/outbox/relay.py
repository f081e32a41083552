"""The relay: sends committed rows in order, until each is a task or refused.

A row goes through three steps, each safe to repeat: it is sent, marked as sent, and deleted. Firmq keeps a receipt
of its id from the first step on, without which a relay that dies after sending would send a second task after its
restart. The receipt has to last as long as the row can be sent again, so it is settled between the second step and the
third: only then it may expire. `firmq.shared.features.outbox.receipts` has that side.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from firmq.outbox.rows import Row, Rows, Table
from firmq.outbox.senders import Item, Sender
from firmq.shared.client import ClientError, Problem
from firmq.shared.stores.presence import EVERY
from firmq.shared.submission.refusals import UNKNOWN_TYPE

log = logging.getLogger(__name__)

ROWS = 200
"""Rows of one pass, at most."""
SIZE = 256 << 10
"""Characters of the rows of one pass after which no more are added; a gateway accepts a body of 1 MiB by default."""
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between passes that find nothing: at first, and at most."""
LONGEST_BACKOFF = 10.0
_TOO_MUCH = (400, 413)
"""Refusals of a whole request that may be due to one of its rows."""
_FOR_NOW = (429, 503)
"""Refusals of a row that may be accepted later; so may a type that no worker offers yet."""


@dataclass(slots=True)
class Counts:
    """The work of a relay since its start."""

    sent: int = 0
    refused: int = 0
    failed: int = 0
    """Passes that failed."""


@dataclass(slots=True)
class _Outcome:
    """The outcome of the rows of one pass."""

    settled: Sequence[str] = ()
    sent: list[str] = field(default_factory=list)
    refused: list[tuple[Row, Problem]] = field(default_factory=list)
    postponed: list[tuple[Row, Problem]] = field(default_factory=list)
    complete: bool = True
    """Whether no more rows are known to wait."""

    @property
    def idle(self) -> bool:
        return not (self.settled or self.sent or self.refused or self.postponed)


class Relay:
    """Sends the rows of one table. Several relays may run; they share the rows where the table locks them."""

    def __init__(self, table: Table, sender: Sender) -> None:
        self.table = table
        self.sender = sender
        self.counts = Counts()
        self.failing = False
        """Whether the last pass failed."""
        self._after = 0
        self._pause = SHORTEST
        self._said = ""

    def run(self, stop: threading.Event) -> None:
        """Sends rows until `stop` is set."""
        next_sign = 0.0
        while not stop.is_set():
            if time.monotonic() >= next_sign:
                next_sign = time.monotonic() + EVERY
                # Without rows: a heartbeat, for the doctor. The passes log whether they fail.
                with suppress(Exception):
                    self.sender.send((), ())
            stop.wait(self.step())

    def step(self) -> float:
        """Runs one pass, and logs an error. Returns the seconds until the next one."""
        try:
            outcome = self._pass()
        except Exception as error:
            known = isinstance(error, ClientError | OSError)
            log.warning("rows wait, the pass failed: %s: %s", type(error).__name__, error, exc_info=not known)
            self.counts.failed += 1
            self.failing = True
            self._after = 0
            return self._longer(LONGEST_BACKOFF)
        self.failing = False
        self._report(outcome)
        return self._wait_after(outcome)

    # --- one pass ---

    def _pass(self) -> _Outcome:
        if self.table.locks:
            with self.table.transaction() as rows:
                return self._apply(rows, self._send(*self._find(rows)))
        with self.table.transaction() as rows:
            found = self._find(rows)
        outcome = self._send(*found)
        if outcome.idle:
            return outcome
        with self.table.transaction() as rows:
            return self._apply(rows, outcome)

    def _find(self, rows: Rows) -> tuple[list[str], list[Row]]:
        return rows.sent(ROWS), rows.waiting(self._after, ROWS)

    def _send(self, settled: Sequence[str], waiting: Sequence[Row]) -> _Outcome:
        outcome = _Outcome(settled)
        rows = _fitting(waiting)
        if settled or rows:
            rows, items = self._send_fewer(rows, settled)
            for row, item in zip(rows, items, strict=True):
                _sort(outcome, row, item)
        outcome.complete = len(rows) == len(waiting) < ROWS
        # Rows that a full queue holds back do not stop those after them.
        self._after = rows[-1].position if outcome.postponed and not outcome.complete else 0
        return outcome

    def _send_fewer(self, rows: Sequence[Row], settled: Sequence[str]) -> tuple[Sequence[Row], Sequence[Item]]:
        """Sends rows, or the first of them if all together are refused. Returns those and their outcomes."""
        while True:
            try:
                return rows, self.sender.send(rows, settled)
            except Problem as refusal:
                if refusal.status not in _TOO_MUCH or not rows:
                    raise
                if len(rows) == 1:
                    return rows, [{"problem": refusal.document}]
                rows = rows[: len(rows) // 2]

    def _apply(self, rows: Rows, outcome: _Outcome) -> _Outcome:
        if outcome.settled:
            rows.delete_sent(outcome.settled)
        if outcome.sent:
            rows.mark_sent(outcome.sent)
        for row, problem in outcome.refused:
            rows.mark_refused(row.task_id, str(problem))
        return outcome

    # --- between passes ---

    def _report(self, outcome: _Outcome) -> None:
        self.counts.sent += len(outcome.sent)
        self.counts.refused += len(outcome.refused)
        for row, problem in outcome.refused:
            log.error("row refused: %s", problem, extra={"task_id": row.task_id})
        said, self._said = self._said, ""
        if outcome.postponed:
            row, problem = outcome.postponed[0]
            self._said = f"{len(outcome.postponed)} rows wait: {problem}"
            if self._said != said:
                log.warning("%s", self._said, extra={"task_id": row.task_id})

    def _wait_after(self, outcome: _Outcome) -> float:
        if not outcome.complete:
            return 0.0
        if outcome.postponed or outcome.idle:
            return self._longer(LONGEST)
        self._pause = SHORTEST
        return SHORTEST

    def _longer(self, most: float) -> float:
        """Returns the next pause, each twice as long as the one before, up to `most`."""
        pause, self._pause = min(self._pause, most), min(2 * self._pause, most)
        return pause * (0.75 + random.random() / 2)


def _fitting(rows: Sequence[Row]) -> Sequence[Row]:
    """Returns the first rows that fit into one request; at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += len(row.task)
        if count and size > SIZE:
            return rows[:count]
    return rows


def _sort(outcome: _Outcome, row: Row, item: Item) -> None:
    if "problem" not in item:
        outcome.sent.append(row.task_id)
        return
    refusal = Problem(item["problem"])
    waits = refusal.status in _FOR_NOW or refusal.type == UNKNOWN_TYPE.type
    (outcome.postponed if waits else outcome.refused).append((row, refusal))
