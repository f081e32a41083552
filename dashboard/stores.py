"""The stores that pages read and actions change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.audit import Audit
from firmq.shared.stores.batches import Batches
from firmq.shared.stores.dead_letters import DeadLetters
from firmq.shared.stores.failure_groups import FailureGroups
from firmq.shared.stores.idempotency import Idempotency
from firmq.shared.stores.limits import Limits
from firmq.shared.stores.locks import LockAdmin
from firmq.shared.stores.payloads import Payloads
from firmq.shared.stores.queues import Queues
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.stores.tasks import Records, all_records
from firmq.shared.stores.workers import Workers
from firmq.shared.submission.bodies import context_of
from firmq.shared.submission.task_factory import TaskFactory
from firmq.shared.submission.type_cache import TypeCache

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings
    from firmq.shared.observability.tracing import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores, on one Redis client."""

    redis: Redis
    audit: Audit
    batches: Batches
    dead_letters: DeadLetters
    failure_groups: FailureGroups
    limits: Limits
    locks: LockAdmin
    queues: Queues
    schedules: ScheduleStore
    tasks: Records
    all_tasks: Records
    """With those that features keep beside Redis."""
    types: TaskTypes
    type_cache: TypeCache
    task_factory: TaskFactory
    idempotency: Idempotency
    workers: Workers


def open_stores(settings: Settings, redis: Redis, tracing: Tracing) -> Stores:
    """Returns the stores; nothing is read yet."""
    scripts = Scripts(redis, confirm_writes=settings.confirm_writes)
    queues = Queues.of(scripts, settings)
    tasks = Records(scripts, queues.register, Payloads.of(settings))
    batches = Batches(scripts)
    dead_letters = DeadLetters(scripts, tasks, tracing, timedelta(seconds=settings.retention_deleted))
    types, bodies = TaskTypes(redis), context_of(settings)
    type_cache = TypeCache(types, fresh=settings.type_cache_time, http_task_policy=settings.http_task_policy())
    workers = Workers(redis, settings.lease())
    return Stores(
        redis=redis,
        audit=Audit(redis),
        batches=batches,
        dead_letters=dead_letters,
        failure_groups=FailureGroups(scripts),
        limits=Limits(scripts),
        locks=LockAdmin(scripts),
        queues=queues,
        schedules=ScheduleStore(scripts),
        tasks=tasks,
        all_tasks=all_records(tasks, settings),
        types=types,
        type_cache=type_cache,
        task_factory=TaskFactory(type_cache, tracing, settings.default_priority, bodies, tasks.payloads, scripts.mark),
        idempotency=Idempotency(scripts, timedelta(seconds=settings.idempotency_ttl), queues.bounds),
        workers=workers,
    )
