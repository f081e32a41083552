"""`start_children` and `gather`: a task starts others, and runs again when all of them have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from firmq.shared.domain.step import SIGNAL, Step, StepKind
from firmq.shared.features.durable.store import MOST_CHILDREN, PreparedChild, too_many_children
from firmq.worker.features.durable.steps import awaited, in_thread, replay_of_current_task
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.parent_results import ParentTask
from firmq.worker.handlers.signals import ChildFailed, TaskSuspended

if TYPE_CHECKING:
    from firmq.shared.submission.direct import Submission
    from firmq.worker.features.durable.replay import Replay

CHUNK = 250
"""Children that are stored in one step."""
_UNSUPPORTED = ("unique_key", "depends_on")
_LONGEST_ERROR = 200


@dataclass(frozen=True, slots=True)
class Children:
    """Tasks that a task has started; iterating over them yields their ids."""

    name: str
    ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)


def start_children(name: str, tasks: Iterable[Mapping[str, Any]]) -> Any:
    """Starts tasks, as `new_task` returns them, once for this task. Returns Children, for `gather`.

    The children are stored together with the step `name`, which is unique within the task: when the task runs again it
    finds them. They run beside the task; cancelling the task cancels them. A task has 1000 children and parents at
    most. In an `async def` handler the call is awaited.

    Raises TooManyChildren, QueueFull, DuplicateStep, TooManySteps, LeaseLost, Problem for a task that is refused,
    RuntimeError outside of a task, TypeError for what is no task, and ValueError for a name that cannot be used and for
    tasks with `unique_key` or `depends_on`.
    """
    replay, wanted = _replay("start_children", name), list(tasks)
    for each in wanted:
        if unsupported := [option for option in _UNSUPPORTED if each.get(option)]:
            raise ValueError(f"start_children({name!r}): a child cannot have {unsupported[0]}")
    if len(wanted) > MOST_CHILDREN:
        raise too_many_children(len(wanted))
    traceparent = current_task().traceparent
    if awaited(replay):
        return in_thread(_start, replay, name, wanted, traceparent)
    return _start(replay, name, wanted, traceparent)


def gather(children: Children, *, return_exceptions: bool = False) -> Any:
    """Returns the results of children in their order. Before all have ended, ends the attempt, and runs the task again.

    Meanwhile the task is blocked and occupies no executor. A child in the dead letters, cancelled or expired has ended
    with ChildFailed: this is raised, or returned in the place of its result if `return_exceptions` is set. In an
    `async def` handler the call is awaited.

    Raises ChildFailed, TaskSuspended, which ends the attempt, ResultUnavailable if the results together
    are too large to be passed on, and RuntimeError outside of a task.
    """
    replay, known = _replay("gather", children.name), current_task().parent_results.parents
    if awaited(replay):
        return in_thread(_gather, replay, children, known, return_exceptions)
    return _gather(replay, children, known, return_exceptions)


def _replay(function: str, name: str) -> Replay:
    replay = replay_of_current_task()
    if replay is None:
        raise RuntimeError(f"{function}({name!r}) works only inside a task: test the handler with LocalClient")
    return replay


def _start(replay: Replay, name: str, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> Children:
    if name.startswith(SIGNAL):
        raise ValueError(f"the name of children cannot begin with {SIGNAL!r}: {name[:100]!r}")
    ids: list[str] = []
    for first in range(0, len(tasks), CHUNK):
        part = name if not first else f"{name}:{first // CHUNK + 1}"
        stored = replay.begin(part)
        if stored is None:
            prepared = replay.prepare(tasks[first : first + CHUNK], traceparent)
            stored = replay.start_children(part, name, prepared)
        ids += stored.value
    return Children(name, tuple(ids))


def _gather(replay: Replay, children: Children, known: Mapping[str, ParentTask], return_exceptions: bool) -> list[Any]:
    stored = replay.begin(f"{children.name}:gathered")
    if stored is None:
        stored = _ends(replay, children, [known.get(each) for each in children])
    failed = stored.value["failed"] if stored.kind is StepKind.ERROR else {}
    if failed and not return_exceptions:
        first, end = next(iter(failed.items()))
        raise _failure(children, first, end, len(failed))
    return [
        _failure(children, str(at), failed[str(at)], 1) if str(at) in failed else known[each].result
        for at, each in enumerate(children)
    ]


def _ends(replay: Replay, children: Children, known: Sequence[ParentTask | None]) -> Step:
    """Stores which children have failed. Raises TaskSuspended if one has not ended."""
    now_us = replay.now_us()
    running = sum(each is None or (each.state is not None and not each.state.ended) for each in known)
    if running:
        what = f"{running} of {len(children)} children of step {children.name!r}"
        raise TaskSuspended(f"waits for {what}", now_us, f"children {children.name}")
    failed = {
        str(at): [each.state or "removed", (each.error or "")[:_LONGEST_ERROR]]
        for at, each in enumerate(known)
        if each is not None and (each.answer is None and not each.too_large)
    }
    name = f"{children.name}:gathered"
    if not failed:
        return replay.save(name, StepKind.RESULT, None, now_us)
    message = f"{len(failed)} of {len(children)} children did not complete"
    return replay.save(name, StepKind.ERROR, {"type": "ChildFailed", "message": message, "failed": failed}, now_us)


def _failure(children: Children, at: str, end: Sequence[str], failures: int) -> ChildFailed:
    return ChildFailed(children.ids[int(at)], end[0], end[1], failures)


# --- preparing children for their queues ---


class StorePreparation:
    """Prepares children for the queues of their parent's store."""

    def __init__(self, store: int) -> None:
        self.store = store

    def prepare(self, tasks: Sequence[Mapping[str, Any]], traceparent: str | None) -> list[PreparedChild]:
        """Returns valid tasks as their script stores them. Raises Problem and TypeError."""
        from firmq.shared.stores.queues import submit_arguments
        from firmq.shared.submission.many import draft_of
        from firmq.shared.submission.refusals import Refusal
        from firmq.shared.submission.retries import problem_of

        submission = _submission(self.store)
        prepared: list[PreparedChild] = []
        for each in tasks:
            try:
                draft = draft_of(submission, each)
                draft.trace_parent = draft.trace_parent or traceparent
                prepared.append(submit_arguments(submission.task(draft)))
            except Refusal as refusal:
                raise problem_of(refusal) from None
        return prepared

    def bounds(self) -> str:
        """Returns the bounds of queues for the script."""
        return _submission(self.store).queues.bounds


@cache
def _submission(store: int) -> Submission:
    from firmq.shared.config.settings import load
    from firmq.shared.submission.direct import Submission

    return Submission(load().stores[store])
