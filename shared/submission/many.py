"""Submits many tasks, some hundred in each round trip; each is accepted or refused individually."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from firmq.shared.errors import NotPlaced, StoreUnavailable
from firmq.shared.redis.connections import anything_sent
from firmq.shared.redis.errors import translation
from firmq.shared.stores.queues import CHUNK
from firmq.shared.submission.answers import Accepted
from firmq.shared.submission.direct import Draft, Submission
from firmq.shared.submission.problems import Problem
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.retries import problem_of
from firmq.shared.submission.submissions import Submissions

if TYPE_CHECKING:
    from firmq.shared.redis.scripts import ScriptCall, Steps

Outcome: TypeAlias = Accepted | Problem
"""The outcome of one task."""
ChunkOutcome: TypeAlias = Outcome | NotPlaced
"""The same, or that it is to be submitted to another store."""


class NewSubmission:
    """A pending submission; goes to another store after a refusal unless something ties it to one."""

    def __init__(
        self, submissions: Submissions, task_type: str, data: Any, key: str | None, options: Mapping[str, Any]
    ) -> None:
        self.submissions = submissions
        self.given = (task_type, data, key, options)
        order = submissions.order(task_type, key, options)
        self.is_free = not order
        self.submission = order[0] if order else submissions.free()
        self.drafted: Draft
        self._others = iter(order[1:])
        self._refused: list[Submission] = []

    @classmethod
    def again(cls, submissions: Submissions, draft: Draft) -> NewSubmission:
        """Returns a task of `submit_chunk` whose store refused it."""
        options = {name: value for name, value in draft.value.items() if name not in ("type", "data")}
        return cls(submissions, draft.task_type, draft.value["data"], None, options)

    def draft(self) -> None:
        """Reads it. Raises Refusal, TypeError and ValueError."""
        self.drafted = self.submission.draft(*self.given)

    def elsewhere(self, refusal: NotPlaced) -> None:
        """Goes to another store after a refusal. Raises it when none may store the task."""
        if self.is_free:
            self._refused.append(self.submission)
            if len(self._refused) == len(self.submissions.by_number):
                raise refusal
            self.submissions.avoid(self.submission)
            self.submission = self.submissions.free(but=self._refused)
        elif (following := next(self._others, None)) is None:
            raise refusal
        else:
            self.submission = following
        self.draft()

    def after(self, error: Exception) -> None:
        """Handles an error: the next try of a task that was not sent goes to another store."""
        away = isinstance(error, StoreUnavailable) or translation(error) is not None
        if self.is_free and away and not anything_sent():
            self.submissions.avoid(self.submission)
            self.submission = self.submissions.free(but=(self.submission,))
            self.draft()


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of one call that go to the same store, with their places in the call."""

    submission: Submission
    places: list[int]
    drafts: list[Draft | Problem]


def groups_of(submissions: Submissions, tasks: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Returns tasks as drafts, by store.

    Raises TypeError or ValueError for a value that is not a task, or that JSON lacks.
    """
    groups: dict[int, Group] = {}
    free = submissions.free()
    for at, task in enumerate(tasks):
        submission = free
        if isinstance(task, Mapping):
            order = submissions.order(str(task.get("type")), None, task)
            submission = order[0] if order else free
        group = groups.setdefault(id(submission), Group(submission, [], []))
        group.places.append(at)
        group.drafts.append(_draft(submission, task))
    return list(groups.values())


def in_order(groups: Sequence[Group], outcomes: Sequence[Sequence[Outcome]]) -> list[Outcome]:
    """Returns the outcomes of groups in the order of the call."""
    found: dict[int, Outcome] = {}
    for group, of_group in zip(groups, outcomes, strict=True):
        found.update(zip(group.places, of_group, strict=True))
    return [found[at] for at in sorted(found)]


def chunks_of(drafts: Sequence[Draft | Problem]) -> Iterator[Sequence[Draft | Problem]]:
    """Yields drafts in chunks, each for one call of `submit_chunk`."""
    return (drafts[first : first + CHUNK] for first in range(0, len(drafts), CHUNK))


def draft_of(submission: Submission, task: Mapping[str, Any]) -> Draft:
    """Returns a task as a draft. Raises Refusal; TypeError or ValueError if it is not a task, or JSON lacks a value."""
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


def submit_chunk(submission: Submission, drafts: Sequence[Draft | Problem]) -> list[ChunkOutcome]:
    """Validates and stores drafts. Returns their outcomes in their order.

    Raises Refusal, PayloadUnavailable or the driver's error while a store is unavailable. Then the same drafts may be
    submitted again: those that were stored are recognized by their ids.
    """
    outcomes: dict[int, ChunkOutcome] = {}
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
        self.outcomes: dict[int, ChunkOutcome] = {}

    def add(self, at: int, steps: Steps[Accepted]) -> None:
        # Its own context, as the spans of several are open at the same time.
        self.running[at] = steps, copy_context()

    def run(self) -> dict[int, ChunkOutcome]:
        try:
            replies: dict[int, Any] = dict.fromkeys(self.running)
            while calls := dict(self._next(replies)):
                answers = self.submission.scripts.call_many_accepted(list(calls.values()))
                replies = dict(zip(calls, answers, strict=True))
                for at, answer in replies.items():
                    if isinstance(answer, NotPlaced):
                        self.outcomes[at] = answer
                        steps, context = self.running.pop(at)
                        context.run(steps.close)
                    elif isinstance(answer, Exception):
                        raise answer
            return self.outcomes
        finally:
            for steps, context in self.running.values():
                context.run(steps.close)

    def _next(self, replies: Mapping[int, Any]) -> Iterator[tuple[int, ScriptCall]]:
        """Yields the next call of each submission that has not ended."""
        for at, reply in replies.items():
            if at not in self.running:
                continue
            steps, context = self.running[at]
            try:
                yield at, context.run(steps.send, reply)
                continue
            except StopIteration as end:
                self.outcomes[at] = end.value
            except Refusal as refusal:
                self.outcomes[at] = problem_of(refusal)
            del self.running[at]
