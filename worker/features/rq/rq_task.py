"""`rq`: a task that is a job of RQ, for any RQ worker to run. Offered where RQ_ALLOW and RQ_TASK_QUEUES allow it.

The handler stores the id of the job, which names the task and its try, and then enqueues the job under it, so that a
second call enqueues nothing. Then the task leaves the executor, and looks at the job again after ever longer pauses
until that has ended. While Redis does not answer, the task looks again without the use of a retry.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from fnmatch import translate
from functools import cache
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from redis import Redis
from redis.exceptions import RedisError
from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.job import Job
from rq.serializers import DefaultSerializer, JSONSerializer

from firmq.shared.config.settings import load
from firmq.shared.domain.clock import instant_us
from firmq.shared.domain.json_schema import MESSAGE
from firmq.shared.domain.task import RQ_TYPE
from firmq.shared.failpoints import failpoint
from firmq.shared.features.rq.settings import RqSettings
from firmq.shared.redis.client import connect, text
from firmq.worker.executors.outcomes import ResultNotSerializable, ResultTooLarge
from firmq.worker.features.rq.allowed import Allowed, JobRefused
from firmq.worker.handlers.attempt_steps import AttemptSteps, steps_of_current_task
from firmq.worker.handlers.context import current_task
from firmq.worker.handlers.registry import task
from firmq.worker.handlers.signals import GiveUp, TaskSuspended

log = logging.getLogger(__name__)

STEP = "rq-job"
"""The checkpoint that names the job; `enter_ended` in Lua reads it, to cancel the job with its task."""
FIRST_PAUSE, LONGEST_PAUSE, SHARE = 0.25, 60.0, 0.25
"""Seconds until the next look at a job, which are a share of the time since it was enqueued."""
AFTER_AN_ERROR = 5.0
RESULT_TTL = 24 * 3600
"""Seconds for which RQ keeps a result: longer than an outage of the workers that read it."""
_SETTINGS = load()
_OWN = RqSettings.of(_SETTINGS)
_QUEUES, _ALLOW = _OWN.rq_calls or (("",), ())
_OTHER_QUEUE = f"is not one of RQ_TASK_QUEUES ({', '.join(_QUEUES)}): use one of these, or add it there"
_OTHER_OPTION = (
    "is not an option in the data of the type rq: use fields of the task, such as timeout, max_retries, retry, delay, "
    "run_at, depends_on, unique, tags and webhook, and PUT /schedules for repetitions"
)
_FUNC: dict[str, Any] = {
    "pattern": "|".join(f"^{translate(each)[:-2]}$" for each in _ALLOW),
    MESSAGE: "does not match RQ_ALLOW: use a function that it names, or add this one there",
}
_VALUES = SimpleNamespace(  # reads results, and loads no class or function of a program
    dumps=JSONSerializer.dumps, loads=lambda data: Allowed((), pickles=True).serializer_of(data).loads(data)
)


class RqCall(BaseModel):
    """The data of the task."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"additionalProperties": {"not": {}, MESSAGE: _OTHER_OPTION}}
    )

    func: str = Field(max_length=300, description="The function, which RQ_ALLOW names.", json_schema_extra=_FUNC)
    args: list[Any] = Field(default=[], description="Positional arguments.")
    kwargs: dict[str, Any] = Field(default={}, description="Named arguments.")
    queue: str = Field(
        _QUEUES[0], description="The queue of RQ.", json_schema_extra={"enum": [*_QUEUES], MESSAGE: _OTHER_QUEUE}
    )
    ttl: int | None = Field(None, ge=1, description="Seconds after which RQ drops the job if it has not started.")
    at_front: bool = Field(default=False, description="Whether the job goes to the front of its queue.")


class RqJobFailed(Exception):
    """The job failed. Its traceback is a note of this error."""


@task(RQ_TYPE, timeout=Queue.DEFAULT_TIMEOUT)
def rq_task(data: RqCall) -> Any:
    """Enqueues a job of RQ, waits for its end, and returns its result. The job's time limit applies."""
    about, steps = current_task(), steps_of_current_task()
    if steps is None or about.recorder is None or about.recorder.assignment is None:
        raise GiveUp("a task of the type rq needs a worker")
    try:
        return _look(data, about.id, math.ceil(about.recorder.assignment.limit), steps)
    except RedisError as error:  # the command may have been executed: a failed attempt would lose the job
        log.warning("the job of task %s is checked again in %g s: %s", about.id, AFTER_AN_ERROR, error)
        again_us = steps.now_us() + round(AFTER_AN_ERROR * 1e6)
        raise TaskSuspended("Redis did not answer about the job", again_us, f"sleep {STEP}") from error


def _look(data: RqCall, task_id: str, timeout: int, steps: AttemptSteps) -> Any:
    """Returns the result of the job, which it enqueues if need be. Raises TaskSuspended while the job has not ended."""
    stored = steps.begin(STEP)
    last: dict[str, Any] = stored.value if stored else {"number": 0, "over": True}
    since_us = instant_us(stored.started_at) if stored and stored.started_at else 0
    if last["over"]:
        number, since_us = last["number"] + 1, steps.now_us()
        last = {"job": f"rq-{task_id}-{number}", "over": False, "number": number, "new": True}
        steps.checkpoint(STEP, last, since_us)  # before the job, which a cancel finds by it
    status = "queued"
    if last.pop("new", False):
        _enqueue(data, last["job"], timeout)
        failpoint("rq.enqueued")
        steps.checkpoint(STEP, last, since_us)
    else:
        status = text(_connection().hget(Job.key_for(last["job"]), "status") or "deleted")
    job = Job(last["job"], _connection(), _VALUES)
    if status == "finished":
        try:
            latest = job.latest_result()
            steps.encode(value := latest and latest.return_value, f"job {job.id}", "its result")
        except (JobRefused, ResultNotSerializable, ResultTooLarge) as why:  # the job has run, and not in vain
            return {"job": job.id, "unreadable": f"{why}. Job.fetch({job.id!r}).return_value() reads it"}
        return value
    if status in ("failed", "canceled", "stopped", "deleted"):
        latest = job.latest_result() if status == "failed" else None
        steps.checkpoint(STEP, {**last, "over": True}, since_us)
        said = (latest and latest.exc_string) or f"it is {status}{', or its ttl has ended' * (status == 'deleted')}"
        error = (RqJobFailed if status == "failed" else GiveUp)(f"job {job.id}: {said.strip().splitlines()[-1]}")
        error.add_note(said)
        raise error
    pause_us = max(FIRST_PAUSE * 1e6, min(LONGEST_PAUSE * 1e6, (steps.now_us() - since_us) * SHARE))
    what = f"job {job.id} is {status} in {data.queue}"
    raise TaskSuspended(what, steps.now_us() + round(pause_us), f"sleep {STEP}")


def _enqueue(data: RqCall, job: str, timeout: int) -> None:
    """Enqueues a job, unless it was enqueued before. Raises GiveUp."""
    if data.queue not in _QUEUES:
        raise GiveUp(f"queue {data.queue} {_OTHER_QUEUE}")
    try:
        if data.func not in _ALLOW:  # a pattern matches imports of a module too, such as shop.jobs.os.system
            Allowed(_ALLOW, pickles=False).find(data.func)
    except JobRefused as error:
        raise GiveUp(f"{error}: install it here too, or write its full name into RQ_ALLOW") from error
    is_json = data.queue in _OWN.rq_queues and not _OWN.rq_pickle
    queue = Queue(data.queue, _connection(), serializer=JSONSerializer if is_json else DefaultSerializer)
    options: dict[str, Any] = {"ttl": data.ttl, "result_ttl": RESULT_TTL, "at_front": data.at_front}
    with suppress(DuplicateJobError):
        queue.enqueue_call(data.func, data.args, data.kwargs, timeout, job_id=job, unique=True, **options)


@cache
def _connection() -> Redis:
    return connect(_SETTINGS.stores[0].store_url, timeout=5, name="rq-task")
