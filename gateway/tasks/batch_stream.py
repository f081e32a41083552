"""A batch that comes as a stream of lines: each is taken or refused by itself, and answered as soon as it is stored.

Whoever reads a line of the answer may rely on it, whatever happens next: it is written after Redis has the task. An
answer without its last line was cut off; sent again with its Idempotency-Key, in full or from the first line without
an answer on (`start`), the stream adds nothing twice, because the id of a task follows from the key and its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pydantic import ValidationError

from gateway.http import errors
from gateway.http.errors import Refusal
from gateway.http.ndjson import Lines
from gateway.schemas.batches import BatchLineBody, BatchTermsBody
from gateway.tasks import validation_messages
from gateway.tasks.batch_planner import BatchPlanner, Identity, Item, problem
from shared.domain import strict_json
from shared.domain.task import BatchPlace, NewTask
from shared.errors import InvalidJSON, StoreUnavailable
from shared.stores.queues import CHUNK

MOST = 1_000_000
"""Lines of one stream."""


@dataclass(slots=True)
class Piece:
    """Some lines: the place of the first, what is said of each, and the tasks that they are."""

    first: int
    said: list[Item] = field(default_factory=list)
    tasks: list[tuple[int, NewTask]] = field(default_factory=list)


class BatchStream:
    """One stream, from its first line to the last line of its answer."""

    def __init__(
        self,
        intake: BatchPlanner,
        identity: Identity,
        lines: Lines,
        start: int,
        trace_parent: str | None,
        stopping: threading.Event,
    ) -> None:
        self.intake = intake
        self.identity = identity
        self.batch_id = identity.batch_id
        self.lines = lines
        self.start = self.place = start
        self.trace_parent = trace_parent
        self.stopping = stopping
        self.since = intake.task_factory.type_cache.clock()
        self.accepted = 0
        self.groups: Iterator[list[bytes | None]] = lines.groups()

    def begin(self) -> None:
        """Reads what holds for the whole batch, if the first line says so, and begins it. Raises Refusal."""
        first = next(self.groups, [])
        if not first:
            raise errors.invalid([errors.field_error((), "the body has no line: send a JSON object on each")])
        terms = self._terms(first[0])
        rest = first if terms is None else first[1:]
        self.intake.open(self.identity, terms or BatchTermsBody(), self.trace_parent)  # type: ignore[call-arg]  # all have defaults
        self.groups = chain([rest], self.groups)

    def answers(self) -> Iterator[bytes]:
        """The lines of the answer, some at a time."""
        yield _line({"batch_id": self.batch_id})
        try:
            yield from self._answered()
            self.intake.batches.close(self.batch_id)
        except (StoreUnavailable, Refusal) as error:
            refusal = error if isinstance(error, Refusal) else errors.refusal_of(error)
            yield _line({"problem": problem(refusal)})
            return
        except OSError:
            return  # the sender is gone, and so is who would read this
        refused = self.place - self.start - self.accepted
        yield _line({"complete": True, "accepted": self.accepted, "refused": refused})

    def _answered(self) -> Iterator[bytes]:
        """While Redis stores one piece, the next is read, as far as it is here."""
        with ThreadPoolExecutor(1, "storing") as helper:
            under_way: tuple[Piece, Future[list[Item]]] | None = None
            try:
                for lines in self._pieces():
                    piece = self._read_piece(lines)
                    if under_way:
                        yield from self._finished(*under_way)
                    tasks = [task for _, task in piece.tasks]
                    under_way = piece, helper.submit(copy_context().run, self.intake.store, tasks)
                    if not self.lines.here():
                        yield from self._finished(*under_way)
                        under_way = None
            except (Refusal, OSError):
                if under_way:
                    yield from self._finished(*under_way)
                raise
            if under_way:
                yield from self._finished(*under_way)

    def _pieces(self) -> Iterator[Sequence[bytes | None]]:
        """Lines as they come, no more together than Redis stores in one step. Raises Refusal to end early."""
        for group in self.groups:
            for at in range(0, len(group), CHUNK):
                if self.stopping.is_set():
                    raise Refusal(errors.STORE, "this gateway stops: send the rest to another one")
                if self.place - self.start >= MOST:
                    text = f"a stream has at most {MOST} lines: send the rest with another request"
                    raise Refusal(errors.TOO_LARGE, text)
                yield group[at : at + CHUNK]

    def _read_piece(self, lines: Sequence[bytes | None]) -> Piece:
        piece = Piece(self.place)
        for line in lines:
            try:
                piece.tasks.append((len(piece.said), self._read(line)))
                piece.said.append({})
            except Refusal as refusal:
                piece.said.append({"problem": problem(refusal)})
            self.place += 1
        return piece

    def _finished(self, piece: Piece, storing: Future[list[Item]]) -> Iterator[bytes]:
        """What became of a piece. When Redis went away, says that it is not known, and raises StoreUnavailable."""
        try:
            stored = storing.result()
        except StoreUnavailable as error:
            unknown = problem(errors.refusal_of(error))
            yield _lines(piece.first, [{"task_id": piece.tasks[0][1].id, "problem": unknown}])
            raise
        for (at, _), each in zip(piece.tasks, stored, strict=True):
            piece.said[at] = each
        self.accepted += sum("problem" not in each for each in piece.said)
        yield _lines(piece.first, piece.said)

    def _read(self, line: bytes | None) -> NewTask:
        try:
            value = self.lines.parse(line)
        except InvalidJSON as error:
            raise Refusal(errors.INVALID_JSON, str(error)) from None
        task_id = self.identity.of(self.place, value.get("item") if isinstance(value, dict) else None)
        place = BatchPlace(batch_id=self.batch_id, index=self.place)
        return self.intake.task_factory.read(value, self.trace_parent, task_id, self._find, place, self.since)

    def _find(self, item: int | str) -> str:
        if isinstance(item, str):
            return self.identity.of(0, item)
        if not 0 <= item < self.place:
            raise ValueError(f"must be the place of an earlier line, 0 to {self.place - 1}")
        return self.identity.of(item, None)

    def _terms(self, line: bytes | None) -> BatchTermsBody | None:
        """What the first line says of the whole batch; None when it is a task, good or bad."""
        try:
            value: Any = self.lines.parse(line)
        except InvalidJSON:
            return None
        if not isinstance(value, dict) or "batch" not in value or "type" in value:
            return None
        try:
            return BatchLineBody.model_validate(value, context=self.intake.task_factory.context).batch
        except ValidationError as error:
            mistakes = validation_messages.explain(error, BatchLineBody)
            raise errors.invalid([errors.field_error(path, text) for path, text in mistakes]) from None


def _line(item: Item) -> bytes:
    return strict_json.dump_anything(item) + b"\n"


def _lines(first: int, items: Sequence[Item]) -> bytes:
    return b"".join([_line({"index": first + at, **each}) for at, each in enumerate(items)])
