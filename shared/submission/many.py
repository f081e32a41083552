"""Submits many tasks, some hundred in each round trip; each is accepted or refused by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias

from taskqueue.shared.stores.queues import CHUNK
from taskqueue.shared.submission.answers import Accepted
from taskqueue.shared.submission.direct import Draft, Submission
from taskqueue.shared.submission.problems import Problem
from taskqueue.shared.submission.refusals import Refusal
from taskqueue.shared.submission.retries import problem_of

if TYPE_CHECKING:
    from taskqueue.shared.redis.scripts import ScriptCall, Steps

Outcome: TypeAlias = Accepted | Problem
"""What became of one task."""


def drafts_of(submission: Submission, tasks: Iterable[Mapping[str, Any]]) -> list[Draft | Problem]:
    """Returns tasks as drafts. Raises TypeError or ValueError for what is not a task, or what JSON lacks."""
    return [_draft(submission, task) for task in tasks]


def chunks_of(drafts: Sequence[Draft | Problem]) -> Iterator[Sequence[Draft | Problem]]:
    """Yields drafts in chunks, each for one call of `submit_chunk`."""
    return (drafts[first : first + CHUNK] for first in range(0, len(drafts), CHUNK))


def draft_of(submission: Submission, task: Mapping[str, Any]) -> Draft:
    """Returns a task as a draft. Raises Refusal, and TypeError or ValueError for what is not a task or JSON lacks."""
    try:
        options = dict(task)
        task_type, data = options.pop("type"), options.pop("data", None)
    except (KeyError, TypeError, ValueError):
        raise TypeError(f"{task!r} is not a task: use new_task") from None
    return submission.draft(task_type, data, None, options)


def _draft(submission: Submission, task: Mapping[str, Any]) -> Draft | Problem:
    try:
        return draft_of(submission, task)
    except Refusal as refusal:
        return problem_of(refusal)


def submit_chunk(submission: Submission, drafts: Sequence[Draft | Problem]) -> list[Outcome]:
    """Validates and stores drafts. Returns their outcomes in their order.

    Raises Refusal, PayloadUnavailable or the driver's error while a store is unavailable. Then the same drafts may be
    submitted again: those that were stored are recognized by their ids.
    """
    outcomes: dict[int, Outcome] = {}
    calls = _Calls(submission)
    for at, draft in enumerate(drafts):
        if isinstance(draft, Problem):
            outcomes[at] = draft
        elif refusal := _refusal(submission, draft):
            outcomes[at] = problem_of(refusal)
        else:
            submission.keep(draft)
            calls.add(at, submission.steps(draft))
    outcomes |= calls.run()
    return [outcomes[at] for at in range(len(drafts))]


def _refusal(submission: Submission, draft: Draft) -> Refusal | None:
    """Returns why a draft is invalid. Raises Refusal as long as there are no types at all."""
    try:
        if not submission.accepts(draft):
            submission.check(draft)
    except Refusal as refusal:
        if submission.type_cache.refuses_all(refusal):
            raise
        return refusal
    return None


class _Calls:
    """Script calls of several submissions, whose first calls share a round trip, and so on."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.running: dict[int, tuple[Steps[Accepted], Context]] = {}
        self.outcomes: dict[int, Outcome] = {}

    def add(self, at: int, steps: Steps[Accepted]) -> None:
        # Its own context, as the spans of several are open at the same time.
        self.running[at] = steps, copy_context()

    def run(self) -> dict[int, Outcome]:
        try:
            replies: dict[int, Any] = dict.fromkeys(self.running)
            while calls := dict(self._next(replies)):
                answers = self.submission.scripts.call_many_accepted(list(calls.values()))
                for answer in answers:
                    if isinstance(answer, Exception):
                        raise answer
                replies = dict(zip(calls, answers, strict=True))
            return self.outcomes
        finally:
            for steps, context in self.running.values():
                context.run(steps.close)

    def _next(self, replies: Mapping[int, Any]) -> Iterator[tuple[int, ScriptCall]]:
        """Yields the next call of each submission that has not ended."""
        for at, reply in replies.items():
            steps, context = self.running[at]
            try:
                yield at, context.run(steps.send, reply)
                continue
            except StopIteration as end:
                self.outcomes[at] = end.value
            except Refusal as refusal:
                self.outcomes[at] = problem_of(refusal)
            del self.running[at]
