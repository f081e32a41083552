"""What RQ's pages on scheduling and `rq cron` show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rq import Repeat
from rq.exceptions import DuplicateJobError
from rq.registry import ScheduledJobRegistry

from tests.features.rq.program.rows import FINISHED, Program, feature
from tests.support import rq_functions as shop

_REGISTRY: Any = ScheduledJobRegistry
_NO_SCHEDULER = "the worker enqueues due jobs itself, unless an RQ scheduler holds the lock of the queue and does it"


@feature("`enqueue_in`, `enqueue_at`", [True, False, FINISHED, FINISHED], differs=_NO_SCHEDULER)
def scheduled(program: Program) -> object:
    later = program.queue.enqueue_in(timedelta(hours=1), shop.add, 1, 1)
    soon = program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1)
    at = program.queue.enqueue_at(datetime.now(UTC) + timedelta(seconds=1), shop.add, 1, 1)
    registry = _REGISTRY(queue=program.queue)
    return [later in registry, later.id in program.queue.job_ids, program.end(soon), program.end(at)]


@feature("`registry.schedule()` of a scheduled job to another time", [True, FINISHED])
def moved(program: Program) -> object:
    later = program.queue.enqueue_in(timedelta(hours=1), shop.add, 1, 1)
    registry = _REGISTRY(queue=program.queue)
    registry.schedule(later, datetime.now(UTC) + timedelta(seconds=1))
    soon = registry.get_scheduled_time(later) < datetime.now(UTC) + timedelta(minutes=1)
    return [soon, program.end(later)]


@feature("`unique=True` of a scheduled job", ["refused by RQ", FINISHED], since="3.0")
def unique(program: Program) -> object:
    found = program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1, job_id="reminder-7", unique=True)
    try:
        program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1, job_id="reminder-7", unique=True)
        second = "enqueued"
    except DuplicateJobError:
        second = "refused by RQ"
    return [second, program.end(found)]


def _repeated(program: Program, key: str, repeat: Repeat) -> int:
    program.queue.enqueue(shop.note, key, "x", repeat=repeat)
    program.seen(lambda: program.redis.llen(key) >= 3)
    return int(program.redis.llen(key))


@feature("`Repeat(times=2, interval=1)`", 3, differs=_NO_SCHEDULER)
def repeat(program: Program) -> object:
    return _repeated(program, "rq:program:repeated", Repeat(times=2, interval=1))


@feature("`Repeat(times=2, interval=0)`", 3)
def repeat_at_once(program: Program) -> object:
    return _repeated(program, "rq:program:at-once", Repeat(times=2, interval=0))


@feature("`rq cron`, `CronScheduler`", FINISHED, differs="runs as it did, and enqueues; the worker then runs the jobs")
def cron(program: Program) -> object:
    from rq.cron import CronScheduler

    scheduler = CronScheduler(connection=program.redis)
    scheduler.register(shop.note, queue_name="imports", args=("rq:program:cron", "x"), interval=600)
    scheduler.enqueue_jobs()
    return FINISHED if program.seen(lambda: program.noted("rq:program:cron")) else "not run"
