"""Plans batches: derives ids that are the same when a request is repeated, and orders tasks by their dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firmq.gateway.auth.authenticator import submitter
from firmq.gateway.metrics import Metrics
from firmq.gateway.ordering import circles, in_order
from firmq.gateway.schemas.batches import BatchItemBody, BatchTermsBody
from firmq.shared.domain.store_number import id_suffix, store_of_id
from firmq.shared.domain.task import BatchPlace, NewTask, TaskState
from firmq.shared.failpoints import failpoint
from firmq.shared.observability.tracing import Tracing
from firmq.shared.stores.batches import Batches, BatchTerms
from firmq.shared.stores.idempotency import task_id
from firmq.shared.stores.queues import Queues, Submitted
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.task_factory import TaskFactory, refusal_of

Item = dict[str, Any]
"""The response for one task."""
MOST_DEPENDENCIES = 25_000
MOST_KNOWN = 20
"""Known types listed in the problem of a single task."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids of the tasks of a batch, derived from its id: so any request can refer to the tasks of others."""

    batch_id: str

    @classmethod
    def new(cls, seed: str) -> Identity:
        """Returns the identity of the batch that a request with this seed creates."""
        return cls(task_id(seed, "batch"))

    @property
    def then_id(self) -> str:
        """Returns the id of the task that follows the batch."""
        return self._derived("then")

    def of(self, index: int, name: object = None) -> str:
        """Returns the id of a task: derived from its name, if any, so that it may be resent at another index."""
        return self._derived(f"item {name}" if isinstance(name, str) else index)

    def _derived(self, what: int | str) -> str:
        mark = id_suffix(store_of_id(self.batch_id) or 0)
        return task_id(f"{self.batch_id[:10]}-{self.batch_id}{'-' if mark else ''}{mark}", what)


class BatchPlanner:
    """Opens batches and stores their tasks."""

    def __init__(
        self, queues: Queues, batches: Batches, task_factory: TaskFactory, metrics: Metrics, tracing: Tracing
    ) -> None:
        self.queues = queues
        self.batches = batches
        self.task_factory = task_factory
        self.metrics = metrics
        self.tracing = tracing

    def open(self, identity: Identity, terms: BatchTermsBody, trace_parent: str | None) -> None:
        """Opens the batch and stores the task that follows it. Raises Refusal when that task cannot be stored."""
        then = self._follow_up(identity, terms, trace_parent) if terms.then else None
        about = BatchTerms(
            name=terms.name or "",
            max_running=terms.max_running,
            stop_on_error=terms.stop_on_error,
            then=then.id if then else None,
        )
        self.batches.open(identity.batch_id, about)
        failpoint("gateway.batch-opened")
        if then:
            [stored] = self.queues.submit([then])
            if refusal := refusal_of(then, stored):
                self.batches.discard(identity.batch_id)
                raise refusal

    def _follow_up(self, identity: Identity, terms: BatchTermsBody, trace_parent: str | None) -> NewTask:
        assert terms.then is not None  # noqa: S101  # for mypy: the caller has checked
        try:
            with self.task_factory.checked(terms.then, trace_parent, submitter()) as task:
                return replace(task, id=identity.then_id, after_batch=identity.batch_id)
        except Refusal as refusal:
            raise _under("then", refusal) from None

    def store(self, tasks: Sequence[NewTask]) -> list[Item]:
        """Stores tasks. Returns the outcome of each."""
        with self.tracing.storing(len(tasks)):
            stored = self.queues.submit(tasks)
        self.metrics.count(*(task for task, each in zip(tasks, stored, strict=True) if each.stored))
        warnings = {each: self.task_factory.type_cache.warnings(each) for each in {task.type for task in tasks}}
        return [_stored_answer(task, each, warnings[task.type]) for task, each in zip(tasks, stored, strict=True)]


def _stored_answer(task: NewTask, stored: Submitted, warnings: Sequence[str]) -> Item:
    if refusal := refusal_of(task, stored):
        return {"problem": problem(refusal)}
    return {"task_id": stored.id, "status": stored.state} | ({"warnings": list(warnings)} if warnings else {})


@dataclass(slots=True)
class Plan:
    """The tasks of a request by their index in the batch, in the order in which they can be stored."""

    tasks: list[tuple[int, NewTask]]
    refused: dict[int, Item]


def check_dependencies(values: Sequence[Any]) -> None:
    """Raises Refusal when the tasks of a request have too many dependencies, each of which costs time to store."""
    wanted = (value.get("depends_on") for value in values if isinstance(value, dict))
    count = sum(len(each) for each in wanted if isinstance(each, list))
    if count > MOST_DEPENDENCIES:
        text = (
            f"have {count:,} dependencies; a request may have {MOST_DEPENDENCIES:,}: send fewer tasks at a time, or "
            "let them depend on one task that depends on the others"
        )
        raise refusals.invalid([refusals.field_error(("tasks",), text)])


def plan(
    planner: BatchPlanner, identity: Identity, values: Sequence[Any], trace_parent: str | None, start: int = 0
) -> Plan:
    """Validates all tasks of a request, the first with index `start`; each is accepted or refused individually.

    A value may be the refusal of its task. Raises Refusal when no task types are registered yet.
    """
    names = {at: value.get("item") if isinstance(value, dict) else None for at, value in enumerate(values, start)}
    ids = {at: identity.of(at, name) for at, name in names.items()}
    places = {task_id: at for at, task_id in reversed(ids.items())}
    finder = _Finder(identity, ids, {name: at for at, name in names.items() if isinstance(name, str)}, start)
    by, since = submitter(), planner.task_factory.type_cache.clock()
    tasks: dict[int, NewTask] = {}
    refused: dict[int, Item] = {}
    for at, value in enumerate(values, start):
        try:
            if isinstance(value, Refusal):
                raise value
            if places[ids[at]] != at:
                raise refusals.invalid(
                    [refusals.field_error(("item",), f"is already the name of task {places[ids[at]]}")]
                )
            place = BatchPlace(batch_id=identity.batch_id, index=at)
            tasks[at] = planner.task_factory.read(BatchItemBody, value, trace_parent, by, ids[at], finder, place, since)
        except Refusal as refusal:
            if planner.task_factory.type_cache.refuses_all(refusal):
                raise
            refused[at] = {"problem": problem(refusal)}
    if not finder.asked:
        return Plan(list(tasks.items()), refused)
    return _ordered(tasks, places, refused)


class _Finder:
    """Finds other tasks of the batch by index or name, from this request and earlier ones."""

    def __init__(self, identity: Identity, ids: Mapping[int, str], names: Mapping[str, int], start: int) -> None:
        self.identity = identity
        self.ids = ids
        self.names = names
        self.start = start
        self.asked = False

    def __call__(self, item: int | str) -> str:
        self.asked = True
        if isinstance(item, str):
            if item not in self.names and not self.start:
                raise ValueError("is not the name of a task of this batch")
            return self.identity.of(0, item)
        if item in self.ids:
            return self.ids[item]
        if not 0 <= item < self.start:
            end = self.start + len(self.ids)
            raise ValueError(f"is not an index of this batch: it has {end} tasks, counted from 0")
        return self.identity.of(item)


def _ordered(tasks: Mapping[int, NewTask], places: Mapping[str, int], refused: dict[int, Item]) -> Plan:
    needs = {
        at: [places[each.task_id] for each in task.parents if each.task_id in places] for at, task in tasks.items()
    }
    order = in_order(needs)
    left_out = tasks.keys() - set(order)
    wrong = dict.fromkeys(left_out, "names a task of this batch that was refused, or depends on one that was")
    for circle in circles(sorted(left_out), needs):
        for turn, at in enumerate(circle):
            wrong[at] = f"is a circular dependency: {_shown(circle, turn)}"
    for at, text in wrong.items():
        refused[at] = {"problem": problem(refusals.invalid([refusals.field_error(("depends_on",), text)]))}
    return Plan([(at, tasks[at]) for at in order], refused)


def _shown(circle: Sequence[int], turn: int, most: int = 11) -> str:
    """Formats a cycle from one of its members back to it."""
    size = len(circle)
    steps = [str(circle[(turn + step) % size]) for step in range(size if size <= most else most - 1)]
    return " → ".join([*steps, *(["…"] if size > most else []), str(circle[turn])])


def accepted(items: Iterable[Mapping[str, Any]]) -> int:
    """Returns the number of accepted tasks."""
    return sum("problem" not in item for item in items)


def problem(refusal: Refusal) -> Item:
    """Returns the problem of one task, with `known_types` shortened: a response may have thousands of problems."""
    said = refusal.problem
    if "known_types" in said:
        said["known_types"] = said["known_types"][:MOST_KNOWN]
    return said


def status(state: TaskState | None) -> str | None:
    return None if state is None else str(state)


def _under(name: str, refusal: Refusal) -> Refusal:
    """Returns the refusal with its places moved below a member of the body."""
    mistakes = refusal.members.get("errors")
    if not mistakes:
        return refusal
    moved = [
        {**each, "pointer": f"#/{name}{each['pointer'][1:]}", "field": f"{name}.{each['field']}"} for each in mistakes
    ]
    members = {key: value for key, value in refusal.members.items() if key != "errors"}
    return refusals.invalid(moved, refusal.kind, **members)
