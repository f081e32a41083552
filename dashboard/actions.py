"""Every change that the dashboard makes. Each is added to the audit record, with its author, once it has happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from dashboard.auth.users import Person
from dashboard.present import Redaction
from dashboard.queries import Queries
from shared.domain import payload, strict_json
from shared.domain.limit import read_limit
from shared.domain.schedule import NOT_TO_BE_SCHEDULED, read_declared, task_now
from shared.domain.task import WEBHOOK_TYPE, TaskState, new_task_id
from shared.errors import IllegalTransition, InvalidJSON, TaskNotFound, TaskQueueError
from shared.http.egress_policy import EgressPolicy
from shared.observability.tracing import current_traceparent
from shared.redis.client import translated
from shared.redis.scripts import Scripts
from shared.stores.audit import Audit
from shared.stores.bulk_actions import BulkActions, Selection, Verb
from shared.stores.dead_letters import DeadLetters, demand_going_on
from shared.stores.queues import Queues
from shared.stores.task_types import TaskTypes
from shared.stores.workers import Workers

MOST_PICKED = 1000
MOST_RATE = 1000


class Refused(TaskQueueError):
    """Raised when an action cannot be carried out; the message explains why."""


class Actions:
    """The writing side of the dashboard."""

    def __init__(
        self,
        scripts: Scripts,
        queues: Queues,
        dead_letters: DeadLetters,
        bulks: BulkActions,
        types: TaskTypes,
        workers: Workers,
        audit: Audit,
        queries: Queries,
        redaction: Redaction,
        max_json_depth: int,
        egress_policy: EgressPolicy,
    ) -> None:
        self.scripts = scripts
        self.queues = queues
        self.dead_letters = dead_letters
        self.bulks = bulks
        self.types = types
        self.workers = workers
        self.audit = audit
        self.queries = queries
        self.redaction = redaction
        self.max_json_depth = max_json_depth
        self.egress_policy = egress_policy

    # --- one task ---

    def retry(self, who: Person, task_id: str) -> None:
        """Returns a dead letter to its queue."""
        self.dead_letters.requeue(task_id)
        self._record(who, "retried", task_id)

    def amend(self, who: Person, task_id: str, text: str) -> None:
        """Retries a dead letter with other data. Raises Refused if the data does not match the schema of the type."""
        task = self.queries.records.get(task_id)
        _demand_own(task.summary.type)
        data = self._restored(self._parsed(text), task.data)
        self._check(task.summary.type, data)
        call = payload.encode(task.summary.type, strict_json.dump(data))
        with translated(), self.dead_letters.replaying([task_id]) as cause:
            found = self.scripts.amend(task_id, call, cause)
        demand_going_on(found)
        _demand(task_id, found.state, found.done, "only a failed task can be retried with other data")
        self._record(who, "retried with other data", task_id)

    def delete(self, who: Person, task_id: str) -> None:
        """Removes a dead letter or a corrupt record."""
        with translated():
            discarded = self.scripts.discard(task_id, self.queries.records.queues)
        if not discarded:
            self.dead_letters.purge(task_id)
        self._record(who, "deleted", task_id)

    def cancel(self, who: Person, task_id: str) -> TaskState:
        """Cancels a task and returns its state."""
        state = self.queues.cancel(task_id, f"by {who.name} in the dashboard")
        self._record(who, "cancelled", task_id)
        return state

    def redeliver(self, who: Person, delivery_id: str) -> None:
        """Repeats a webhook delivery."""
        self.queues.redeliver(delivery_id)
        self._record(who, "redelivered", delivery_id)

    def run_now(self, who: Person, task_id: str) -> None:
        """Moves a scheduled or retrying task to its queue. Raises IllegalTransition in any other state."""
        with translated():
            state, done = self.scripts.run_now(task_id)
        _demand(task_id, state, done, "only a scheduled or retrying task can be run now")
        self._record(who, "ran now", task_id)

    # --- batches ---

    def cancel_batch(self, who: Person, batch_id: str) -> None:
        """Cancels all tasks of a batch that have not ended."""
        self.queries.batches.cancel(batch_id, f"by {who.name} in the dashboard")
        self._record(who, "cancelled batch", batch_id)

    def retry_batch(self, who: Person, batch_id: str) -> None:
        """Returns all dead letters of a batch to their queues."""
        self.queries.batches.retry_failed(batch_id)
        self._record(who, "retried failures of batch", batch_id)

    # --- queues ---

    def pause(self, who: Person, queue: str, reason: str) -> None:
        self._known(queue)
        self.queues.pause(queue, reason, who.name)
        self._record(who, "paused queue", queue, reason)

    def resume(self, who: Person, queue: str) -> None:
        self._known(queue)
        self.queues.resume(queue)
        self._record(who, "resumed queue", queue)

    # --- limits ---

    def set_limit(self, who: Person, name: str, given: Mapping[str, str]) -> None:
        """Sets a limit. Raises Refused if it is invalid."""
        concurrency, rate = given.get("concurrency", "").strip(), given.get("rate", "").strip()
        try:
            limit = read_limit({"concurrency": int(concurrency) if concurrency else None, "rate": rate or None})
            self.queries.task_limits.put(name, limit, who.name)
        except ValueError as error:
            raise Refused(str(error)) from None
        self._record(who, "set limit", name, f"concurrency: {concurrency or 'unlimited'}, rate: {rate or 'unlimited'}")

    def remove_limit(self, who: Person, name: str) -> None:
        """Removes a limit set at run time, so that the declared one applies. Raises Refused if there is none."""
        if not self.queries.task_limits.delete(name):
            raise Refused(f"no limit {name} is set at run time")
        self._record(who, "removed limit", name)

    # --- workers and locks ---

    def drain(self, who: Person, worker: str) -> None:
        """Drains a worker. Raises Refused if it is not alive."""
        if not self.workers.drain(worker):
            raise Refused(f"there is no live worker {worker}")
        self._record(who, "drained worker", worker)

    def unlock(self, who: Person, name: str, token: str, reason: str) -> str:
        """Releases a lock by force and returns its former holder. The script adds the audit record in the same step."""
        if not token:
            raise Refused(f"lock {name} is free")
        self.queries.forget()
        return self.queries.locks.force(name, token, who.name, _given(reason))

    def step_down(self, who: Person, reason: str) -> str:
        """Ends the leader's term and returns its name. The script adds the audit record in the same step."""
        self.queries.forget()
        return self.queries.locks.step_down(who.name, _given(reason))

    # --- schedules ---

    def pause_schedule(self, who: Person, name: str, reason: str) -> None:
        self.queries.schedule_store.pause(name, reason)
        self._record(who, "paused schedule", name, reason)

    def resume_schedule(self, who: Person, name: str) -> None:
        self.queries.schedule_store.resume(name)
        self._record(who, "resumed schedule", name)

    def run_schedule(self, who: Person, name: str) -> str:
        """Submits a task of a schedule outside its due times and returns the task's id. Raises Refused."""
        schedule = self.queries.schedule_store.get(name).schedule
        _demand_own(schedule.type)
        task = task_now(schedule, new_task_id())
        [stored] = self.queues.submit([task.with_trace(current_traceparent())])
        if stored.state is None:
            raise Refused(f"the queue {task.queue} is full: try again later")
        self._record(who, "ran schedule now", name, task.id)
        return task.id

    def change_schedule(self, who: Person, name: str, text: str) -> None:
        """Replaces a schedule. Raises Refused if the new one is invalid."""
        before = self.queries.schedule_store.get(name)
        entry = self._parsed(text)
        if isinstance(entry, dict):
            entry["data"] = self._restored(entry.get("data"), json.loads(before.schedule.data))
        try:
            schedule = read_declared(name, entry, self.queues.weights, before.schedule.queue, self.egress_policy)
        except ValueError as error:
            raise Refused(str(error)) from error
        self._check(schedule.type, json.loads(schedule.data))
        self.queries.schedule_store.put(schedule, before.source)
        self._record(who, "changed schedule", name)

    def delete_schedule(self, who: Person, name: str) -> None:
        self.queries.schedule_store.delete(name)
        self._record(who, "deleted schedule", name)

    # --- many dead letters ---

    def begin_bulk(self, who: Person, verb: Verb, selection: Selection, rate: int, what: str) -> str:
        """Starts a bulk action and returns its id. `rate` is in tasks per second. Raises Refused."""
        if not 1 <= rate <= MOST_RATE:
            raise Refused(f"the rate must be from 1 to {MOST_RATE} tasks per second")
        if len(selection.ids) > MOST_PICKED:
            raise Refused(f"at most {MOST_PICKED} tasks can be selected: choose the whole group instead")
        count = self.bulks.count(selection)
        if not count:
            raise Refused("none of these tasks is a dead letter any more")
        action_id = self.bulks.begin(verb, selection, what=what, by=who.name, rate=rate)
        self._record(who, f"started bulk {verb}", action_id, f"{count} tasks, {rate} per second: {what}")
        return action_id

    def change_bulk(self, who: Person, action_id: str, state: str) -> None:
        """Pauses, resumes or aborts a bulk action. Raises Refused if it has ended."""
        if not self.bulks.change(action_id, state):
            raise Refused("this bulk action has ended")
        verb = {"running": "resumed bulk action", "paused": "paused bulk action", "aborted": "aborted bulk action"}
        self._record(who, verb[state], action_id)

    # --- inside ---

    def _record(self, who: Person, what: str, about: str, detail: str = "") -> None:
        self.queries.forget()
        self.audit.record(who.name, what, about, detail)

    def _known(self, queue: str) -> None:
        if queue not in self.queues.weights:
            raise Refused(f"there is no queue {queue}")

    def _parsed(self, text: str) -> Any:
        try:
            return strict_json.parse(text.encode("utf-8", "surrogatepass"), max_depth=self.max_json_depth)
        except InvalidJSON as error:
            raise Refused(str(error)) from error

    def _restored(self, edited: Any, original: Any) -> Any:
        try:
            return self.redaction.restore(edited, original)
        except ValueError as error:
            raise Refused(str(error)) from error

    def _check(self, task_type: str, data: Any) -> None:
        """Raises Refused if the data does not match the schema that workers published for its type."""
        self.types.refresh()
        offer = self.types.find(task_type)
        versions = [found for each in (offer.versions if offer else ()) if (found := self.types.version(each))]
        wrong = [
            [f"{_path(each)}: {each.message[:300]}" for each in _validator(found.schema)(data)] for found in versions
        ]
        if wrong and all(wrong):
            raise Refused(f"the data does not match the schema of {task_type}: {'; '.join(wrong[0][:5])}")


def _demand_own(task_type: str) -> None:
    """Raises Refused for a webhook delivery: arbitrary data would be sent with a valid signature."""
    if task_type == WEBHOOK_TYPE:
        raise Refused(NOT_TO_BE_SCHEDULED)


def _given(reason: str) -> str:
    if not reason.strip():
        raise Refused("a reason is required: the audit record keeps it")
    return reason.strip()[:500]


def _validator(schema: Any) -> Callable[[Any], Any]:
    try:
        found: Callable[[Any], Any] = jsonschema_rs.validator_for(dict(schema), offline=True).iter_errors
    except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return lambda _: ()
    return found


def _path(mistake: Any) -> str:
    return ".".join(str(part) for part in ("data", *mistake.instance_path))


def _demand(task_id: str, state: str, done: bool, rule: str) -> None:
    if done:
        return
    if not state:
        raise TaskNotFound(id=task_id)
    raise IllegalTransition(f"the task is {state}: {rule}", state=state)


def as_command(url: str, task_type: str, data: Any, queue: str) -> str:
    """Returns a shell command that submits the same task again, with the key in `TASKQUEUE_API_KEY` if it is set."""
    body = json.dumps({"type": task_type, "data": data, "priority": queue})
    quoted = body.replace("'", "'\\''")
    key = '${TASKQUEUE_API_KEY:+"-HAuthorization: Bearer $TASKQUEUE_API_KEY"}'
    return f"curl -X POST {url}/tasks {key} -H 'Content-Type: application/json' -d '{quoted}'"
