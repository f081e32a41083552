"""The client of local mode: `submit` validates a task as a gateway does, and runs it at once."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Unpack

from firmq.shared.client.answers import BatchItem
from firmq.shared.client.sending import Sending
from firmq.shared.config.settings import Settings, load
from firmq.shared.domain import strict_json
from firmq.shared.domain.json_schema import compile_schema
from firmq.shared.domain.queue_selection import DEFAULT
from firmq.shared.domain.step import read_step
from firmq.shared.domain.task import TaskState, new_task_id
from firmq.shared.submission.answers import Accepted, Ended, Progress, Task, TaskDetail
from firmq.shared.submission.bodies import NewTaskBody, context_of, read_body
from firmq.shared.submission.options import Options, Seconds, plain
from firmq.shared.submission.problems import Conflict, NotFound, Problem, TaskFailed, problem
from firmq.shared.submission.reading import step
from firmq.shared.submission.refusals import Refusal
from firmq.shared.submission.type_cache import invalid_data, unknown_type
from firmq.worker.executors.ipc import Assignment
from firmq.worker.executors.outcomes import Outcomes
from firmq.worker.executors.recorder import Recorder
from firmq.worker.handlers import registry
from firmq.worker.handlers.parent_results import ParentTask
from firmq.worker.handlers.registry import Handler
from firmq.worker.local import attempts

_UNSUPPORTED = {"unique_until", "depends_on", "on_parent_failure", "webhook", "item", "then"}
"""Others have an effect, or have none because each task ends in `submit`."""


class LocalClient:
    """Runs the handlers of `modules` (default: TASK_MODULES) in this process, each task when it is submitted.

    Retries and due times are not waited for: the times on record are those at which an attempt would be due. A handler
    gets the data in `signals` by the name of the signal that it waits for; a wait for another one times out.
    """

    in_process = True
    """`submit_async` of a handler calls `submit` in the event loop's thread, where the test is."""

    def __init__(self, modules: Iterable[str] | None = None, *, settings: Settings | None = None) -> None:
        self.settings = settings or load()
        self.handlers = registry.load(self.settings.task_modules if modules is None else modules).handlers
        self.outcomes = Outcomes(self.settings, [attempts.__file__])
        self.context = context_of(self.settings)
        self.records: dict[str, TaskDetail] = {}
        self.keys: dict[str, Accepted] = {}
        self.signals: dict[str, Any] = {}
        self.outputs: dict[str, list[Any]] = {}
        """The output of each task, in all of its attempts, by its id."""

    def submit(
        self, task_type: str, data: Any = None, *, idempotency_key: str | None = None, **options: Unpack[Options]
    ) -> Accepted:
        """Runs a task with its retries. Raises Refused, and ValueError for an option that is not supported."""
        if idempotency_key in self.keys:
            return self.keys[idempotency_key]
        accepted = self.run({"type": task_type, "data": data, **plain(options)})
        if idempotency_key is not None:
            self.keys[idempotency_key] = accepted
        return accepted

    def batch(
        self, tasks: Iterable[Mapping[str, Any]], *, name: str | None = None, then: Mapping[str, Any] | None = None
    ) -> LocalBatch:
        """Runs each task: of a list now, of another iterable when it is iterated over."""
        _check_supported({"then"} if then else ())
        return LocalBatch(self, tasks).send(tasks)

    def get(self, task_id: str) -> TaskDetail:
        """Returns a task. Raises NotFound."""
        if task_id not in self.records:
            raise NotFound(_problem("not-found", "Not found", 404, "no task has this id"))
        return self.records[task_id]

    def tasks(
        self, *, status: TaskState | str | None = None, task_type: str | None = None, tag: str | None = None
    ) -> Iterator[Task]:
        """Yields the tasks that match, the newest first."""
        for each in reversed(list(self.records.values())):
            if status in (None, each.status) and task_type in (None, each.type) and (tag is None or tag in each.tags):
                yield each

    def wait(self, task_id: str, timeout: Seconds | None = None) -> Ended:
        """Returns how the task ended. Raises NotFound."""
        task = self.get(task_id)
        return Ended(task_id=task_id, status=task.status, result=task.result, error=task.error)

    def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Returns the handler's result. Raises TaskFailed if it failed, and NotFound."""
        ended = self.wait(task_id)
        if ended.status is not TaskState.COMPLETED:
            raise TaskFailed(ended)
        return ended.result

    def cancel(self, task_id: str, reason: str | None = None) -> NoReturn:
        """Raises Conflict, as every task has ended, or NotFound."""
        text = f"the task is {self.get(task_id).status}: it cannot be cancelled any more"
        raise Conflict(_problem("wrong-state", "Wrong state", 409, text))

    def run(self, body: Mapping[str, Any], task_id: str | None = None) -> Accepted:
        """Runs a task in the form of POST /tasks. Raises Refused and ValueError."""
        _check_supported(body)
        handler, queue = self._checked(body)
        retry = {**body.get("retry", {}), **({"max_retries": body["max_retries"]} if "max_retries" in body else {})}
        task_id, data, now = task_id or new_task_id(), json.dumps(body["data"]), datetime.now(UTC)
        first = Assignment(
            number=0,
            id=task_id.encode(),
            type=handler.name.encode(),
            data=data.encode(),
            attempt=1,
            failures=0,
            retry=json.dumps(retry).encode(),
            meta=b"",
            enqueued_us=0,
            limit=0,
        )
        progress: list[Progress] = []
        recorder = Recorder(
            0, 0, lambda *_: None, lambda _, done, text: progress.append(Progress(fraction=done, message=text)), pause=0
        )
        outcome, made, steps = attempts.run(
            handler, first, self.outcomes, recorder, _due(body, now), self.signals, self._run_child
        )
        task = TaskDetail(
            task_id=task_id,
            type=handler.name,
            status=TaskState(outcome.state),
            queue=queue,
            created_at=now,
            started_at=made[-1].started_at,
            ended_at=made[-1].ended_at,
            attempt=len(made),
            retry_count=sum(each.retry_delay_seconds is not None for each in made),
            tags=tuple(dict.fromkeys(body.get("tags", ()))),
            progress=progress[-1] if progress else None,
            error=made[-1].error,
            data=json.loads(data),
            result=json.loads(base64.b64decode(outcome.result or b"")) if outcome.state == "completed" else None,
            max_retries=self.settings.retry_policy.override(handler.retry).override(retry).max_retries,
            timeout_seconds=body.get("timeout"),
            attempts=tuple(made),
            steps=tuple(step(read_step(name, record)) for name, record in steps.records.items()),
        )
        self.records[task_id], self.outputs[task_id] = task, steps.output
        return Accepted(task_id=task_id, status=task.status, type=task.type, queue=queue)

    def _run_child(self, task_id: str, body: Mapping[str, Any]) -> ParentTask:
        self.run({"data": None, **body}, task_id)
        found = self.records[task_id]
        error = f"{found.error.type}: {found.error.message}" if found.error else None
        answer = base64.b64encode(json.dumps(found.result).encode()) if error is None else None
        return ParentTask(id=task_id, state=found.status, error=error, answer=answer)

    def _checked(self, body: Mapping[str, Any]) -> tuple[Handler, str]:
        """Returns the handler and the queue of a valid task. Raises Refused, with the texts of a gateway."""
        try:
            task = read_body(NewTaskBody, dict(body), self.context)
            handler = self.handlers.get(task.type)
            if handler is None:
                raise unknown_type(task.type, sorted(self.handlers))
            data, validator = json.loads(strict_json.dump(task.data)), compile_schema(handler.schema)
            if not validator.is_valid(data):
                raise invalid_data(validator, handler.schema, data)
        except Refusal as refusal:
            raise problem(refusal.kind.status, refusal.problem) from None
        queue = task.queue or task.priority or handler.queue or DEFAULT
        return handler, self.settings.default_priority if queue == DEFAULT else queue


class LocalBatch(Sending):
    """A batch; iterating over it yields the outcome of each task."""

    def __init__(self, client: LocalClient, tasks: Iterable[Mapping[str, Any]]) -> None:
        self.client = client
        self.tasks = tasks
        self.batch_id = new_task_id()
        self.accepted = 0
        self.refused = 0

    def results(self) -> Iterator[BatchItem]:
        for index, body in enumerate(self.tasks):
            try:
                task = self.client.run(body)
            except Problem as refusal:
                self.refused += 1
                yield BatchItem(index=index, problem=refusal.document)
            else:
                self.accepted += 1
                yield BatchItem(index=index, task_id=task.task_id, status=task.status)


def _check_supported(options: Iterable[str]) -> None:
    if unsupported := sorted(_UNSUPPORTED.intersection(options)):
        raise ValueError(
            f"LocalClient does not support {', '.join(unsupported)}: test this with the system of `firmq dev`"
        )


def _due(body: Mapping[str, Any], now: datetime) -> datetime:
    return datetime.fromisoformat(body["run_at"]) if "run_at" in body else now + timedelta(seconds=body.get("delay", 0))


def _problem(slug: str, title: str, status: int, detail: str) -> dict[str, Any]:
    return {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail}
